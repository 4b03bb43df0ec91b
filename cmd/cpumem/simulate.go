// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/forecast"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
)

func simulateCommand() *cobra.Command {
	var file, from, machine, with string
	var live, exitCode bool
	var form *output.Forms
	var connection *connection
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Show where claims would land on a machine, or in a cluster as it is now",
		Args:  cobra.ExactArgs(1),
		Long: "Takes the pods of a file one after the other through the scheduler's allocator and the driver, and draws who has\n" +
			"which CPUs then. Nothing is changed on this machine. FILE is a stream of ResourceClaims, ResourceClaimTemplates,\n" +
			"DeviceClasses, Pods and Deployments, - for standard input. A claim or template that no pod refers to gets a pod.\n" +
			"Objects of other kinds are skipped.\n" +
			"Amounts are the granted ones: the scheduler rounds up to whole CPUs, steps of 1Mi and whole hugepages.\n" +
			"With --live the pods get nodes and zones of the cluster, beside the claims that are there, and no CPU ids; a pod gets\n" +
			"the first node that fits, node2 before node10, and the scheduler may choose another.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.Check(); err != nil {
				return err
			}
			if live {
				lacking, err := forecastLive(cmd, connection, form, args[0])
				if err == nil && exitCode && lacking > 0 {
					err = fmt.Errorf("%w: %d", errNotAllocated, lacking)
				}
				return err
			}
			source, c, err := openSimulated(from, machine, file, cmd.ErrOrStderr())
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
			others, err := openOtherDrivers(with)
			if err != nil {
				return err
			}
			objects, err := readObjects(cmd, args[0], others.Classes(simulation.ChartClasses()))
			if err != nil {
				return err
			}
			result, err := simulation.Run(cmd.Context(), m, c, objects, others)
			if err != nil {
				return err
			}
			err = form.Write(cmd.OutOrStdout(), result, map[string]func(io.Writer) error{
				picture: func(w io.Writer) error { return result.Picture(w, view(w)) },
			})
			if lacking := result.Lacking(); err == nil && exitCode && lacking > 0 {
				err = fmt.Errorf("%w: %d", errNotAllocated, lacking)
			}
			return err
		},
	}
	form = output.Flag(cmd, picture)
	connection = newConnection(cmd)
	cmd.Flags().BoolVar(&live, "live", false, "start from the cluster's zones and claims")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "end with status 1 if a claim or pod gets nothing")
	cmd.Flags().StringVar(&file, "config", "", configUsage)
	cmd.Flags().StringVar(&from, "from", "", "archive written by cpumem capture; empty for this machine")
	cmd.Flags().StringVar(&machine, "machine", "",
		"description of a machine, a file or inline as '{sockets: 2, ...}'; empty for this machine")
	cmd.Flags().StringVar(&with, "with", "",
		"ResourceSlices of one node and DeviceClasses of other drivers, a file as kubectl get -o yaml writes it")
	cmd.MarkFlagsMutuallyExclusive("from", "machine", "live")
	cmd.MarkFlagsMutuallyExclusive("with", "live")
	cmd.MarkFlagsMutuallyExclusive("config", "live")
	return cmd
}

// openOtherDrivers reads the other drivers' devices from a file, none without a name.
func openOtherDrivers(name string) (simulation.OtherDrivers, error) {
	if name == "" {
		return simulation.OtherDrivers{}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return simulation.OtherDrivers{}, err
	}
	defer func() { _ = f.Close() }()
	others, err := simulation.ReadOtherDrivers(f)
	if err != nil {
		return others, fmt.Errorf("%s: %w", name, err)
	}
	return others, nil
}

// openSimulated returns the described machine, the machine in the archive, or this machine,
// which is not read if another is named.
func openSimulated(archive, machine, file string, warnings io.Writer) (capture.Machine, config.Config, error) {
	if machine == "" {
		return openMachine(archive, file, warnings)
	}
	c, err := config.Read(file)
	if err != nil {
		return capture.Machine{}, config.Config{}, err
	}
	m, err := openDescription(machine)
	return m, c, err
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

// errNotAllocated is the error of --exit-code.
var errNotAllocated = errors.New("claims or pods that get nothing")

// forecastLive writes what the pods of the file would get in the cluster, and returns
// how many get nothing.
func forecastLive(cmd *cobra.Command, c *connection, form *output.Forms, file string) (lacking int, err error) {
	client, _, err := c.client()
	if err != nil {
		return 0, err
	}
	now, err := cluster.ReadAll(cmd.Context(), client)
	if err != nil {
		return 0, err
	}
	classes := make(allocation.Classes, len(now.Classes))
	for _, class := range now.Classes {
		classes[class.Name] = class
	}
	objects, err := readObjects(cmd, file, classes)
	if err != nil {
		return 0, err
	}
	if there := forecast.Existing(now, objects); len(there) > 0 {
		return 0, fmt.Errorf("%s: the cluster has the claim %s with an allocation, which would be counted twice: leave it out of the file",
			file, there[0])
	}
	result, err := forecast.Run(cmd.Context(), now, objects)
	if err != nil {
		return 0, err
	}
	return len(result.Pending), form.Write(cmd.OutOrStdout(), result, map[string]func(io.Writer) error{picture: result.Text})
}

// readObjects reads a file, or standard input for "-", and reports what it skips.
func readObjects(cmd *cobra.Command, name string, classes allocation.Classes) (simulation.Objects, error) {
	in, where := cmd.InOrStdin(), "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return simulation.Objects{}, err
		}
		defer func() { _ = f.Close() }()
		in, where = f, name
	}
	objects, err := simulation.Read(in, classes)
	if err != nil {
		return objects, fmt.Errorf("%s: %w", where, err)
	}
	if len(objects.Pods()) == 0 {
		return objects, fmt.Errorf("%s: nothing to simulate: it has no ResourceClaim, ResourceClaimTemplate, Pod or Deployment", where)
	}
	for _, skipped := range objects.Skipped() {
		fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %s\n", skipped)
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
