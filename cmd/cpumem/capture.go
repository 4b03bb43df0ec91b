// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

func captureCommand() *cobra.Command {
	var file, configuration string
	cmd := &cobra.Command{
		Use:   "capture",
		Short: "Write the files that describe this machine into an archive, for inspect --from and bug reports",
		Args:  cobra.NoArgs,
		Long: "Writes the files of /sys and /proc that the driver reads to know CPUs, caches, NUMA nodes, memory and hugepages\n" +
			"into a .tar.gz archive. It holds no serial numbers, addresses or host names. With --config it holds that file as well,\n" +
			"comments included, and inspect --from and simulate --from use it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && interactive(cmd.OutOrStdout()) {
				return errors.New("an archive is nothing for a terminal: name a file with -o or redirect the output")
			}
			c, text, err := readConfig(configuration)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error {
				return capture.Write(w, roots(c, cmd.ErrOrStderr()), int64(os.Getpagesize()), text)
			}
			if file != "" {
				return writeNew(file, write)
			}
			// A failure must not write a part of an archive.
			var archive bytes.Buffer
			if err := write(&archive); err != nil {
				return err
			}
			_, err = archive.WriteTo(cmd.OutOrStdout())
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; it must not exist; empty for standard output")
	cmd.Flags().StringVar(&configuration, "config", "", "configuration file of dra-frontend, to be in the archive; empty for none")
	return cmd
}

// readConfig returns the configuration in a file, and the file's text. Without
// a file it returns the defaults and nil.
func readConfig(file string) (config.Config, []byte, error) {
	if file == "" {
		return config.Default(), nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return config.Config{}, nil, err
	}
	c, err := config.Parse(text)
	if err != nil {
		return config.Config{}, nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	return c, text, nil
}

// interactive reports whether w is a character device other than the null
// device: a person may read it.
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
	var file, from string
	cmd := &cobra.Command{
		Use: "inspect", Short: "Show the zones that would be published on this machine, or on a captured one", Args: cobra.NoArgs,
	}
	form := output.Flag(cmd, table, resourceSlice)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		source, c, err := openMachine(from, file, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		m, err := inspect.ReadMachine(source.Roots, source.PageSize, c)
		if err != nil {
			return about(from, err)
		}
		return form.Write(cmd.OutOrStdout(), m, map[string]func(io.Writer) error{table: m.Table, resourceSlice: m.ResourceSlices})
	}
	cmd.Flags().StringVar(&file, "config", "", configUsage)
	cmd.Flags().StringVar(&from, "from", "", "archive written by cpumem capture; empty for this machine")
	return cmd
}

// resourceSlice is the form in which inspect shows what the frontend would publish.
const resourceSlice = "resourceslice"

// configUsage is the usage of --config in commands with --from.
const configUsage = "configuration file of dra-frontend; empty for the one in the archive, else defaults"

// roots returns the machine's sysfs and procfs: the directories of the configuration,
// or the machine's own where these are missing, with a warning. The chart's sysfsRoot
// is there in the frontend's container only.
func roots(c config.Config, warnings io.Writer) topology.Roots {
	present := func(key, dir, own string) string {
		if _, err := os.Stat(dir); err != nil {
			fmt.Fprintf(warnings, "warning: %s %s: %v; %s is read instead\n", key, dir, errors.Unwrap(err), own)
			return own
		}
		return dir
	}
	own := config.Default()
	return topology.At(present("sysfsRoot", c.SysfsRoot, own.SysfsRoot), present("procRoot", c.ProcRoot, own.ProcRoot))
}

// about adds the name of the archive, if any, to the error.
func about(archive string, err error) error {
	if archive == "" {
		return err
	}
	return fmt.Errorf("%s: %w", archive, err)
}

// openMachine returns this machine, or the machine in the archive if there is
// one. The configuration is the file's, else the archive's, else the defaults.
func openMachine(archive, file string, warnings io.Writer) (capture.Machine, config.Config, error) {
	c, err := config.Read(file)
	if err != nil {
		return capture.Machine{}, config.Config{}, err
	}
	if archive == "" {
		return capture.Machine{Roots: roots(c, warnings), PageSize: int64(os.Getpagesize())}, c, nil
	}
	m, err := openCapture(archive)
	if err == nil && file == "" {
		if c, err = config.Parse(m.Config); err != nil {
			err = fmt.Errorf("configuration: %w", err)
		}
	}
	if err != nil {
		return capture.Machine{}, config.Config{}, about(archive, err)
	}
	return m, c, nil
}

// openCapture reads an archive that cpumem capture wrote.
func openCapture(file string) (capture.Machine, error) {
	f, err := os.Open(file)
	if err != nil {
		return capture.Machine{}, err
	}
	defer func() { _ = f.Close() }()
	return capture.Open(f)
}
