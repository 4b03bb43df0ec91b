// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/why"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/internal/process"
)

// connection is how a command reaches the API server: as kubectl does.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

// newConnection adds kubectl's flags to the command.
func newConnection(cmd *cobra.Command) *connection {
	c := &connection{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	flags := cmd.Flags()
	flags.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; empty: as kubectl")
	flags.StringVar(&c.overrides.CurrentContext, "context", "", "context of the kubeconfig file; empty: the current one")
	return c
}

// inNamespace adds the flag --namespace to the command.
func (c *connection) inNamespace(cmd *cobra.Command, usage string) *connection {
	cmd.Flags().StringVarP(&c.overrides.Context.Namespace, "namespace", "n", "", usage)
	return c
}

func (c *connection) client() (client kubernetes.Interface, namespace string, err error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
	rest, err := config.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("%w: name a kubeconfig file with --kubeconfig or KUBECONFIG", err)
	case err != nil:
		return nil, "", err
	}
	rest.UserAgent = "cpumem/" + process.Version(version)
	if namespace, _, err = config.Namespace(); err != nil {
		return nil, "", err
	}
	client, err = kubernetes.NewForConfig(rest)
	return client, namespace, err
}

// read returns the cluster's slices and claims.
func (c *connection) read(ctx context.Context) (cluster.Objects, error) {
	client, _, err := c.client()
	if err != nil {
		return cluster.Objects{}, err
	}
	return cluster.Read(ctx, client)
}

const picture, table, text = "picture", "table", "text"

// barWidth is the width of a bar in the picture of nodes, in columns.
const barWidth = 32

func nodesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "nodes [NODE...]", Short: "Show what is free in the zones of the cluster's nodes",
		Long: "Shows for each zone of each node what claims can still get and what the whole zone has. The numbers are those of the\n" +
			"scheduler: the published ResourceSlices, less the amounts of all allocated claims. Pods without claims are not in them.",
	}
	c := newConnection(cmd)
	form := output.Flag(cmd, table, picture)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		objects, err := c.read(cmd.Context())
		if err != nil {
			return err
		}
		nodes, err := named(cluster.Usage(objects), args)
		if err != nil {
			return err
		}
		return form.Write(cmd.OutOrStdout(), nodes, map[string]func(io.Writer) error{
			table:   func(w io.Writer) error { return cluster.Table(w, nodes) },
			picture: func(w io.Writer) error { return cluster.Picture(w, nodes, barWidth) },
		})
	}
	return cmd
}

// named returns the nodes with the names, all without names.
func named(nodes []cluster.Node, names []string) ([]cluster.Node, error) {
	if len(nodes) == 0 {
		return nil, errors.New("no node publishes zones: is the driver installed, and are its frontends ready?")
	}
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n cluster.Node) bool { return n.Name == name }) {
			return nil, fmt.Errorf("node %q publishes no zones: kubectl get resourceslices lists the nodes that do", name)
		}
	}
	return slices.DeleteFunc(nodes, func(n cluster.Node) bool { return len(names) > 0 && !slices.Contains(names, n.Name) }), nil
}

func claimsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "claims", Short: "Show the allocated claims with their zones, CPUs, memory and pods", Args: cobra.NoArgs,
		Long: "Shows the allocated claims for zones, of all namespaces or of the one that -n names. CPUS are the ids that the frontend\n" +
			"wrote into the claim's status; there are none before the claim's pod starts.",
	}
	c := newConnection(cmd).inNamespace(cmd, "namespace of the claims; empty: all")
	form := output.Flag(cmd, table)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		objects, err := c.read(cmd.Context())
		if err != nil {
			return err
		}
		claims := cluster.AllocatedRequests(objects, objects.Claims)
		if n := c.overrides.Context.Namespace; n != "" {
			claims = slices.DeleteFunc(claims, func(c cluster.AllocatedRequest) bool { return c.Namespace != n })
		}
		return form.Write(cmd.OutOrStdout(), claims, map[string]func(io.Writer) error{
			table: func(w io.Writer) error { return cluster.RequestTable(w, claims) },
		})
	}
	return cmd
}

func whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "why POD | pod/NAME | claim/NAME", Short: "Show why a pod is pending, or what its claims gave it", Args: cobra.ExactArgs(1),
		Long: "Shows for a claim without an allocation each node and each zone with the first reason why it cannot serve the claim,\n" +
			"and for an allocated claim its zone, CPUs and cgroup values, and what weakens them. For a pod that does not run it also\n" +
			"shows the last termination of each container and the pod's last warnings.",
	}
	c := newConnection(cmd).inNamespace(cmd, "namespace of the pod or claim; empty: the namespace of the context")
	form := output.Flag(cmd, text)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		client, namespace, err := c.client()
		if err != nil {
			return err
		}
		report, err := explainWhy(cmd.Context(), client, namespace, args[0])
		if err != nil {
			return err
		}
		return form.Write(cmd.OutOrStdout(), report, map[string]func(io.Writer) error{text: report.Text})
	}
	return cmd
}

// explainWhy reads the objects and explains the pod or the claim of the name.
func explainWhy(ctx context.Context, client kubernetes.Interface, namespace, name string) (why.Report, error) {
	kind, short, qualified := strings.Cut(name, "/")
	if !qualified {
		kind, short = "pod", name
	}
	var pod *corev1.Pod
	var claim *resourceapi.ResourceClaim
	var err error
	switch kind {
	case "pod", "pods":
		pod, err = client.CoreV1().Pods(namespace).Get(ctx, short, metav1.GetOptions{})
	case "claim", "claims", "resourceclaim", "resourceclaims":
		claim, err = client.ResourceV1().ResourceClaims(namespace).Get(ctx, short, metav1.GetOptions{})
	default:
		return why.Report{}, fmt.Errorf("%q: want pod/NAME or claim/NAME", name)
	}
	switch {
	case apierrors.IsNotFound(err):
		return why.Report{}, fmt.Errorf("there is no %s %s in namespace %s: name the namespace with -n", kind, short, namespace)
	case err != nil:
		return why.Report{}, err
	}
	objects, err := cluster.ReadAll(ctx, client)
	if err != nil {
		return why.Report{}, err
	}
	if claim != nil {
		return why.Claim(ctx, objects, claim)
	}
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(pod.UID) + ",type=" + corev1.EventTypeWarning,
	})
	if err != nil {
		return why.Report{}, fmt.Errorf("list the events of pod %s: %w", short, err)
	}
	return why.Pod(ctx, objects, pod, events.Items)
}
