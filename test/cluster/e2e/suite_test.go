// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

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
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

var (
	keep   = flag.Bool("keep", false, "leave the cluster running")
	images = flag.String("images", "", "comma separated archives of the driver's images")
	tag    = flag.String("tag", "e2e", "tag of the driver's images")
	logs   = flag.String("logs", "", "directory for logs when a case fails")
)

const (
	node      = "node0"
	namespace = "cpumem-system"
	release   = "cpumem"
	chart     = "../../../charts/dra-driver-cpumem"
	probe     = cluster.ProbeImage
)

// suite is the cluster all cases run on.
type suite struct {
	*cluster.Cluster
	client kubernetes.Interface
	config *rest.Config
}

var theSuite suite

func TestMain(m *testing.M) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	if *images == "" {
		return 1, errors.New("-images is required: start the cases with `make e2e`, which builds them")
	}
	dir, err := cluster.DefaultDir()
	if err != nil {
		return 1, err
	}
	options := cluster.Defaults()
	options.Images = strings.Split(*images, ",")
	c := cluster.New(dir, options)
	if !*keep {
		defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	}
	if err := c.Down(ctx); err != nil {
		return 1, err
	}
	if err := c.Up(ctx); err != nil {
		return 1, err
	}
	defer func() {
		if (code != 0 || err != nil) && *logs != "" {
			fmt.Fprintln(os.Stderr, "e2e: logs are in", *logs)
			err = errors.Join(err, c.CollectLogs(context.WithoutCancel(ctx), *logs))
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return 1, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 1, err
	}
	theSuite = suite{Cluster: c, client: client, config: config}
	started := time.Now()
	if err := theSuite.install(ctx); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "e2e: chart installed and ready after %.0f s\n", time.Since(started).Seconds())
	return m.Run(), nil
}

// install is the first half of A51: helm install, until everything is ready.
func (s suite) install(ctx context.Context, more ...string) error {
	path, err := filepath.Abs(chart)
	if err != nil {
		return err
	}
	args := append([]string{"install", release, path, "--namespace", namespace, "--create-namespace",
		"--set", "frontend.image.tag=" + *tag, "--set", "actuator.image.tag=" + *tag,
		"--set", "frontend.image.pullPolicy=Never", "--set", "actuator.image.pullPolicy=Never",
		"--set", "config.refreshInterval=5s", "--set", "test.image=" + cluster.BusyboxImage,
		"--wait", "--timeout", "5m"}, more...)
	_, err = s.Helm(ctx, args...)
	return err
}
