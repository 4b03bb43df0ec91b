// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/doctor"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/report"
)

// Bounds of a report: lines of one log, bytes of one log, and pods with logs.
const (
	maxLogLines = 5000
	maxLogBytes = 4 << 20
	maxLogPods  = 50
)

func reportCommand() *cobra.Command {
	var file, selector string
	cmd := &cobra.Command{
		Use: "report", Short: "Write an archive for a bug report, and list what is in it", Args: cobra.NoArgs,
		Long: "Writes the zones, claims, classes, nodes and daemons of the cluster, the daemons' configuration and their last logs\n" +
			"into a .tar.gz archive. It holds no Secret, no environment variable, no annotation, no address of a node, and no\n" +
			"parameter of another driver. Namespaces, names and labels are in it: look at the archive before you send it.",
	}
	c := newConnection(cmd).inNamespace(cmd, "namespace of the driver; empty: "+driverNamespace)
	cmd.Flags().StringVarP(&file, "output", "o", "cpumem-report.tar.gz", "file to write; it must not exist")
	cmd.Flags().StringVarP(&selector, "selector", "l", "app.kubernetes.io/name=dra-driver-cpumem", "labels of the daemons' pods")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, namespace, err := c.client()
		if err != nil {
			return err
		}
		if c.overrides.Context.Namespace == "" {
			namespace = driverNamespace
		}
		in, err := gather(cmd.Context(), client, namespace, selector)
		if err != nil {
			return err
		}
		files, err := report.Files(in)
		if err != nil {
			return err
		}
		var archive bytes.Buffer
		if err := report.Write(&archive, files); err != nil {
			return err
		}
		if err := writeNew(file, archive.Bytes()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s has\n", file)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(cmd.OutOrStdout(), "  %s, %d bytes\n", name, len(files[name]))
		}
		return nil
	}
	return cmd
}

// driverNamespace is the namespace of the installation in the documents.
const driverNamespace = "cpumem-system"

// writeNew writes a file that does not exist.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// gather reads what a report is made of. A log that cannot be read is replaced by the
// reason.
func gather(ctx context.Context, client kubernetes.Interface, namespace, selector string) (report.Input, error) {
	in := report.Input{Logs: make(map[string][]byte)}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return in, fmt.Errorf("API server: %w", err)
	}
	objects, err := cluster.ReadAll(ctx, client)
	if err != nil {
		return in, err
	}
	in.Server = doctor.Server{Version: version.GitVersion, Objects: objects}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return in, fmt.Errorf("list the daemons' pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return in, fmt.Errorf("no pod in namespace %s has the labels %s: name the driver's namespace with -n", namespace, selector)
	}
	in.Pods = pods.Items
	for _, p := range pods.Items[:min(len(pods.Items), maxLogPods)] {
		for _, container := range p.Spec.Containers {
			in.Logs[p.Name+"/"+container.Name] = logOf(ctx, client, p, container.Name)
		}
	}
	configs, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return in, fmt.Errorf("list the frontend's configuration: %w", err)
	}
	for _, m := range configs.Items {
		in.Config += m.Data["config.yaml"]
	}
	return in, nil
}

func logOf(ctx context.Context, client kubernetes.Interface, p corev1.Pod, container string) []byte {
	stream, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
		Container: container, TailLines: new(int64(maxLogLines)), LimitBytes: new(int64(maxLogBytes)),
	}).Stream(ctx)
	if err != nil {
		return []byte(err.Error())
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil {
		return append(data, []byte(err.Error())...)
	}
	return data
}
