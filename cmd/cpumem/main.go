// SPDX-License-Identifier: Apache-2.0

// Command cpumem is the operator's tool. On a cluster it shows what is free where and
// why a pod is pending (package why), on a node what the daemons see and wrote
// (package inspect), and for any machine where claims would land (package simulation).
// As kubectl-cpumem in the PATH it is the plugin "kubectl cpumem".
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/internal/process"
)

// version is set by the linker.
var version string

func main() {
	root := command()
	if base := filepath.Base(os.Args[0]); strings.HasPrefix(base, "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cpumem"}
	}
	if err := root.ExecuteContext(process.Context()); err != nil {
		fmt.Fprintln(os.Stderr, "cpumem:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "cpumem", Short: "Shows what is free where, why a pod is pending, and what the driver sees and wrote on a node",
		Version: process.Version(version), SilenceUsage: true, SilenceErrors: true,
	}
	const onCluster, onNode, anywhere = "cluster", "node", "anywhere"
	root.AddGroup(
		&cobra.Group{ID: onCluster, Title: "About a cluster, with a kubeconfig (doctor: also about this node):"},
		&cobra.Group{ID: onNode, Title: "About this node, as root:"},
		&cobra.Group{ID: anywhere, Title: "About any machine and its configuration:"},
	)
	for id, commands := range map[string][]*cobra.Command{
		onCluster: {nodesCommand(), claimsCommand(), whyCommand(), doctorCommand(), reportCommand()},
		onNode:    {explainCommand(), captureCommand()},
		anywhere:  {inspectCommand(), simulateCommand(), validateCommand()},
	} {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	return root
}
