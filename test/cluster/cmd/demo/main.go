// SPDX-License-Identifier: Apache-2.0

// Command demo shows a newcomer what the driver does. It boots the cluster of the
// end-to-end tests, installs the chart, applies the README's example beside two
// pods without a claim, and prints what the API server, the CDI directory, the
// container and the cgroups above and beside it show. Every statement is a promise
// that is checked: a broken promise makes the exit code 1.
//
// The flow: main.go starts and ends the cluster, show.go has the story, objects.go
// makes and reads API objects, node.go reads the node, report.go prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

type options struct {
	images, tag, logs string
	free, keep, reuse bool
}

func main() {
	var o options
	flag.StringVar(&o.images, "images", "", "comma separated archives of the driver's images")
	flag.StringVar(&o.tag, "tag", "demo", "tag of the driver's images")
	flag.StringVar(&o.logs, "logs", "", "directory for logs if something goes wrong")
	flag.BoolVar(&o.keep, "keep", false, "leave the cluster running")
	flag.BoolVar(&o.reuse, "reuse", false, "show it on the running cluster, which has the images; its other nodes take no more pods")
	flag.BoolVar(&o.free, "free", false, "only check that the machine has what the demo needs and that no cluster is running")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal gets the default handling, which ends the process.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	dir, err := cluster.DefaultDir()
	if err != nil {
		return err
	}
	if err := cluster.CheckHost(dir); err != nil {
		return err
	}
	if !o.reuse {
		if err := checkFree(ctx, dir); err != nil || o.free {
			return err
		}
	}
	if o.images == "" {
		return errors.New("-images is required: start it with `make demo`, which builds them")
	}
	settings := cluster.Defaults()
	settings.Images = strings.Split(o.images, ",")
	if err := settings.FromEnvironment(); err != nil {
		return err
	}
	report := &report{out: os.Stdout, progress: os.Stderr, began: time.Now()}
	settings.Log = report.clusterLog()
	c := cluster.New(dir, settings)
	if o.reuse {
		if c, err = cluster.Open(dir, settings); err != nil {
			return err
		}
	}
	err = live(ctx, c, o, report)
	fmt.Printf("\ndemo: %d of %d promises kept, %.0f s\n", report.kept, promises, time.Since(report.began).Seconds())
	if err == nil && report.kept != promises {
		err = errors.New("the driver does not do what it promises here")
	}
	return err
}

// live starts the cluster, shows the demo on it, and ends it, also after an error.
func live(ctx context.Context, c *cluster.Cluster, o options, r *report) (err error) {
	if !o.reuse {
		if err := r.step("building what the cluster consists of, where it is not built yet", func() error { return c.Build(ctx) }); err != nil {
			return err
		}
		err = r.step("booting the cluster: one node with 2 NUMA nodes, in an emulated machine", func() error { return c.Up(ctx) })
		if errors.Is(err, cluster.ErrInUse) {
			return err // the cluster of another command must not be ended here
		}
	}
	defer func() {
		if o.keep {
			r.say("the cluster stays: export KUBECONFIG=%s; `make cluster-down` ends it", c.Kubeconfig())
			return
		}
		err = errors.Join(err, r.step("shutting the cluster down", func() error { return c.Down(context.WithoutCancel(ctx)) }))
	}()
	defer func() {
		if ctx.Err() != nil {
			err = errors.New("interrupted") // the signal is the cause of every other error
			return
		}
		if o.logs != "" && (err != nil || r.kept != promises) {
			collect := r.step("collecting logs", func() error { return c.CollectLogs(ctx, o.logs) })
			r.say("logs are in %s", o.logs)
			err = errors.Join(err, collect)
		}
	}()
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := cordonOthers(ctx, client); err != nil {
		return err
	}
	if err := r.step("installing the chart", func() error { return install(ctx, c, o.tag) }); err != nil {
		return err
	}
	return (&demo{Cluster: c, client: client, report: r}).show(ctx)
}

// cordonOthers keeps the story's pods on its node: a cluster that is used again may have more nodes.
func cordonOthers(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	for _, n := range nodes.Items {
		if n.Name == node {
			continue
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func install(ctx context.Context, c *cluster.Cluster, tag string) error {
	chart, err := filepath.Abs("charts/dra-driver-cpumem")
	if err != nil {
		return err
	}
	args := []string{
		"upgrade", "--install", "cpumem", chart, "--namespace", "cpumem-system", "--create-namespace", "--wait", "--timeout", "5m",
	}
	for _, value := range cluster.ImageValues(tag) {
		args = append(args, "--set", value)
	}
	_, err = c.Helm(ctx, args...)
	return err
}

// checkFree returns an error if a cluster runs in dir: it may be in use.
func checkFree(ctx context.Context, dir string) error {
	c, err := cluster.Open(dir, cluster.Defaults())
	if err != nil {
		return nil // no cluster was started, or its options cannot be read
	}
	for line := range strings.Lines(c.Status(ctx)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "process" {
			return fmt.Errorf("a cluster is running in %s: end it with `make cluster-down`, or choose another directory with "+
				"CPUMEM_CLUSTER_DIR and another network with CPUMEM_CLUSTER_SUBNET", dir)
		}
	}
	return nil
}
