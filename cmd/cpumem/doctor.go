// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/doctor"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor cluster | node", Short: "Check a cluster or a node for what the driver needs, and say how to repair what is wrong",
		Long:                  "Checks before and after the installation. The exit status is 1 if there is a fault.",
		DisableFlagsInUseLine: true,
		// Without a function of its own, cobra shows the help with the exit status 0.
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("doctor %q: want cluster or node", strings.Join(args, " "))
		},
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
		server, err := serverOf(cmd.Context(), client)
		if err != nil {
			return err
		}
		return diagnose(cmd.OutOrStdout(), form, doctor.Cluster(server))
	}
	return cmd
}

// serverOf reads the API server's version, and its objects unless it is too old to have
// them.
func serverOf(ctx context.Context, client kubernetes.Interface) (doctor.Server, error) {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return doctor.Server{}, fmt.Errorf("API server: %w", err)
	}
	s := doctor.Server{Version: version.GitVersion}
	if s.TooOld() {
		return s, nil
	}
	s.Objects, err = cluster.ReadAll(ctx, client)
	// The list of a resource that is served is always found.
	if s.WithoutAPI = apierrors.IsNotFound(err); s.WithoutAPI {
		return s, nil
	}
	return s, err
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
