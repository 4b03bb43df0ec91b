// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/report"
)

// Bounds of one log in a report, in lines, bytes and the time to read it, and of the time to read all logs. Several logs are
// read at once, so that nodes that do not answer leave time for the others.
const (
	maxLogLines = 5000
	maxLogBytes = 4 << 20
	maxLogTime  = 30 * time.Second
	maxLogsTime = 3 * time.Minute
	logsAtOnce  = 8
)

func reportCommand() *cobra.Command {
	var file, selector string
	var nodes []string
	cmd := &cobra.Command{
		Use: "report", Short: "Write an archive for a bug report, and list what is in it", Args: cobra.NoArgs,
		Long: "Writes the zones, claims, classes, nodes and daemons of the cluster, the daemons' configuration and their last logs\n" +
			"into a .tar.gz archive. It holds no Secret, no environment variable, no address, machine id or boot id of a node, and no\n" +
			"parameter of another driver. Its only annotations are the two that mark a claim that Kubernetes made for a pod.\n" +
			"Namespaces, names and labels are in it, and the daemons' logs as they are: look at the archive before you send it.\n" +
			fmt.Sprintf("The logs are those of %d pods: nodes with a daemon that is not ready come first. --node names other nodes.\n",
				report.MaxLogPods) +
			"What cannot be read is named in the archive and in the output.",
	}
	c := newConnection(cmd).inNamespace(cmd, "namespace of the driver; empty: "+driverNamespace)
	cmd.Flags().StringVarP(&file, "output", "o", "cpumem-report.tar.gz", "file to write; it must not exist")
	cmd.Flags().StringVarP(&selector, "selector", "l", "app.kubernetes.io/name=dra-driver-cpumem", "labels of the daemons' pods")
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "nodes whose daemons' logs are read; empty: of all nodes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, namespace, err := c.client()
		if err != nil {
			return err
		}
		if c.overrides.Context.Namespace == "" {
			namespace = driverNamespace
		}
		var files map[string][]byte
		var missing []string
		err = writeNew(file, func(w io.Writer) error {
			in, err := gather(cmd.Context(), client, namespace, selector, nodes)
			if err != nil {
				return err
			}
			missing = in.Missing
			if files, err = report.Files(in); err != nil {
				return err
			}
			return report.Write(w, files)
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s has\n", file)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(cmd.OutOrStdout(), "  %s, %d bytes\n", name, len(files[name]))
		}
		for _, reason := range missing {
			fmt.Fprintf(cmd.OutOrStdout(), "missing: %s\n", reason)
		}
		return nil
	}
	return cmd
}

// driverNamespace is the namespace of the installation in the documents.
const driverNamespace = "cpumem-system"

// gather reads what a report is made of. What cannot be read is replaced by the reason.
func gather(ctx context.Context, client kubernetes.Interface, namespace, selector string, nodes []string) (report.Input, error) {
	in := report.Input{Logs: make(map[string][]byte), Configs: make(map[string]string)}
	var err error
	if in.Server, err = serverOf(ctx, client); in.Server.Version == "" {
		return in, err
	}
	if err != nil {
		in.Incomplete = true
		in.Missing = append(strings.Split(err.Error(), "\n"), "doctor.txt, nodes.txt and claims.txt: they need all lists")
	}
	daemons := metav1.ListOptions{LabelSelector: selector}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, daemons)
	switch {
	case err != nil:
		in.Missing = append(in.Missing, fmt.Sprintf("list the daemons' pods: %v", err))
	case len(pods.Items) == 0:
		return in, fmt.Errorf("no pod in namespace %s has the labels %s: name the driver's namespace with -n, or its labels with -l",
			namespace, selector)
	default:
		in.Pods = pods.Items
		if err := readLogs(ctx, client, &in, nodes); err != nil {
			return in, err
		}
	}
	configs, err := client.CoreV1().ConfigMaps(namespace).List(ctx, daemons)
	if err != nil {
		in.Missing = append(in.Missing, fmt.Sprintf("list the frontend's configuration: %v", err))
		return in, ctx.Err()
	}
	for _, m := range configs.Items {
		if text, has := m.Data["config.yaml"]; has {
			in.Configs[m.Name] = text
		}
	}
	return in, ctx.Err()
}

// readLogs adds the logs of the daemons, on the nodes if there are any.
func readLogs(ctx context.Context, client kubernetes.Interface, in *report.Input, nodes []string) error {
	for _, node := range nodes {
		if !slices.ContainsFunc(in.Pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node }) {
			return fmt.Errorf("no daemon is on node %q: name nodes of the driver with --node", node)
		}
	}
	chosen, leftOut := report.PodsWithLogs(in.Pods, nodes)
	if leftOut > 0 {
		in.Missing = append(in.Missing, fmt.Sprintf("logs of %d of %d pods: name the nodes with --node", leftOut, len(chosen)+leftOut))
	}
	ctx, cancel := context.WithTimeout(ctx, maxLogsTime)
	defer cancel()
	var lock sync.Mutex
	unread := make(map[string]string)
	var reading sync.WaitGroup
	places := make(chan struct{}, logsAtOnce)
	for _, p := range chosen {
		for _, container := range p.Spec.Containers {
			places <- struct{}{}
			reading.Go(func() {
				defer func() { <-places }()
				log, reason := logOf(ctx, client, p, container.Name)
				lock.Lock()
				defer lock.Unlock()
				name := p.Name + "/" + container.Name
				in.Logs[name] = log
				if reason != "" {
					unread[name] = reason
				}
			})
		}
	}
	reading.Wait()
	for _, name := range slices.Sorted(maps.Keys(unread)) {
		in.Missing = append(in.Missing, fmt.Sprintf("log of %s: %s", name, unread[name]))
	}
	return nil
}

// logOf returns the log. What was not read is replaced by the reason, which logOf returns as well.
func logOf(ctx context.Context, client kubernetes.Interface, p corev1.Pod, container string) (log []byte, reason string) {
	ctx, cancel := context.WithTimeout(ctx, maxLogTime)
	defer cancel()
	stream, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
		Container: container, TailLines: new(int64(maxLogLines)), LimitBytes: new(int64(maxLogBytes)),
	}).Stream(ctx)
	if err != nil {
		reason = "not read: " + cause(err)
		return fmt.Appendf(nil, "log %s\n", reason), reason
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil {
		reason = "not read to its end: " + cause(err)
		return fmt.Appendf(data, "\nlog %s\n", reason), reason
	}
	return data, ""
}

// cause returns why a log was not read. The error itself names the addresses of the node and of the API server.
func cause(err error) string {
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &answer):
		status := answer.Status()
		return fmt.Sprintf("the API server answered %s (%d): kubectl logs shows why",
			contract.Excerpt(string(status.Reason), maxReason), status.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return "its time was over"
	}
	return "the connection to the API server failed"
}

// maxReason bounds the reason of an answer, in bytes.
const maxReason = 100
