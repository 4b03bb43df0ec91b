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
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

var (
	keep   = flag.Bool("keep", false, "leave the cluster running")
	reuse  = flag.Bool("reuse", false, "run on the cluster and the driver that -keep has left")
	images = flag.String("images", "", "comma separated archives of the driver's images")
	tag    = flag.String("tag", "e2e", "tag of the driver's images")
	units  = flag.String("systemd", wide, "comma separated nodes with systemd; all other nodes have the cgroup driver cgroupfs")
	kernel = flag.String("kernel", "", "kernel of all nodes: stable, backports or newest (default: stable, and backports on the wide node)")
	words  = flag.String("kernel-args", "", "more words for the kernel of all nodes")
	long   = flag.Bool("long", false, "also the cases, and the parts of cases, that take long")
	subnet = flag.Int("subnet", cluster.Defaults().Subnet, "second byte of the cluster's network; 0 takes a free one")
	page   = flag.String("page", "", "absolute path of the page into which the cases of bench-footprint and bench-churn write their results")
	logs   = flag.String("logs", "", "directory for logs when a case fails")
)

const (
	node      = "node0" // T3: 2 NUMA nodes; cgroup driver cgroupfs
	wide      = "node1" // qemu.Wide: 5 NUMA nodes, several last-level caches; cgroup driver systemd; kernel of Debian's backports
	namespace = "cpumem-system"
	release   = "cpumem"
	chart     = "../../../charts/dra-driver-cpumem"
	probe     = cluster.ProbeImage

	kubeletConfig = "/etc/kubernetes/kubelet.json" // on the nodes
)

// suite is the cluster that all cases run on, as seen from one node: cases create
// pods and read files there.
type suite struct {
	*cluster.Cluster
	client kubernetes.Interface
	config *rest.Config
	node   string
	values *string // what the release was configured with
}

// on returns the suite as seen from another node.
func (s suite) on(node string) suite {
	s.node = node
	return s
}

// kernel returns the release of the node's kernel, like "6.12.95+deb12-amd64".
func (s suite) kernel(t *testing.T) string {
	t.Helper()
	return s.file(t, "/proc/sys/kernel/osrelease")
}

// Each node boots the kernel of its options, and the kernels of Debian's backports
// can make cpuset partitions. The other cases rely on both.
func TestKernels(t *testing.T) {
	releases := map[string]string{} // by the kernel's name
	for _, name := range theSuite.NodeNames() {
		s := theSuite.on(name)
		release := s.kernel(t)
		t.Log(name, release)
		if other, ok := releases[s.Kernel(name)]; ok {
			require.Equal(t, other, release, "kernel %s of %s", s.Kernel(name), name)
		}
		releases[s.Kernel(name)] = release
		if s.Kernel(name) != cluster.KernelStable {
			s.file(t, s.levelDir("")+"/cpuset.cpus.exclusive")
		}
	}
}

// longOnly skips a case in the short form, which CI runs.
func longOnly(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("of the long form: LONG=1 make e2e")
	}
}

var theSuite suite

func TestMain(m *testing.M) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	ctx, cancel := limited(ctx)
	code, err := run(ctx, m)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// limited takes over the limit of package testing, which would end the process and leave the cluster's machines running.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := flag.Lookup("test.timeout")
	d, err := time.ParseDuration(limit.Value.String())
	if err != nil || d <= 0 {
		return context.WithCancel(ctx)
	}
	if err := limit.Value.Set("0"); err != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("the cases have not ended after %s", d))
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
	options.Nodes, options.Machines = 2, map[string]qemu.Machine{wide: qemu.Wide()}
	options.Kernels = map[string]string{wide: cluster.KernelBackports}
	if *kernel != "" {
		options.Kernel, options.Kernels = *kernel, nil
	}
	options.Subnet, options.KernelArgs = *subnet, *words
	if err := options.FromEnvironment(); err != nil {
		return 1, err
	}
	options.Systemd = strings.FieldsFunc(*units, func(r rune) bool { return r == ',' })
	audit, err := auditFlags(dir)
	if err != nil {
		return 1, err
	}
	options.Flags = map[string]map[string]string{"kube-apiserver": audit}
	c := cluster.New(dir, options)
	if *reuse {
		if c, err = cluster.Open(dir, options); err != nil {
			return 1, err
		}
	} else if err = c.Up(ctx); errors.Is(err, cluster.ErrInUse) {
		return 1, err // the cluster of another command must not be ended here
	}
	defer func() { err = errors.Join(err, finish(context.WithoutCancel(ctx), c, code != 0 || err != nil)) }()
	if err != nil {
		return 1, err
	}
	// The cases do not look at ctx.
	defer context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "e2e: ended early:", context.Cause(ctx))
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		if err := finish(context.WithoutCancel(ctx), c, true); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
		os.Exit(1)
	})()
	if theSuite, err = newSuite(c); err != nil {
		return 1, err
	}
	started := time.Now()
	if *reuse {
		*theSuite.values = "unknown"
	} else if err := theSuite.install(ctx); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "e2e: chart installed and ready after %.0f s\n", time.Since(started).Seconds())
	return m.Run(), nil
}

// finish collects the logs of a failed run, and ends the cluster unless it shall stay.
func finish(ctx context.Context, c *cluster.Cluster, failed bool) error {
	var errs []error
	if failed && *logs != "" {
		fmt.Fprintln(os.Stderr, "e2e: logs are in", *logs)
		errs = append(errs, c.CollectLogs(ctx, *logs))
	}
	if !*keep {
		errs = append(errs, c.Down(ctx))
	}
	return errors.Join(errs...)
}

// newSuite connects to the cluster.
func newSuite(c *cluster.Cluster) (suite, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return suite{}, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return suite{}, err
	}
	return suite{Cluster: c, client: client, config: config, node: node, values: new(string)}, nil
}

// install is the first half of A51: it runs helm install and waits until the driver
// is ready.
func (s suite) install(ctx context.Context, values ...string) error {
	return s.helm(ctx, "install", values)
}

// configure gives the release the values and waits until the driver is ready,
// unless the release has these values. Each change rolls the frontends, so cases
// with the same values follow each other.
func (s suite) configure(t *testing.T, values ...string) {
	t.Helper()
	if joined := strings.Join(values, " "); *s.values != joined {
		require.NoError(t, s.helm(t.Context(), "upgrade", values))
		*s.values = joined
	}
}

// helm runs helm install or upgrade of the release, and waits until all nodes take claims.
func (s suite) helm(ctx context.Context, verb string, values []string) error {
	if err := s.helmRelease(ctx, verb, release, "", values...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return objects.Eventually(ctx, "nodes that take claims", time.Second, s.ready)
}

// helmRelease runs helm install or upgrade with a file of values, none if it is empty, and
// more values. It waits until the release's pods are ready.
func (s suite) helmRelease(ctx context.Context, verb, name, file string, values ...string) error {
	path, err := filepath.Abs(chart)
	if err != nil {
		return err
	}
	args := []string{verb, name, path, "--namespace", namespace, "--create-namespace", "--wait", "--timeout", "5m"}
	if file != "" {
		args = append(args, "--values", file)
	}
	for _, v := range append(append(cluster.ImageValues(*tag),
		"metrics.enabled=true", "metrics.from[0].ipBlock.cidr=0.0.0.0/0",
		// The wide node has a NUMA node without CPUs.
		"config.memoryTypes={dram,unknown}", "deviceClass.memoryTypes={unknown}",
		// Cases show what the daemons refuse.
		"claimPolicy.enabled=false",
		"config.refreshInterval=5s", "config.kubeletConfigFile="+kubeletConfig,
	), values...) {
		args = append(args, "--set", v)
	}
	_, err = s.Helm(ctx, args...)
	return err
}
