// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/doctor"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what the driver needs of a cluster and of a node, and what mends it",
		Long: "Checks before and after the installation. The exit status is 1 if there is a fault.",
	}
	cmd.AddCommand(doctorCluster(), doctorNode())
	return cmd
}

func doctorCluster() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Check the cluster of the kubeconfig", Args: cobra.NoArgs}
	c := newConnection(cmd)
	form := output.Flag(cmd, table)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		client, _, err := c.client()
		if err != nil {
			return err
		}
		version, err := client.Discovery().ServerVersion()
		if err != nil {
			return fmt.Errorf("API server: %w", err)
		}
		objects, err := cluster.ReadAll(cmd.Context(), client)
		if err != nil {
			return err
		}
		return diagnose(cmd.OutOrStdout(), form, doctor.Cluster(doctor.Server{Version: version.GitVersion, Objects: objects}))
	}
	return cmd
}

func doctorNode() *cobra.Command {
	own := config.Default()
	m := doctor.Machine{}
	cmd := &cobra.Command{Use: "node", Short: "Check this node, as root", Args: cobra.NoArgs}
	form := output.Flag(cmd, table)
	var cdiDir string
	cmd.Flags().StringVar(&cdiDir, "cdi-dir", own.CDIDir, "CDI directory")
	cmd.Flags().StringVar(&m.Kubelet, "kubelet-root", own.KubeletRootDir, "kubelet's --root-dir")
	cmd.Flags().StringVar(&m.KubeletConfig, "kubelet-config", "", "kubelet's configuration file; with kubeadm /var/lib/kubelet/config.yaml")
	cmd.Flags().StringVar(&m.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "the runtime's NRI socket")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		m.Root = os.DirFS("/")
		m.CDIDir = cdiDir
		m.Directory, m.Err = inspect.Read(cdiDir)
		if resolved, err := filepath.EvalSymlinks(cdiDir); err == nil {
			m.CDIDir = resolved
		}
		return diagnose(cmd.OutOrStdout(), form, doctor.Node(m))
	}
	return cmd
}

// diagnose writes the checks. Faults are an error, too.
func diagnose(w io.Writer, form *output.Forms, checks []doctor.Check) error {
	if err := form.Write(w, checks, map[string]func(io.Writer) error{
		table: func(w io.Writer) error { return doctor.Table(w, checks) },
	}); err != nil {
		return err
	}
	if n := doctor.Faults(checks); n > 0 {
		return fmt.Errorf("%w: %d", errFaults, n)
	}
	return nil
}

var errFaults = errors.New("faults")
