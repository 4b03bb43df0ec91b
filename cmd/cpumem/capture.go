// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

func captureCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "capture", Short: "Write the files that describe this machine into an archive, for inspect --from and bug reports", Args: cobra.NoArgs,
		Long: "Writes the files of /sys and /proc that the driver reads to know CPUs, caches, NUMA nodes, memory and hugepages\n" +
			"into a .tar.gz archive. It holds no serial numbers, addresses or host names.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && interactive(cmd.OutOrStdout()) {
				return errors.New("an archive is nothing for a terminal: name a file with -o or redirect the output")
			}
			// All of it first: a failure leaves a file of that name as it was.
			var archive bytes.Buffer
			if err := capture.Write(&archive, roots(config.Default()), int64(os.Getpagesize())); err != nil {
				return err
			}
			if file == "" {
				_, err := archive.WriteTo(cmd.OutOrStdout())
				return err
			}
			return os.WriteFile(file, archive.Bytes(), 0o666)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; empty for standard output")
	return cmd
}

// interactive tells whether somebody looks at what is written to w.
func interactive(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	out, err := f.Stat()
	if err != nil || out.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(out, null)
}

func inspectCommand() *cobra.Command {
	var file, from, format string
	cmd := &cobra.Command{
		Use: "inspect", Short: "Show the zones that would be published on this machine, or on a captured one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return fmt.Errorf("--output %q: want table or json", format)
			}
			c, err := config.Read(file)
			if err != nil {
				return err
			}
			source := capture.Machine{Roots: roots(c), PageSize: int64(os.Getpagesize())}
			if from != "" {
				if source, err = openCapture(from); err != nil {
					return err
				}
			}
			m, err := inspect.ReadMachine(source.Roots, source.PageSize, c)
			if err != nil {
				return err
			}
			if format == "json" {
				return m.JSON(cmd.OutOrStdout())
			}
			return m.Table(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of dra-frontend; empty for defaults")
	cmd.Flags().StringVar(&from, "from", "", "archive written by cpumem capture; empty for this machine")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return cmd
}

func roots(c config.Config) topology.Roots {
	return topology.Roots{Sys: os.DirFS(c.SysfsRoot), Proc: os.DirFS(c.ProcRoot)}
}

// openCapture reads an archive that cpumem capture wrote.
func openCapture(file string) (capture.Machine, error) {
	f, err := os.Open(file)
	if err != nil {
		return capture.Machine{}, err
	}
	defer func() { _ = f.Close() }()
	m, err := capture.Open(f)
	if err != nil {
		return capture.Machine{}, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}
