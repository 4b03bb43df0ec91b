// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
)

func simulateCommand() *cobra.Command {
	var file, from, machine string
	var form *output.Forms
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Show where claims would land on this machine, a captured or a described one",
		Args:  cobra.ExactArgs(1),
		Long: "Takes the pods of a file one after the other through the scheduler's allocator and the driver, and draws who has\n" +
			"which CPUs then. Nothing is changed on this machine. FILE is a stream of ResourceClaims, ResourceClaimTemplates,\n" +
			"DeviceClasses, Pods and Deployments, - for standard input. A claim or template that no pod refers to gets a pod.\n" +
			"Amounts are the granted ones: the scheduler rounds up to whole CPUs, steps of 1Mi and whole hugepages.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.Check(); err != nil {
				return err
			}
			source, c, err := openMachine(from, file, cmd.ErrOrStderr())
			if err == nil && machine != "" {
				source, err = openDescription(machine)
			}
			if err != nil {
				return err
			}
			m, err := topology.Discover(source.Roots, source.PageSize)
			if err != nil {
				return about(from, err)
			}
			for _, w := range m.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
			objects, err := readObjects(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			result, err := simulation.Run(cmd.Context(), m, c, objects)
			if err != nil {
				return err
			}
			return form.Write(cmd.OutOrStdout(), result, map[string]func(io.Writer) error{
				picture: func(w io.Writer) error { return result.Picture(w, view(w)) },
			})
		},
	}
	form = output.Flag(cmd, picture)
	cmd.Flags().StringVar(&file, "config", "", configUsage)
	cmd.Flags().StringVar(&from, "from", "", "archive written by cpumem capture; empty for this machine")
	cmd.Flags().StringVar(&machine, "machine", "",
		"description of a machine, a file or inline as '{sockets: 2, ...}'; empty for this machine")
	cmd.MarkFlagsMutuallyExclusive("from", "machine")
	return cmd
}

// openDescription returns a described machine. text is the description, or the
// name of a file with the description.
func openDescription(text string) (capture.Machine, error) {
	data, where := []byte(text), "--machine"
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if data, err = os.ReadFile(text); err != nil {
			return capture.Machine{}, err
		}
		where = text
	}
	spec, err := description.Parse(data)
	if err != nil {
		return capture.Machine{}, fmt.Errorf("%s: %w", where, err)
	}
	return capture.FromFiles(spec.Sys(), spec.Proc(), spec.PageSize)
}

func readObjects(stdin io.Reader, name string) (simulation.Objects, error) {
	if name == "-" {
		objects, err := simulation.Read(stdin)
		if err != nil {
			return objects, fmt.Errorf("standard input: %w", err)
		}
		return objects, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return simulation.Objects{}, err
	}
	defer func() { _ = f.Close() }()
	objects, err := simulation.Read(f)
	if err != nil {
		return objects, fmt.Errorf("%s: %w", name, err)
	}
	return objects, nil
}

// fileWidth is the width of a picture outside of a terminal, in columns.
const fileWidth = 100

// view returns the width and the colours of a picture on w. Only a terminal
// gets colours, unless NO_COLOR is set or TERM is dumb.
func view(w io.Writer) simulation.View {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return simulation.View{Width: fileWidth}
	}
	v := simulation.View{Width: fileWidth, Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		v.Width = width
	}
	return v
}
