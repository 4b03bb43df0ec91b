// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster for the end-to-end tests, on one Debian machine without a container
// engine or hardware virtualisation. The control plane runs as plain processes. Each node is a QEMU machine with the
// NUMA nodes and hugepages that a test asks for, and runs containerd, runc and a kubelet built from Go modules.
//
// A cluster has one directory and one network namespace, named after a hash of the directory's path. Down kills the
// processes in the namespace and nothing else, so it also cleans up after a killed Up.
//
//	dir/bin        programs (Build)             dir/image   what nodes boot from, rebuilt when its inputs change
//	dir/kernel-*   Debian's kernels, unpacked   dir/run     keys, logs, disks of the running cluster; gone after Down
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Cluster is one cluster, running or not.
type Cluster struct {
	dir     string
	opts    Options
	started time.Time // for progress lines
}

// ErrInUse is the error of Up about a directory in which another command works, or has a cluster. Its cluster must not be ended.
var ErrInUse = errors.New("the cluster's directory is in use")

// New describes the cluster in dir; nothing happens before Build or Up.
func New(dir string, opts Options) *Cluster {
	return &Cluster{dir: resolved(dir), opts: opts, started: time.Now()}
}

// resolved returns the directory without symbolic links: names on the host depend on the directory's path.
func resolved(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	if parent := filepath.Dir(dir); parent != dir {
		return filepath.Join(resolved(parent), filepath.Base(dir))
	}
	return dir
}

// Open attaches to the cluster that Up started in dir. The options of that Up replace opts, except Source and Log. It
// is an error if no cluster is up.
func Open(dir string, opts Options) (*Cluster, error) {
	c := New(dir, opts)
	data, err := os.ReadFile(c.path("run", "options.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no cluster is up in %s: run `cluster up`", dir)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &c.opts); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path("run", "options.json"), err)
	}
	return c, nil
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *Cluster) logf(format string, args ...any) {
	if c.opts.Log != nil {
		fmt.Fprintf(c.opts.Log, "cluster %6.1f s: %s\n", time.Since(c.started).Seconds(), fmt.Sprintf(format, args...))
	}
}

// id is a hash of the directory's path, 8 hex digits: names that are global on the host must differ between clusters.
func (c *Cluster) id() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(c.dir)))[:8] }

// Kubeconfig is the path of an administrator's kubeconfig. The host can reach its server's address.
func (c *Cluster) Kubeconfig() string { return c.path("run", "kubeconfig") }

// Program is the path of a built program: kubectl, helm, ...
func (c *Cluster) Program(name string) string { return c.path("bin", name) }

// NodeNames are the nodes' names, node0 upwards.
func (c *Cluster) NodeNames() []string { return c.opts.nodeNames() }

// Up starts the cluster and returns when every node is Ready. It first removes what a failed Up has left. A running
// cluster is an error and is left alone.
func (c *Cluster) Up(ctx context.Context) error {
	c.started = time.Now()
	if err := c.opts.validate(); err != nil {
		return err
	}
	if limit := 64; len(c.dir) > limit || !filepath.IsAbs(c.dir) {
		return fmt.Errorf("directory %q: want an absolute path of at most %d characters, sockets live in it", c.dir, limit)
	}
	if err := c.Build(ctx); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(c.path("run", "up")); err == nil && len(c.processes()) > 0 {
		return fmt.Errorf("%w: a cluster is up in %s: end it with `make cluster-down`, or choose another directory with "+
			"CPUMEM_CLUSTER_DIR and another network with CPUMEM_CLUSTER_SUBNET", ErrInUse, c.dir)
	}
	if err := c.clean(); err != nil {
		return err
	}
	if err := c.chooseSubnet(); err != nil {
		return err
	}
	if c.opts.Nodes > 0 {
		if err := c.buildImage(ctx); err != nil {
			return err
		}
	}
	if err := c.prepareRun(); err != nil {
		return err
	}
	if err := c.networkUp(ctx); err != nil {
		return err
	}
	if err := c.controlPlaneStart(); err != nil {
		return err
	}
	// Nodes boot while the API server starts: booting takes longer, and the kubelet retries.
	for i, name := range c.NodeNames() {
		if err := c.startMachine(i, c.Machine(name), true); err != nil {
			return err
		}
	}
	if err := c.controlPlaneReady(ctx); err != nil {
		return err
	}
	for i := range c.opts.Nodes {
		if err := c.awaitNode(ctx, i); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.path("run", "up"), nil, 0o644); err != nil {
		return err
	}
	c.logf("up: export KUBECONFIG=%s", c.Kubeconfig())
	return nil
}

// Down ends every process of the cluster and removes its network and its run directory. It is no error if there is
// nothing to remove.
func (c *Cluster) Down(context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.clean()
}

func (c *Cluster) clean() error {
	if err := c.killAll(); err != nil {
		return err
	}
	if err := c.networkDown(); err != nil {
		return err
	}
	return os.RemoveAll(c.path("run"))
}

// prepareRun writes the files that the processes read: options, keys, tokens, kubeconfigs.
func (c *Cluster) prepareRun() error {
	for _, d := range []string{"run/pki", "run/control-plane"} {
		if err := os.MkdirAll(c.path(d), 0o755); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(c.opts, "", "  ")
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if err := os.WriteFile(c.path("run", "options.json"), data, 0o644); err != nil {
		return err
	}
	return c.writeCredentials()
}

// lock lets one command at a time build, start or stop in the directory; a second command gets ErrInUse.
func (c *Cluster) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: another cluster command is at work in %s (%w): wait for it or stop it", ErrInUse, c.dir, err)
	}
	return func() { f.Close() }, nil
}

// address returns 10.SUBNET.third.fourth. All addresses of the cluster are in 10.SUBNET.0.0/16.
func (c *Cluster) address(third, fourth int) net.IP {
	return net.IPv4(10, byte(c.opts.Subnet), byte(third), byte(fourth)).To4()
}
func (c *Cluster) apiAddress() net.IP       { return c.address(0, 1) }
func (c *Cluster) hostAddress() net.IP      { return c.address(0, 254) }
func (c *Cluster) nodeAddress(i int) net.IP { return c.address(0, 11+i) }
func (c *Cluster) podRange(i int) string    { return c.address(64+i, 0).String() + "/24" }
func (c *Cluster) allPods() string          { return c.address(64, 0).String() + "/18" }
func (c *Cluster) services() string         { return c.address(128, 0).String() + "/20" }
func (c *Cluster) serviceAPI() net.IP       { return c.address(128, 1) }

func (c *Cluster) nodeIndex(name string) (int, error) {
	for i, n := range c.NodeNames() {
		if n == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no node %q, there are: %s", name, strings.Join(c.NodeNames(), " "))
}
