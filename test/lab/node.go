// SPDX-License-Identifier: Apache-2.0

// Package lab is a node of real parts in one process: the frontend behind
// kubelet's sockets, the API server's objects, the scheduler's allocator, the
// CDI library, the runtime's side of NRI and its way of applying an answer to
// an OCI spec, and the actuator as its own process. Only kubelet, the container
// runtime and the cgroup file system are stand-ins, and the last is a tree of
// plain files. A claim takes the way it takes on a node:
//
//	Claim, Pod → Allocate → Prepare → CreateContainer → Start
//
// and [Node.Check] looks at what must hold after each step, from files and
// container specs alone.
package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/inventory"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/contract/records"
)

// T is *testing.T and *rapid.T.
type T interface {
	require.TestingT
	Helper()
	Logf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
	Failed() bool
}

// NodeName is the name of every node: each is a cluster of its own.
const NodeName = "worker"

const (
	// patience only bounds a hang.
	patience = 5 * time.Minute
	pause    = 2 * time.Millisecond
)

// Options vary a node.
type Options struct {
	// Programs are built programs, see [Build].
	Programs Programs
	// Configure changes the frontend's configuration.
	Configure func(*config.Config)
	// RuntimeVersion is containerd's version; from 2.3 on it names CDI devices.
	RuntimeVersion string
	// Kernel is the kernel's release.
	Kernel string
	// Partitions gives the kernel cpuset partitions.
	Partitions bool
	// Embedded runs the frontend's core without daemon and sockets: faster,
	// and it can die between any two writes.
	Embedded bool
	// API changes the API server before anything runs.
	API func(*API)
	// Log takes the frontend's log; nil: nobody reads it.
	Log *zap.Logger
	// Client, if set, returns what stands between the served frontend and the API
	// server.
	Client func(kubernetes.Interface) kubernetes.Interface
	// Class, if set, is the members of the DeviceClass's parameters, as JSON.
	Class string
	// NoActuator leaves the actuator to the test.
	NoActuator bool
	// Instance is who the frontend is.
	Instance Instance
}

// Node is one node with its cluster.
type Node struct {
	t       T
	o       Options
	dir     string
	spec    topologytest.Spec
	machine topology.Machine
	config  config.Config
	// inventory is computed when it is needed first.
	inventory *inventory.Inventory
	records   *records.Validator
	// seen are the CDI files that were found valid.
	seen    map[string]string
	decoded map[string]decoded
	serial  int
	boots   int

	// CDI is the CDI directory, Cgroup the cgroup mount.
	CDI, Cgroup string

	API      *API
	frontend frontend
	// beside are frontends that were started beside it.
	beside   []*Frontend
	actuator *Actuator
	runtime  *runtime
	pods     map[string]*Pod
	prepared map[string][]device
	// published is what was published at the start.
	published string
}

// NewNode starts a node. It has one pod without claims from the start, as
// every node has.
func NewNode(t T, spec topologytest.Spec, o Options) *Node {
	t.Helper()
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Kernel == "" {
		o.Kernel = "6.12.0"
	}
	if o.RuntimeVersion == "" {
		o.RuntimeVersion = "v2.3.7"
	}
	dir, err := os.MkdirTemp(base(), "lab")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &Node{
		t: t, o: o, dir: dir, spec: spec, machine: spec.Machine(), pods: make(map[string]*Pod), prepared: make(map[string][]device), decoded: make(map[string]decoded),
		CDI: filepath.Join(dir, "cdi"), Cgroup: filepath.Join(dir, "cgroup"),
	}
	n.records, err = records.New()
	require.NoError(t, err)
	n.config = config.Default()
	n.config.CDIDir, n.config.KubeletRootDir = n.CDI, n.path("kubelet")
	n.config.SysfsRoot, n.config.ProcRoot = n.path("sys"), n.path("proc")
	// A test that starts a container without an actuator wants to see it refused.
	n.config.GuardWait.Duration = 0
	if o.Configure != nil {
		o.Configure(&n.config)
	}
	n.mkdir("kubelet/plugins_registry")
	n.API = newAPI(t)
	if o.API != nil {
		o.API(n.API)
	}
	n.runtime = newRuntime(n)
	t.Cleanup(n.stop)
	n.boot()
	return n
}

// boot starts everything, in the order of a node whose pods start last.
func (n *Node) boot() {
	n.t.Helper()
	n.boots++
	n.writeMachine()
	n.mountCgroups()
	n.runtime.start()
	if n.o.Partitions {
		// As on a node, where the actuator is a pod: it finds kubepods by one.
		n.startSystem()
	}
	if !n.o.NoActuator {
		n.StartActuator()
	}
	n.startFrontend()
	if !n.o.NoActuator {
		n.Ready()
		n.Feature(contract.FeaturePartition, n.o.Partitions)
		n.published = n.publication()
	}
	if !n.o.Partitions {
		n.startSystem()
	}
}

// startSystem starts a pod that needs nothing.
func (n *Node) startSystem() {
	n.t.Helper()
	system, err := n.CreateContainer(n.Pod(fmt.Sprintf("system-%d", n.boots), Burstable, ContainerSpec{Name: "main"}), "main")
	require.NoError(n.t, err)
	require.NoError(n.t, system.Start())
}

// Reboot boots the node with another machine. What was in memory is gone: the
// CDI directory, cgroups and containers. Kubelet deletes all slices of its node
// when it starts.
func (n *Node) Reboot(spec topologytest.Spec) {
	n.t.Helper()
	n.stop()
	for _, dir := range []string{"cdi", "cgroup", "sys", "proc"} {
		require.NoError(n.t, os.RemoveAll(n.path(dir)))
	}
	n.spec, n.machine, n.inventory = spec, spec.Machine(), nil
	n.runtime = newRuntime(n)
	n.API.deleteSlices()
	n.RestartKubelet()
	for _, p := range n.pods {
		p.made = false
	}
	n.boot()
}

// BootID is the id of the running boot.
func (n *Node) BootID() string { return fmt.Sprintf("11111111-2222-4333-8444-%012d", n.boots) }

func (n *Node) stop() {
	for _, f := range n.beside {
		f.Stop()
	}
	n.beside = nil
	if n.frontend != nil {
		n.frontend.stop()
		n.frontend = nil
	}
	if n.actuator != nil {
		n.StopActuator(true)
	}
	n.runtime.stop()
}

// base is a file system in memory where there is one that may hold programs
// (the guard), as /var/run is: every step of a claim syncs files to it. What
// stands for cgroups needs extended attributes, which it has since Linux 6.6.
// Unix sockets need short paths.
func base() string {
	const memory, noexec = "/dev/shm", 0x8 // statfs(2), ST_NOEXEC
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || fs.Flags&noexec != 0 {
		return os.TempDir()
	}
	probe, err := os.MkdirTemp(memory, "lab")
	if err != nil {
		return os.TempDir()
	}
	defer os.Remove(probe)
	if err := syscall.Setxattr(probe, "user.lab", nil, 0); err != nil {
		return os.TempDir()
	}
	return memory
}

func (n *Node) path(rel string) string { return filepath.Join(n.dir, rel) }

func (n *Node) mkdir(rel string) {
	require.NoError(n.t, os.MkdirAll(n.path(rel), 0o755))
}

// writeMachine writes what the kernel would show.
func (n *Node) writeMachine() {
	for root, files := range map[string]map[string]string{
		"sys": text(n.spec.Sys()),
		"proc": merge(text(n.spec.Proc()), map[string]string{
			"self/mountinfo":            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			"sys/kernel/osrelease":      n.o.Kernel + "\n",
			"sys/kernel/random/boot_id": n.BootID() + "\n",
		}),
	} {
		for name, data := range files {
			path := n.path(filepath.Join(root, name))
			require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(n.t, os.WriteFile(path, []byte(data), 0o644))
		}
	}
}

// uid returns a new object UID.
func (n *Node) uid() string {
	n.serial++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", n.serial)
}

// eventually waits for a condition.
func (n *Node) eventually(what string, condition func() error) {
	n.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(pause) {
		if err = condition(); err == nil {
			return
		}
	}
	require.NoError(n.t, err, "waited %s for %s; actuator's log:\n%s", patience, what, n.actuatorLog())
}

// cdiCache returns the runtime's view of the CDI directory.
func (n *Node) cdiCache() *cdi.Cache {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(n.CDI), cdi.WithAutoRefresh(false))
	require.NoError(n.t, err)
	return cache
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
