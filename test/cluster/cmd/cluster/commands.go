// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

type (
	where  func() (string, error)
	opener func() (*cluster.Cluster, error)
)

func absolute(dir string) (string, error) { return filepath.Abs(dir) }

func newBuild(at where) *cobra.Command {
	return &cobra.Command{
		Use: "build", Short: "Install packages, unpack the kernel, build the programs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			return cluster.New(dir, cluster.Defaults()).Build(cmd.Context())
		},
	}
}

func newDown(at where) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Remove the cluster: processes, network, run directory", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			return cluster.New(dir, cluster.Defaults()).Down(cmd.Context())
		},
	}
}

func newStatus(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			fmt.Print(c.Status(cmd.Context()))
			return nil
		},
	}
}

func newKubeconfig(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "kubeconfig", Short: "Print the path of an administrator's kubeconfig", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			fmt.Println(c.Kubeconfig())
			return nil
		},
	}
}

func newShell(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sh NODE COMMAND...", Short: "Run a shell command as root on a node", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			out, err := c.NodeExec(cmd.Context(), args[0], strings.Join(args[1:], " "))
			fmt.Print(out)
			var exit *cluster.ExitError
			if errors.As(err, &exit) {
				if code, convErr := strconv.Atoi(exit.Code); convErr == nil {
					os.Exit(code)
				}
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newLogs(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "logs DIR", Short: "Collect logs, CDI files, cgroup values and API objects", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.CollectLogs(cmd.Context(), args[0])
		},
	}
}

func newLoad(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "load IMAGE.tar [NODE...]", Short: "Import an image archive into running nodes (default: all)", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			nodes := args[1:]
			if len(nodes) == 0 {
				nodes = c.NodeNames()
			}
			for _, n := range nodes {
				if err := c.LoadImage(cmd.Context(), n, args[0]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newStop(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "stop NODE", Short: "Switch a node off, its disk stays", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.StopNode(cmd.Context(), args[0])
		},
	}
}

func newStart(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "start NODE", Short: "Boot a stopped node from its disk", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.StartNode(cmd.Context(), args[0], c.Machine(args[0]))
		},
	}
}

// newTool is a command that replaces this process by kubectl or helm, so that the tool has the terminal, the pipes and
// the exit code.
func newTool(open opener, name string) *cobra.Command {
	return &cobra.Command{
		Use: name + " ...", Short: "Run " + name + " as administrator", DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return become(c, append([]string{c.Program(name)}, args...))
		},
	}
}

func newExec(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "exec PROGRAM ...", Short: "Run a program inside the cluster's network namespace", DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return errors.New("exec: which program?")
			}
			return become(c, c.InNamespace(args[0], args[1:]...))
		},
	}
}

// become replaces this process by the command; it returns only an error.
func become(c *cluster.Cluster, command []string) error {
	env := c.Env()
	for _, old := range os.Environ() {
		key, _, _ := strings.Cut(old, "=")
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, key+"=") }) {
			env = append(env, old)
		}
	}
	return fmt.Errorf("%s: %w", command[0], syscall.Exec(command[0], command, env))
}
