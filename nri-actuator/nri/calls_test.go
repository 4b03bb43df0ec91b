// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

var (
	podA, podB, podC = testnode.UID(1), testnode.UID(2), testnode.UID(3)
	claimA, claimB   = testnode.UID(11), testnode.UID(12)
)

func quad() contract.Decision {
	return contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0"),
		Hugepages: map[string]contract.Limit{"2Mi": 4 << 20},
		Memory:    &contract.Memory{Min: 1 << 30, Low: 0, High: contract.Max, Max: 1 << 30}}
}

// TestCreate covers A30, A31 and A32.
func TestCreate(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	require.Equal(t, "0-15", r.cpus(pool), "A31")

	env := r.node.Prepare(podA, claimA, quad(), contract.Decision{CPUs: contracttest.CPUs("8"), Mems: contracttest.NUMANodes("1")})
	exclusive, err := r.create("exclusive", podA, env...)
	require.NoError(t, err)
	require.Equal(t, "0-3,9-15", r.cpus(pool), "A32: moved before the exclusive container is there")
	require.NoError(t, r.start(exclusive))
	require.Equal(t, map[string]string{
		"cpuset.cpus": "4-8", "cpuset.mems": "0-1",
		"memory.min": "1073741824", "memory.low": "0", "memory.high": "max", "memory.max": "1073741824",
		"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304",
	}, exclusive.spec, "A30")
	one := r.run("one", podA, env[1])
	require.Equal(t, "8", r.cpus(one), "A30: one request of the claim")

	memory := r.node.Prepare(podC, claimB, contract.Decision{Mems: contracttest.NUMANodes("1"), Memory: quad().Memory})
	c := r.run("memory", podC, memory...)
	require.Equal(t, "0-3,9-15", r.cpus(c), "A30: a claim without CPUs draws on the pool")
	require.Equal(t, "1", r.node.File(c.dir, "cpuset.mems"))

	require.NoError(t, r.remove(exclusive))
	require.NoError(t, r.remove(one))
	r.node.Unprepare(podA, claimA, "4-8")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-15", r.cpus(pool), "A32: the pool grows while it runs")
	require.Equal(t, "0-15", r.cpus(c))
	require.Equal(t, r.node.State.Generation, r.announced.Generation)
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"), "moves are no repairs")
	require.EqualValues(t, 16, r.metric("cpumem_actuator_pool_cpus"))
}

// TestCreateRefused covers I5 and I6 at the hook: no container is created, and
// the message says what failed and why.
func TestCreateRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*runtime) []string
		err     string
	}{
		"forged": {func(r *runtime) []string {
			e, err := contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("0-15")}.Env(contract.Key{ClaimUID: claimB})
			require.NoError(r.t, err)
			return []string{e}
		}, "cpumem: container ns/pod-0001/c: pod " + podA},
		"claim of another pod": {func(r *runtime) []string { return r.node.Prepare(podB, claimA, quad()) }, "not prepared for this pod"},
		"no node state": {func(r *runtime) []string {
			env := r.node.Prepare(podA, claimA, quad())
			require.NoError(r.t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
			return env
		}, "waits until dra-frontend has written the node file"},
		"broken node state": {func(r *runtime) []string {
			env := r.node.Prepare(podA, claimA, quad())
			r.node.WriteFile(contract.NodeFile, []byte("{}"))
			return env
		}, contract.NodeFile},
		"CPUs still in the pool": {func(r *runtime) []string {
			env := r.node.Prepare(podA, claimA, quad())
			r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-15") })
			return env
		}, "its CPUs 4-7 are also in the shared pool 0-15"},
		"pool container that cannot be moved": {func(r *runtime) []string {
			pool := r.run("pool", podB)
			r.node.RemoveFile(pool.dir, "cpuset.cpus")
			return r.node.Prepare(podA, claimA, quad())
		}, "container ns/pod-0002/pool (id pool) could not be moved off claimed CPUs"},
		"pool container in an unknown place": {func(r *runtime) []string {
			pool, err := r.create("pool", podB)
			require.NoError(r.t, err)
			pool.api.Linux.CgroupsPath = "../escape"
			require.NoError(r.t, r.synchronize())
			return r.node.Prepare(podA, claimA, quad())
		}, "../escape"},
		"pod values that cannot be written": {func(r *runtime) []string {
			env := r.node.Prepare(podA, claimA, quad())
			r.node.Change(func(s *contract.NodeState) {
				s.Pods[podA] = contract.PodState{Claims: []string{claimA}, Cgroup: contract.Files{"hugetlb.64KB.max": "65536"}}
			})
			return env
		}, "hugetlb.64KB.max"},
		"ancestors that cannot be written": {func(r *runtime) []string {
			env := r.node.Prepare(podA, claimA, quad())
			r.node.Change(func(s *contract.NodeState) { s.Ancestors[""] = contract.Files{"memory.min": "4096"} })
			r.node.RemoveFile("kubepods", "memory.min")
			return env
		}, "memory.min"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			_, err := r.create("c", podA, c.prepare(r)...)
			require.ErrorContains(t, err, c.err)
			require.EqualValues(t, 1, r.metric("cpumem_actuator_call_seconds", "CreateContainer", "failed"))
		})
	}
}

// TestClaimlessAlwaysRuns covers I7: no state of the files keeps a container
// without a claim from running.
func TestClaimlessAlwaysRuns(t *testing.T) {
	for name, breakIt := range map[string]func(*runtime){
		"node file removed": func(r *runtime) { require.NoError(r.t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile))) },
		"node file broken":  func(r *runtime) { r.node.WriteFile(contract.NodeFile, []byte("{")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			breakIt(r)
			c := r.run("c", podB)
			require.NotContains(t, c.spec, "cpuset.cpus", "untouched")
			require.NoError(t, r.update(c))
			require.Error(t, r.plugin.Apply(t.Context()))
			require.Error(t, r.plugin.Ready())

			r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "0-3", r.cpus(c), "taken into the pool when there is one")
			require.NoError(t, r.plugin.Ready())
			require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
		})
		t.Run(name+" while exclusive CPUs are in use", func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			r.run("exclusive", podA, r.node.Prepare(podA, claimA, quad())...)
			breakIt(r)
			c := r.run("c", podB)
			require.Equal(t, "0-3,8-15", r.cpus(c), "I1")
		})
	}
}

// TestStart covers changes between a creation and its start, and containers
// that were created while no actuator was there.
func TestStart(t *testing.T) {
	t.Run("pool shrank", func(t *testing.T) {
		r := newRuntime(t, t.TempDir())
		c, err := r.create("c", podB)
		require.NoError(t, err)
		r.run("exclusive", podA, r.node.Prepare(podA, claimA, quad())...)
		require.NoError(t, r.start(c))
		require.Equal(t, "0-3,8-15", r.cpus(c))
	})
	t.Run("created without an actuator", func(t *testing.T) {
		r := newRuntime(t, t.TempDir())
		env := r.node.Prepare(podA, claimA, quad())
		c, err := r.create("c", podA, env...)
		require.NoError(t, err)
		c.spec = map[string]string{"cpuset.cpus": "0-15"}
		r.containers = map[string]*container{}
		r.connect()
		require.NoError(t, r.start(c))
		require.Equal(t, "4-7", r.cpus(c))
		require.Equal(t, "1073741824", r.node.File(c.dir, "memory.min"))
		require.Equal(t, "4194304", r.node.File(c.dir, "hugetlb.2MB.max"))
	})
	t.Run("forged and created without an actuator", func(t *testing.T) {
		r := newRuntime(t, t.TempDir())
		c, err := r.create("c", podB)
		require.NoError(t, err)
		c.api.Env = r.node.Prepare(podA, claimA, quad())
		r.containers = map[string]*container{}
		r.connect()
		require.ErrorContains(t, r.start(c), "not prepared for this pod")
	})
	t.Run("without a cgroup here", func(t *testing.T) {
		r := newRuntime(t, t.TempDir())
		c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
		require.NoError(t, err)
		require.NoError(t, r.session.StartContainer(t.Context(), c.pod, c.api))
	})
	t.Run("claimless that cannot be written", func(t *testing.T) {
		r := newRuntime(t, t.TempDir())
		c := r.run("c", podB)
		c.api.Linux.CgroupsPath = "../escape"
		require.NoError(t, r.synchronize())
		require.NoError(t, r.session.StartContainer(t.Context(), c.pod, c.api), "I7")
		c.api.Linux.CgroupsPath = "/" + c.dir
		require.NoError(t, r.synchronize())
		r.run("exclusive", podA, r.node.Prepare(podA, claimA, quad())...)
		c.api.Linux.CgroupsPath = "../escape"
		require.NoError(t, r.synchronize())
		require.Error(t, r.session.StartContainer(t.Context(), c.pod, c.api), "I1: it may run on exclusive CPUs")
	})
}

// TestSynchronize covers A34: changes that were made while no actuator was
// there are repaired and counted, and a bad container stops no other one.
func TestSynchronize(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	exclusive := r.run("exclusive", podA, r.node.Prepare(podA, claimA, quad())...)
	pool := r.run("pool", podB)
	forged := r.run("forged", podC)
	forged.api.Env = exclusive.api.Env
	broken := r.run("a-broken", podB)
	broken.api.Linux.CgroupsPath = ""
	r.node.SetFile(exclusive.dir, "cpuset.cpus", "0-15")
	r.node.SetFile(exclusive.dir, "memory.min", "0")
	r.node.SetFile(pool.dir, "cpuset.cpus", "4")
	r.node.SetFile(forged.dir, "cpuset.cpus", "4-7")
	r.node.SetFile(forged.dir, "memory.low", "8192")
	r.connect()
	require.Equal(t, "4-7", r.cpus(exclusive))
	require.Equal(t, "1073741824", r.node.File(exclusive.dir, "memory.min"))
	require.Equal(t, "0-3,8-15", r.cpus(pool))
	require.Equal(t, "0-3,8-15", r.cpus(forged), "I1")
	require.Equal(t, "8192", r.node.File(forged.dir, "memory.low"), "otherwise untouched")
	require.EqualValues(t, 3, r.metric("cpumem_actuator_repaired_total", "cpuset.cpus"),
		"the next actuator knows what the former one wrote")
	require.EqualValues(t, 1, r.metric("cpumem_actuator_repaired_total", "memory.min"))
	r.node.Change(func(*contract.NodeState) {})
	_ = r.plugin.Apply(t.Context())
	require.EqualValues(t, 1, r.metric("cpumem_actuator_refused_total", "notlisted"), "the same refusal, at another generation")
	require.True(t, r.announced.Connected)
	require.Equal(t, "containerd", r.announced.Runtime)
	require.EqualValues(t, 1, r.metric("cpumem_actuator_connected"))

	r.node.SetFile(exclusive.dir, "cpuset.cpus", "0")
	_ = r.plugin.Apply(t.Context())
	require.Equal(t, "4-7", r.cpus(exclusive), "repaired at the next refresh")
	require.EqualValues(t, 4, r.metric("cpumem_actuator_repaired_total", "cpuset.cpus"))
	require.EqualValues(t, 1, r.metric("cpumem_actuator_refused_total"), "counted once")

	r.plugin.Disconnected(t.Context(), "the runtime ended")
	require.Equal(t, "the runtime ended", r.announced.Disconnected)
	require.False(t, r.announced.Connected)
	require.ErrorContains(t, r.plugin.Ready(), "not connected")
	require.Error(t, r.synchronize(), "a lost connection's late call")
	require.False(t, r.announced.Connected)
	_, err := r.create("late", podB)
	require.Error(t, err)
}

// TestSynchronizeMany covers A34: the runtime's one call sets 500 containers
// right, and four times as many containers need four times the work.
// BenchmarkSynchronize measures the time.
func TestSynchronizeMany(t *testing.T) {
	work := func(containers int) uint64 {
		r := newRuntime(t, t.TempDir())
		for i := range containers {
			c := r.run(fmt.Sprintf("c%03d", i), testnode.UID(1000+i/5))
			r.node.SetFile(c.dir, "cpuset.cpus", "3")
		}
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		r.connect()
		goruntime.ReadMemStats(&after)
		for _, c := range r.containers {
			require.Equal(t, "0-15", r.cpus(c))
		}
		return after.Mallocs - before.Mallocs
	}
	few, many := work(125), work(500)
	t.Log(few, many)
	require.Less(t, many, 6*few, "allocations")
}

// TestUpdate covers A35: the decision's values are in each update, whichever
// program asks for it.
func TestUpdate(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	exclusive := r.run("exclusive", podA, r.node.Prepare(podA, claimA, quad())...)
	for _, c := range []*container{pool, exclusive} {
		require.NoError(t, r.update(c))
	}
	require.Equal(t, "0-3,8-15", r.cpus(pool), "not the values of its creation")
	require.Equal(t, "4-7", r.cpus(exclusive))
	require.Equal(t, "1073741824", r.node.File(exclusive.dir, "memory.min"))
	require.Equal(t, "4194304", r.node.File(exclusive.dir, "hugetlb.2MB.max"))

	updates, err := r.session.UpdateContainer(t.Context(), pool.pod, pool.api, nil)
	require.NoError(t, err)
	r.run("second", podC, r.node.Prepare(podC, claimB, contract.Decision{CPUs: contracttest.CPUs("8")})...)
	r.take(pool, updates[0].GetLinux().GetResources())
	r.writeSpec(pool)
	require.NoError(t, r.session.PostUpdateContainer(t.Context(), pool.pod, pool.api))
	require.Equal(t, "0-3,9-15", r.cpus(pool), "the pool shrank while the runtime wrote")

	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.ClaimFile(claimA))))
	require.ErrorContains(t, r.update(exclusive), "without a file")
}

// TestClaimFileLost covers A36: without its claim file a container has no
// backing. Its memory stays, and its CPUs are the pool's.
func TestClaimFileLost(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c), "unreadable is not gone (I4)")
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.ClaimFile(claimA))))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.cpus(c))
	require.Equal(t, "1073741824", r.node.File(c.dir, "memory.min"))
}

// TestDirectoryLost checks that removing the whole directory takes no claim
// back: the container keeps its CPUs, and containers without a claim keep off
// them (I1, I5).
func TestDirectoryLost(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	for _, name := range []string{contract.ClaimFile(claimA), contract.NodeFile} {
		require.NoError(t, os.Remove(filepath.Join(r.node.CDI, name)))
	}
	for range 2 {
		require.Error(t, r.plugin.Apply(t.Context()), "it is said")
		require.Equal(t, "4-7", r.cpus(c))
	}
	require.Equal(t, "0-3,8-15", r.cpus(r.run("plain", podB)))
}

// TestRestartOfContainer covers A38: a restarted container gets the same CPUs,
// and the pool is not touched.
func TestRestartOfContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	env := r.node.Prepare(podA, claimA, quad())
	first := r.run("first", podA, env...)
	r.node.Intercept(pool.dir, "cpuset.cpus", func(write bool, do func() error) error {
		require.False(t, write)
		return do()
	})
	require.NoError(t, r.remove(first))
	second := r.run("second", podA, env...)
	require.Equal(t, "4-7", r.cpus(second))
}

// TestLateEvents covers A39: events for ids that are gone or unknown.
func TestLateEvents(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podB)
	require.NoError(t, r.remove(c))
	for range 2 {
		require.NoError(t, r.remove(c))
		require.NoError(t, r.session.PostUpdateContainer(t.Context(), c.pod, c.api))
		require.NoError(t, r.session.RemoveContainer(t.Context(), nil, c.api))
		_, err := r.session.StopContainer(t.Context(), nil, &api.Container{Id: "unknown"})
		require.NoError(t, err)
	}
	require.NoError(t, r.plugin.Apply(t.Context()))

	t.Run("reported as stopped before it has ended", func(t *testing.T) {
		slow := r.run("slow", podB)
		_, err := r.session.StopContainer(t.Context(), slow.pod, slow.api)
		require.NoError(t, err)
		r.run("exclusive", podA, r.node.Prepare(podA, claimA, quad())...)
		require.Equal(t, "0-3,8-15", r.cpus(slow), "I1 until its cgroup is gone")
		r.node.RemoveCgroup(slow.dir)
		require.NoError(t, r.plugin.Apply(t.Context()))
	})
}
