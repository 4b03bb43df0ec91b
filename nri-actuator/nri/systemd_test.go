// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

// systemd is a node with units as cgroups. At a reload, systemd writes the
// values of properties and drop-ins into them.
type fakeSystemd struct {
	t       *testing.T
	node    *testnode.Node
	unitDir string
	// units are the cgroup directories by unit.
	units map[string]string

	plugin    *nri.Plugin
	session   *nri.Session
	slices    *systemd.Writer
	announced contract.Announcement

	mu sync.Mutex
	// properties are cgroup files and their values, by unit.
	properties map[string]map[string]string
	// stuck makes calls end without an answer.
	stuck bool
	// wrap replaces the plugin's units.
	wrap func(enforce.Units) enforce.Units
}

const (
	kubepods  = "kubepods.slice"
	burstable = kubepods + "/kubepods-burstable.slice"
	sliceA    = burstable + "/kubepods-burstable-poda.slice"
)

func newSystemd(t *testing.T) *fakeSystemd {
	s := &fakeSystemd{
		t:          t,
		node:       testnode.New(t, t.TempDir()),
		unitDir:    t.TempDir(),
		units:      make(map[string]string),
		properties: make(map[string]map[string]string),
		wrap:       func(u enforce.Units) enforce.Units { return u },
	}
	for _, dir := range []string{kubepods, burstable, kubepods + "/kubepods-besteffort.slice", sliceA} {
		s.add(dir)
	}
	s.start()
	return s
}

func (s *fakeSystemd) add(dir string) {
	s.node.AddCgroup(dir)
	s.units[filepath.Base(dir)] = dir
}

// start starts an actuator.
func (s *fakeSystemd) start() {
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(s.t, err)
	slices := systemd.New(func(context.Context) (systemd.Bus, error) { return s, nil }, func(string) {})
	s.slices = slices
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { slices.Run(ctx) })
	s.t.Cleanup(func() { cancel(); running.Wait() })
	s.plugin = nri.New(nri.Options{Announcer: s, Options: enforce.Options{Kernel: "6.12.0",
		Host:      machine.New(machine.Dirs{}, cdidir.At(s.node.CDI), "boot"),
		Directory: claims.New(cdidir.At(s.node.CDI), contract.Features(), "boot"), Mount: s.node.Mount(), Metrics: m,
		Units: s.wrap(systemd.Systemd{Slices: s.slices, Dropins: systemd.NewDropins(s.unitDir)}), Clock: time.Now,
	}})
	s.session = s.plugin.NewSession(func() string { return "v0.12.0" })
	_, err = s.session.Configure(context.Background(), "", "containerd", "v2.2.7")
	require.NoError(s.t, err)
}

func (s *fakeSystemd) synchronize(containers ...*api.Container) {
	_, err := s.session.Synchronize(s.t.Context(), []*api.PodSandbox{s.pod()}, containers)
	require.NoError(s.t, err)
}

func (s *fakeSystemd) pod() *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox", Name: "pod", Namespace: "ns", Uid: podA, Linux: &api.LinuxPodSandbox{CgroupParent: "/" + sliceA}}
}

// run creates and starts a container.
func (s *fakeSystemd) run(id string, env ...string) *api.Container {
	c := &api.Container{Id: id, PodSandboxId: "sandbox", Name: id, Env: env, State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: filepath.Base(sliceA) + ":cri-containerd:" + id}}
	_, _, err := s.session.CreateContainer(s.t.Context(), s.pod(), c)
	require.NoError(s.t, err)
	s.add(s.dir(id))
	require.NoError(s.t, s.session.StartContainer(s.t.Context(), s.pod(), c))
	return c
}

func (*fakeSystemd) dir(id string) string { return sliceA + "/cri-containerd-" + id + ".scope" }

// Set implements nri.Announcer.
func (s *fakeSystemd) Set(change func(*contract.Announcement)) error {
	change(&s.announced)
	return nil
}

// SetUnitProperties implements systemd.Bus.
func (s *fakeSystemd) SetUnitProperties(ctx context.Context, unit string, _ bool, properties ...systemd.Property) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck {
		return context.DeadlineExceeded
	}
	if s.properties[unit] == nil {
		s.properties[unit] = make(map[string]string)
	}
	for _, p := range properties {
		file := map[string]string{"MemoryMin": "memory.min", "MemoryLow": "memory.low"}[p.Name]
		s.properties[unit][file] = strconv.FormatUint(p.Value.Value().(uint64), 10)
	}
	return nil
}

// Close implements systemd.Bus.
func (*fakeSystemd) Close() error { return nil }

// receives waits until systemd has the value, and the actuator knows that.
func (s *fakeSystemd) receives(unit, file, want string) {
	s.t.Helper()
	has := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.properties[unit][file] == want
	}
	knows := func() bool { return has() && s.slices.UpToDate(s.units[unit]) }
	require.Eventually(s.t, knows, 5*time.Minute, time.Millisecond, "%s of %s", file, unit)
}

// reload is systemctl daemon-reload: systemd writes all values that it knows.
func (s *fakeSystemd) reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for unit, dir := range s.units {
		data, err := os.ReadFile(filepath.Join(s.unitDir, unit+".d", "90-dra.cpumem.conf"))
		if err == nil {
			for line := range strings.Lines(string(data)) {
				property, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				if file := map[string]string{"AllowedCPUs": "cpuset.cpus", "AllowedMemoryNodes": "cpuset.mems"}[property]; value != "" {
					s.node.SetFile(dir, file, value)
				}
			}
		} else if strings.HasSuffix(unit, ".scope") {
			// systemd restores the values of the creation.
			s.node.SetFile(dir, "cpuset.cpus", "0-15")
		}
		for file, value := range s.properties[unit] {
			s.node.SetFile(dir, file, value)
		}
	}
}

// protect makes the node state name memory.min of the pod and its levels, or no
// value if value is empty.
func (s *fakeSystemd) protect(value string) {
	s.node.Change(func(n *contract.NodeState) {
		pod := n.Pods[podA]
		n.Ancestors, pod.Cgroup = nil, nil
		if value != "" {
			pod.Cgroup = contract.Files{"memory.min": value}
			n.Ancestors = map[string]contract.Files{"": pod.Cgroup, "burstable": pod.Cgroup}
		}
		n.Pods[podA] = pod
	})
}

// The values that the actuator writes survive a reload at any time, and so do
// the values that it gives back.
func TestSystemdFollows(t *testing.T) {
	s := newSystemd(t)
	s.node.SetFile(kubepods, "memory.min", "12288")
	s.synchronize()
	pooled := s.run("pooled")
	require.Equal(t, "0-15", s.node.File(s.dir("pooled"), "cpuset.cpus"))
	env := s.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0")})
	s.protect("8192")
	claimed := s.run("claimed", env...)
	holds := func(pool, kube, pod string) {
		t.Helper()
		require.Equal(t, pool, s.node.File(s.dir("pooled"), "cpuset.cpus"))
		require.Equal(t, kube, s.node.File(kubepods, "memory.min"))
		require.Equal(t, pod, s.node.File(burstable, "memory.min"))
		require.Equal(t, pod, s.node.File(sliceA, "memory.min"))
	}
	holds("0-3,8-15", "8192", "8192")
	for _, unit := range []string{kubepods, filepath.Base(burstable), filepath.Base(sliceA)} {
		s.receives(unit, "memory.min", "8192")
	}
	s.reload()
	holds("0-3,8-15", "8192", "8192") // I1
	require.Empty(t, s.properties[filepath.Base(s.dir("pooled"))], "no call for containers")

	// Kubelet sets the property, and so the file.
	require.NoError(t, s.SetUnitProperties(t.Context(), kubepods, true, property(t, "memory.min", "0")))
	s.node.SetFile(kubepods, "memory.min", "0")
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.receives(kubepods, "memory.min", "8192")
	require.Equal(t, map[string]contract.Files{"": {"memory.min": "0"}}, s.announced.Overwritten)

	// The node state names no values. The former values come back, although the
	// actuator dies before systemd has them (I4). The last one is kubelet's
	// zero.
	s.mu.Lock()
	s.stuck = true
	s.mu.Unlock()
	s.protect("4096")
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.reload()
	holds("0-3,8-15", "8192", "8192")
	require.NoError(t, s.plugin.Apply(t.Context()))
	holds("0-3,8-15", "4096", "4096")
	require.Equal(t, map[string]contract.Files{"": {"memory.min": "0"}}, s.announced.Overwritten, "systemd is behind, it was nobody else")
	s.protect("")
	s.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, s.plugin.Apply(t.Context()))
	holds("0-15", "0", "0")
	s.mu.Lock()
	s.stuck = false
	s.mu.Unlock()
	s.start()
	s.synchronize(pooled, claimed)
	for _, unit := range []string{kubepods, filepath.Base(burstable), filepath.Base(sliceA)} {
		s.receives(unit, "memory.min", "0")
	}
	s.reload()
	holds("0-15", "0", "0")

	// From here on other programs may write the files.
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.node.SetFile(kubepods, "memory.min", "16384")
	require.NoError(t, s.plugin.Apply(t.Context()))
	require.Equal(t, "16384", s.node.File(kubepods, "memory.min"))

	s.node.RemoveCgroup(s.dir("pooled"))
	_, err := s.session.StopContainer(t.Context(), s.pod(), pooled)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(s.unitDir, filepath.Base(s.dir("pooled"))+".d"))
}

// Partition CPUs are given back while systemd does not answer calls about the
// same cgroups: systemd knows nothing of these CPUs (I3).
func TestExclusiveWaitsForNoSystemd(t *testing.T) {
	s := newSystemd(t)
	s.synchronize()
	env := s.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	s.run("pooled")
	s.run("c", env...)
	s.mu.Lock()
	s.stuck = true
	s.mu.Unlock()
	for _, value := range []string{"8192", ""} {
		s.protect(value)
		require.NoError(t, s.plugin.Apply(t.Context()))
	}
	dirs := []string{kubepods, burstable, sliceA}
	for _, dir := range dirs {
		require.Equal(t, "4-7", s.node.File(dir, contract.FileExclusive))
	}
	s.node.RemoveCgroup(s.dir("c"))
	s.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, s.plugin.Apply(t.Context()))
	for _, dir := range dirs {
		require.Empty(t, s.node.File(dir, contract.FileExclusive), dir)
	}
}

// TestSystemdFollowsTheRuntime covers A69: if a runtime's update wrote the pool
// before the actuator, a reload brings no older pool back (I1).
func TestSystemdFollowsTheRuntime(t *testing.T) {
	for name, next := range map[string]func(s *fakeSystemd, env []string){
		"apply":    func(s *fakeSystemd, _ []string) { require.NoError(t, s.plugin.Apply(t.Context())) },
		"creation": func(s *fakeSystemd, env []string) { s.run("claimed", env...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystemd(t)
			s.synchronize()
			s.run("pooled")
			s.node.Change(func(n *contract.NodeState) { n.Shared.CPUs = contracttest.CPUs("0-7") })
			require.NoError(t, s.plugin.Apply(t.Context()))
			env := s.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0")})
			s.node.SetFile(s.dir("pooled"), "cpuset.cpus", "0-3")
			next(s, env)
			s.reload()
			require.Equal(t, "0-3", s.node.File(s.dir("pooled"), "cpuset.cpus"))
		})
	}
}

// A container that is found gets a drop-in for the pool, also if one of its files has the
// wanted content already (I1).
func TestSystemdFollowsAFoundContainer(t *testing.T) {
	s := newSystemd(t)
	s.add(s.dir("found"))
	s.node.Change(func(n *contract.NodeState) { n.Shared.CPUs = contracttest.CPUs("0-3") })
	s.synchronize(&api.Container{Id: "found", PodSandboxId: "sandbox", Name: "found", State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: filepath.Base(sliceA) + ":cri-containerd:found"}})
	require.Equal(t, "0-3", s.node.File(s.dir("found"), "cpuset.cpus"))
	s.reload()
	require.Equal(t, "0-3", s.node.File(s.dir("found"), "cpuset.cpus"))
}

// A drop-in that could not be rewritten gets the pool at the next refresh (I1).
func TestOldDropinIsCorrected(t *testing.T) {
	s := newSystemd(t)
	s.synchronize()
	s.run("pooled")
	dropin := filepath.Join(s.unitDir, filepath.Base(s.dir("pooled"))+".d", "90-dra.cpumem.conf")
	s.node.Change(func(n *contract.NodeState) { n.Shared.CPUs = contracttest.CPUs("0-7") })
	require.NoError(t, s.plugin.Apply(t.Context()))
	old, err := os.ReadFile(dropin)
	require.NoError(t, err)
	s.node.Change(func(n *contract.NodeState) { n.Shared.CPUs = contracttest.CPUs("0-3") })
	require.NoError(t, s.plugin.Apply(t.Context()))
	require.NoError(t, os.WriteFile(dropin, old, 0o600))
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.reload()
	require.Equal(t, "0-3", s.node.File(s.dir("pooled"), "cpuset.cpus"))
}

// quick makes systemd apply values before Set returns.
type quick struct {
	enforce.Units
	node *testnode.Node
}

func (q quick) Set(dir string, files map[string]string) error {
	if strings.HasSuffix(dir, ".slice") {
		for file, value := range files {
			q.node.SetFile(dir, file, value)
		}
	}
	return q.Units.Set(dir, files)
}

// Former values are kept before systemd writes, however soon that is.
func TestFormerValuesOfQuickSystemd(t *testing.T) {
	s := newSystemd(t)
	s.wrap = func(u enforce.Units) enforce.Units { return quick{u, s.node} }
	s.start()
	s.node.SetFile(kubepods, "memory.min", "12288")
	s.synchronize()
	env := s.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0")})
	s.protect("8192")
	s.run("claimed", env...)
	require.Equal(t, "8192", s.node.File(kubepods, "memory.min"))
	s.protect("")
	require.NoError(t, s.plugin.Apply(t.Context()))
	require.Equal(t, "12288", s.node.File(kubepods, "memory.min"))
}

func property(t *testing.T, file, value string) systemd.Property {
	properties, err := systemd.Properties(map[string]string{file: value})
	require.NoError(t, err)
	require.Len(t, properties, 1)
	return properties[0]
}

// settles waits until systemd has all values of the levels and the pod.
func (s *fakeSystemd) settles(value string) {
	s.t.Helper()
	for _, unit := range []string{kubepods, filepath.Base(burstable), filepath.Base(sliceA)} {
		s.receives(unit, "memory.min", value)
	}
}

// A value that this driver gave back is not another program's when a claim needs
// the file again.
func TestGivenBackIsNoDrift(t *testing.T) {
	s := newSystemd(t)
	s.synchronize()
	env := s.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0")})
	s.protect("8192")
	s.run("claimed", env...)
	s.settles("8192")
	s.protect("")
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.settles("0")
	s.protect("8192")
	require.NoError(t, s.plugin.Apply(t.Context()))
	require.Equal(t, "8192", s.node.File(kubepods, "memory.min"))
	require.Empty(t, s.announced.Overwritten)
	s.settles("8192")
	s.protect("")
	require.NoError(t, s.plugin.Apply(t.Context()))
	require.Equal(t, "0", s.node.File(kubepods, "memory.min"), "the former value was kept")
}

// A value that another program writes after the giving back is that program's: it
// stays at the next connection to a runtime.
func TestNothingIsSentAfterTheGivingBack(t *testing.T) {
	for name, between := range map[string]func(*fakeSystemd){
		"before the marks are removed": func(*fakeSystemd) {},
		"after the marks are removed":  func(s *fakeSystemd) { require.NoError(t, s.plugin.Apply(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) { nothingIsSent(t, between) })
	}
}

func nothingIsSent(t *testing.T, between func(*fakeSystemd)) {
	s := newSystemd(t)
	s.synchronize()
	env := s.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0")})
	s.protect("8192")
	c := s.run("claimed", env...)
	s.settles("8192")
	s.protect("")
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.settles("0")
	between(s)
	require.NoError(t, s.SetUnitProperties(t.Context(), kubepods, true, property(t, "memory.min", "16384")))
	s.node.SetFile(kubepods, "memory.min", "16384")
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.session = s.plugin.NewSession(func() string { return "v0.12.0" })
	_, err := s.session.Configure(t.Context(), "", "containerd", "v2.2.7")
	require.NoError(t, err)
	s.synchronize(c)
	s.node.Change(func(n *contract.NodeState) {
		pod := n.Pods[podA]
		pod.Cgroup = contract.Files{"memory.low": "4096"}
		n.Pods[podA] = pod
		n.Ancestors = map[string]contract.Files{"": pod.Cgroup}
	})
	require.NoError(t, s.plugin.Apply(t.Context()))
	s.receives(filepath.Base(sliceA), "memory.low", "4096")
	s.receives(kubepods, "memory.low", "4096")
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, "16384", s.properties[kubepods]["memory.min"])
}
