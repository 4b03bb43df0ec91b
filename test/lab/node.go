// SPDX-License-Identifier: Apache-2.0

// Package lab is a node of real parts: the frontend behind kubelet's sockets, the
// API server's objects, the scheduler's allocator, the CDI library, the runtime's
// side of NRI with its changes of OCI specs, and a process of the actuator. Kubelet
// and the container runtime are stand-ins, and the cgroups are those of package
// kernel's model. A claim takes the same steps as on a real node:
//
//	Claim, Pod → Allocate → Prepare → CreateContainer → Start
//
// After each step, [Node.Check] checks the invariants in files and container specs.
package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/contract/records"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// T has the methods of *testing.T and *rapid.T that package lab uses.
type T interface {
	require.TestingT
	Helper()
	Logf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
	Failed() bool
}

// NodeName is the name of each node: a cluster has one node.
const NodeName = "worker"

const (
	// patience only keeps a failure from hanging.
	patience = 5 * time.Minute
	pause    = 2 * time.Millisecond
)

// Options vary a node.
type Options struct {
	// Programs are built programs, see [Build].
	Programs Programs
	// Configure changes the frontend's configuration.
	Configure func(*config.Config)
	// RuntimeVersion is containerd's version. From 2.3 on, containerd gives the
	// names of CDI devices to NRI plugins.
	RuntimeVersion string
	// Kernel is the kernel of the model; Linux 6.1, which makes no partitions, if it is
	// zero. OSRelease is the kernel's own name of its release.
	Kernel    kerneltest.Release
	OSRelease string
	// OwnContainer gives the actuator a cgroup namespace, whose root is the cgroup of the
	// first pod's container.
	OwnContainer bool
	// Embedded runs the frontend's core without daemon and sockets. It is faster
	// and can die between any two writes.
	Embedded bool
	// API changes the API server before the node boots.
	API func(*API)
	// OnDisk keeps the node's files below the directory for temporary files. Otherwise they are in memory if possible, as
	// /var/run is on most nodes: each step of a claim syncs files.
	OnDisk bool
	// Log is the frontend's logger; nil for none.
	Log *zap.Logger
	// Client, if set, returns a client between the served frontend and the API
	// server.
	Client func(kubernetes.Interface) kubernetes.Interface
	// Class, if set, has the members of the DeviceClass's parameters, as JSON.
	Class string
	// NoActuator leaves the start of the actuator to the test.
	NoActuator bool
	// Instance identifies the frontend.
	Instance Instance
	// History, if set, gets the node's steps in the words of the protocol's model. Only an
	// embedded frontend's files are in it, of claims whose results each container has all.
	History *protocol.History
}

// Node is one node with its cluster.
type Node struct {
	t       T
	o       Options
	dir     string
	spec    topologytest.Spec
	machine topology.Machine
	config  config.Config
	// inventory is nil until offered computes it.
	inventory *zones.Division
	records   *records.Validator
	// seen has the contents of valid CDI files by name.
	seen    map[string]string
	decoded map[string]decoded
	serial  int
	boots   int

	// CDI is the CDI directory.
	CDI string
	// cgroups are the cgroups of the running boot.
	cgroups *hierarchy

	API      *API
	frontend frontend
	// beside are further frontends.
	beside   []*Frontend
	actuator *Actuator
	runtime  *runtime
	pods     map[string]*Pod
	prepared map[string][]device
	// published is the publication at the start, as text.
	published string
}

// NewNode starts a node with one pod without claims, as on each real node.
func NewNode(t T, spec topologytest.Spec, o Options) *Node {
	t.Helper()
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Kernel == (kerneltest.Release{}) {
		o.Kernel = kerneltest.Linux61
	}
	if o.OSRelease == "" {
		o.OSRelease = o.Kernel.Name + ".0"
	}
	if o.RuntimeVersion == "" {
		o.RuntimeVersion = "v2.3.7"
	}
	base := os.TempDir()
	if !o.OnDisk && allowsPrograms(memory) {
		base = memory
	}
	dir, err := os.MkdirTemp(base, "lab")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &Node{
		t: t, o: o, dir: dir, spec: spec, machine: spec.Machine(),
		pods: make(map[string]*Pod), prepared: make(map[string][]device), decoded: make(map[string]decoded),
		CDI: filepath.Join(dir, "cdi"),
	}
	n.records, err = records.New()
	require.NoError(t, err)
	n.config = config.Default()
	n.config.CDIDir, n.config.KubeletRootDir = n.CDI, n.path("kubelet")
	n.config.SysfsRoot, n.config.ProcRoot = n.path("sys"), n.path("proc")
	// A container without an actuator is refused at once.
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

// boot starts all parts of the node, pods last.
func (n *Node) boot() {
	n.t.Helper()
	n.boots++
	n.writeMachine()
	n.mountCgroups()
	n.runtime.start()
	if n.partitions() {
		// The actuator finds kubepods by a pod. On a real node it is a pod itself.
		n.startSystem()
	}
	if !n.o.NoActuator {
		n.StartActuator()
	}
	n.StartFrontend()
	if !n.o.NoActuator {
		n.Ready()
		n.Feature(contract.FeaturePartition, n.partitions())
		n.published = n.publication()
	}
	if !n.partitions() {
		n.startSystem()
	}
}

// partitions reports whether the kernel makes partitions of containers.
func (n *Node) partitions() bool { return n.o.Kernel.HasRemotePartitions() }

// startSystem starts a pod without claims.
func (n *Node) startSystem() {
	n.t.Helper()
	system, err := n.CreateContainer(n.Pod(fmt.Sprintf("system-%d", n.boots), Burstable, ContainerSpec{Name: "main"}), "main")
	require.NoError(n.t, err)
	require.NoError(n.t, system.Start())
	if n.o.OwnContainer {
		_ = n.cgroups.look(func() error {
			n.cgroups.namespace = system.cgroup()
			return nil
		})
	}
}

// Reboot boots the node with another machine. The contents of memory are lost: the
// CDI directory, cgroups and containers. Kubelet deletes all slices of its node at
// its start.
func (n *Node) Reboot(spec topologytest.Spec) {
	n.t.Helper()
	n.stop()
	for _, dir := range []string{"cdi", "sys", "proc"} {
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

// BootID returns the id of the running boot.
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
	n.cgroups.close()
}

// memory is a directory of a file system in memory. Its path is short, for Unix sockets.
const memory = "/dev/shm"

// allowsPrograms reports whether programs, for example the guard, can run from the directory. An absent directory allows none.
func allowsPrograms(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOEXEC == 0
}

// InMemory reports whether the directory is in memory (tmpfs).
func InMemory(t T, dir string) bool {
	t.Helper()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	return fs.Type == unix.TMPFS_MAGIC
}

func (n *Node) path(rel string) string { return filepath.Join(n.dir, rel) }

func (n *Node) mkdir(rel string) {
	require.NoError(n.t, os.MkdirAll(n.path(rel), 0o755))
}

// writeMachine writes the machine's files of sysfs and proc.
func (n *Node) writeMachine() {
	for root, files := range map[string]map[string]string{
		"sys": text(n.spec.Sys()),
		"proc": merge(text(n.spec.Proc()), map[string]string{
			"self/mountinfo":            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			"sys/kernel/osrelease":      n.o.OSRelease + "\n",
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

// eventually waits until condition returns nil.
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
