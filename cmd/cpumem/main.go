// SPDX-License-Identifier: Apache-2.0

// Command cpumem is the operator's tool. It shows this node as the daemons see
// it, and the files that they wrote. For the work see package inspect.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// version is set by the linker.
var version = "unknown"

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "cpumem:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "cpumem", Short: "Shows what dra-frontend and nri-actuator see and wrote on this node",
		Version: version, SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(captureCommand(), inspectCommand(), validateCommand(), explainCommand(), simulateCommand())
	return root
}

func validateCommand() *cobra.Command {
	var file, dir string
	cmd := &cobra.Command{
		Use: "validate", Short: "Check a configuration file, or the files in the CDI directory", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if _, err := config.Read(file); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), file, "is valid")
				return nil
			}
			d, err := inspect.Read(dir)
			if err != nil {
				return err
			}
			if err := d.Valid(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d claims\n", dir, len(d.Claims))
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "check this configuration file instead of the directory")
	cmd.Flags().StringVar(&dir, "cdi-dir", config.Default().CDIDir, "CDI directory")
	return cmd
}

func explainCommand() *cobra.Command {
	var dir, cgroups string
	var plan bool
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/CLAIM | CLAIM-UID]",
		Short: "Show the claims on this node with their CPUs, memory, hugepages and pods",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := inspect.Read(dir)
			if err != nil {
				return err
			}
			claim := ""
			if len(args) == 1 {
				claim = args[0]
			}
			if err := d.Explain(cmd.OutOrStdout(), claim); err != nil {
				return err
			}
			if err := d.ExplainProtection(cmd.OutOrStdout(), claim, os.DirFS(cgroups), int64(os.Getpagesize())); err != nil || !plan {
				return err
			}
			p, err := inspect.ReadPlan(dir, cgroups, os.DirFS("/proc"))
			if err != nil {
				return fmt.Errorf("plan: %w", err)
			}
			p.Write(cmd.OutOrStdout())
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "cdi-dir", config.Default().CDIDir, "CDI directory")
	cmd.Flags().StringVar(&cgroups, "cgroup-root", "/sys/fs/cgroup", "cgroup mount of the node")
	cmd.Flags().BoolVar(&plan, "plan", false, "also show what nri-actuator would write into the cgroups now (as root)")
	return cmd
}
