// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// decided returns the files of valid's decision, as the kernel shows them.
func decided() map[string]string {
	return map[string]string{
		"cpuset.cpus": "4-5,8", "cpuset.mems": "0-1",
		"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192",
		"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304", "hugetlb.1GB.max": "max", "hugetlb.1GB.rsvd.max": "max",
	}
}

// container is the container's cgroup.
const container = "kubepods/pod1/c1"

// write makes a cgroup and writes files, as an OCI runtime or the actuator does.
func write(n *testnode.Node, dir string, files map[string]string) {
	n.AddCgroup(dir)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		n.SetFile(dir, file, files[file])
	}
}

// hookOn returns the guard for a container of spec on the node.
func hookOn(n *testnode.Node, spec *specs.Spec) guard.Hook {
	h := hook(spec)
	h.OpenMount = n.OpenMount
	return h
}

// unadjusted returns the configuration of a container that was created while no
// actuator ran.
func unadjusted(t require.TestingT) *specs.Spec {
	spec := valid(t)
	spec.Linux.Resources = &specs.LinuxResources{Unified: map[string]string{"memory.min": "0"}}
	return spec
}

// A37, A80, I5: all values that the configuration lacks must be in the cgroup.
// Each error names file, value and decision.
func TestCgroup(t *testing.T) {
	const none = "no such file"
	for name, c := range map[string]struct {
		change func(files map[string]string)
		err    string
	}{
		"all there": {change: func(map[string]string) {}},
		"other cpus": {
			change: func(f map[string]string) { f["cpuset.cpus"] = "4-15" },
			err:    "cpuset.cpus is 4-15, the claim's decision is 4-5,8; check",
		},
		"no cpus":        {func(f map[string]string) { f["cpuset.cpus"] = "" }, "cpuset.cpus is unset, the claim's decision is 4-5,8"},
		"other mems":     {func(f map[string]string) { f["cpuset.mems"] = "0" }, "cpuset.mems is 0, the claim's decision is 0-1"},
		"kubelet's zero": {func(f map[string]string) { f["memory.min"] = "0" }, "memory.min is 0, the claim's decision is 4096"},
		"no limit":       {func(f map[string]string) { f["memory.max"] = "max" }, "memory.max is max, the claim's decision is 8192"},
		"hugepages zero": {
			change: func(f map[string]string) { f["hugetlb.2MB.max"] = "0" },
			err:    "hugetlb.2MB.max is 0, the claim's decision is 4194304",
		},
		"no reservation": {func(f map[string]string) { f["hugetlb.2MB.rsvd.max"] = none }, "has no file hugetlb.2MB.rsvd.max: enable"},
		"three differences": {
			change: func(f map[string]string) { f["cpuset.cpus"], f["cpuset.mems"], f["memory.max"] = "4", "0", "max" },
			err:    "memory.max is max, the claim's decision is 8192; check",
		},
		"nothing written": {func(f map[string]string) { clear(f) }, "; and 3 more"},
		"no controller": {
			change: func(f map[string]string) {
				for file := range f {
					f[file] = none
				}
			},
			err: "; and 7 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, files := testnode.New(t, t.TempDir()), decided()
			c.change(files)
			maps.DeleteFunc(files, func(file, content string) bool {
				if content == none {
					n.RemoveFile(container, file)
				}
				return content == none
			})
			write(n, container, files)
			h := hookOn(n, unadjusted(t))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := h.Check(ctx, strings.NewReader(state))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
			require.ErrorContains(t, err, "cgroup kubepods/pod1/c1 lacks what nri-actuator gives it")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// The container of a claim without CPUs uses the shared pool. If it was created
// while no actuator ran, it has all CPUs until it gets the pool's (I1).
func TestSharedPool(t *testing.T) {
	spec := unadjusted(t)
	spec.Process.Env = []string{entry(t, 0, contract.Decision{Mems: contracttest.NUMANodes("0")})}
	n := testnode.New(t, t.TempDir())
	h := hookOn(n, spec)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	write(n, container, map[string]string{"cpuset.mems": "0", "cpuset.cpus": ""})
	require.ErrorContains(t, h.Check(ctx, strings.NewReader(state)), "cpuset.cpus is unset, the claim's decision is the shared pool's CPUs")
	write(n, container, map[string]string{"cpuset.cpus": "0-3"})
	require.NoError(t, h.Check(ctx, strings.NewReader(state)))
}

// I5: a container does not run if the kernel refuses its partition, and the error
// has the kernel's reason. If the configuration asks for the partition, the guard
// checks the partition file only.
func TestPartition(t *testing.T) {
	isolated := contract.Decision{CPUs: contracttest.CPUs("4-7"), Partition: contract.PartitionIsolated,
		Requires: []string{contract.FeaturePartition}}
	asked := map[string]string{contract.FileExclusive: "4-7", contract.FilePartition: "isolated"}
	whole := func(partition string) map[string]string {
		return map[string]string{"cpuset.cpus": "4-7", contract.FileExclusive: "4-7", contract.FilePartition: partition}
	}
	for name, c := range map[string]struct {
		unified map[string]string
		// written are the files that are written in the container's cgroup, nil if it does not
		// exist. beside is the cpuset of another container of the pod, absent a file that the
		// kernel does not have.
		written        map[string]string
		beside, absent string
		err            string
	}{
		"granted": {unified: asked, written: whole("isolated")},
		"refused": {
			unified: asked, written: whole("isolated"), beside: "0-7",
			err: "isolated invalid (Cpu list in cpuset.cpus not exclusive), the claim's decision is isolated",
		},
		"of another kind": {
			unified: asked, written: whole("root"),
			err: "cpuset.cpus.partition is root, the claim's decision is isolated; find the cgroup that names the CPUs",
		},
		"nobody made it": {unified: asked, written: whole("member"), err: "cpuset.cpus.partition is member"},
		"an old kernel": {
			unified: asked, written: map[string]string{"cpuset.cpus": "4-7"}, absent: contract.FilePartition,
			err: "no file cpuset.cpus.partition",
		},
		"no cgroup":      {unified: asked, err: "the cgroup does not exist"},
		"made since":     {written: whole("isolated")},
		"not made since": {written: whole("member"), err: "cpuset.cpus.partition is member"},
		"other CPUs asked": {
			unified: map[string]string{contract.FileExclusive: "4", contract.FilePartition: "isolated"},
			written: map[string]string{"cpuset.cpus": "4-7", contract.FileExclusive: "4", contract.FilePartition: "isolated"},
			err:     "cpuset.cpus.exclusive is 4, the claim's decision is 4-7",
		},
		"not asked, no CPUs": {
			written: map[string]string{"cpuset.cpus": "", contract.FileExclusive: "4-7", contract.FilePartition: "isolated"},
			err:     "cpuset.cpus is unset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := testnode.New(t, t.TempDir())
			h := hookOn(n, &specs.Spec{
				Process: &specs.Process{Env: []string{entry(t, 0, isolated)}},
				Linux: &specs.Linux{CgroupsPath: "/" + container,
					Resources: &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4-7"}, Unified: c.unified}},
			})
			h.Features = []string{contract.FeaturePartition}
			for _, dir := range []string{"kubepods", "kubepods/pod1"} {
				write(n, dir, map[string]string{contract.FileExclusive: "4-7"})
			}
			if c.beside != "" {
				write(n, "kubepods/pod1/c2", map[string]string{"cpuset.cpus": c.beside})
			}
			if c.written != nil {
				write(n, container, c.written)
			}
			if c.absent != "" {
				n.RemoveFile(container, c.absent)
			}
			err := h.Check(t.Context(), strings.NewReader(state))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

// The guard finds the container's cgroup with the systemd driver, too: the scope,
// which the actuator writes. crun puts the process below the scope.
func TestScope(t *testing.T) {
	spec := unadjusted(t)
	spec.Linux.CgroupsPath = "kubepods-besteffort-pod1.slice:crio:c1"
	n := testnode.New(t, t.TempDir())
	write(n, container, nil)
	write(n, "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/crio-c1.scope", decided())
	require.NoError(t, hookOn(n, spec).Check(t.Context(), strings.NewReader(state)))
}

// A80: the guard waits until the actuator has written all files, one after the
// other, and lets the container start at the next look.
func TestWaits(t *testing.T) {
	n := testnode.New(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		go func() {
			time.Sleep(6 * time.Second)
			write(n, container, nil)
			time.Sleep(6 * time.Second)
			files := decided()
			delete(files, "memory.max")
			write(n, container, files)
			time.Sleep(6 * time.Second)
			write(n, container, decided())
		}()
		h := hookOn(n, unadjusted(t))
		require.NoError(t, h.Check(t.Context(), strings.NewReader(state)))
		require.InDelta(t, 18, time.Since(start).Seconds(), 0.2)
	})
}

// A80: after its patience, which is its hook's timeout less the margin, the guard
// reports how long it waited, the missing values and what to do. Of several
// guards of a container the shortest timeout counts.
func TestWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		hooks  *specs.Hooks
		waited string
	}{
		"as by default":      {hooks(30), "20s"},
		"as configured":      {hooks(75), "65s"},
		"the shorter":        {hooks(75, 25, 30), "15s"},
		"no wait":            {hooks(10), "0s"},
		"less than margin":   {hooks(3), "0s"},
		"not the frontend's": {hooks(), "0s"},
		"no hooks":           {nil, "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			n := testnode.New(t, t.TempDir())
			files := decided()
			files["memory.max"] = "max"
			write(n, container, files)
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				spec := unadjusted(t)
				spec.Hooks = c.hooks
				h := hookOn(n, spec)
				err := h.Check(t.Context(), strings.NewReader(state))
				want, parseErr := time.ParseDuration(c.waited)
				require.NoError(t, parseErr)
				require.Equal(t, want, time.Since(start))
				require.EqualError(t, err, "container c1: refused after "+want.String()+": cgroup kubepods/pod1/c1 lacks what nri-actuator gives it"+
					": memory.max is max, the claim's decision is 8192; check that nri-actuator runs on this node and what it logs;"+
					" the pod's restart policy decides whether the container is tried again")
			})
		})
	}
}

// A80: time before the wait counts, too. Otherwise the OCI runtime would kill the
// guard before the guard has reported the reason.
func TestWaitCountsFromTheStart(t *testing.T) {
	n := testnode.New(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := hookOn(n, unadjusted(t))
		config := h.Config
		h.Config = func(bundle string) ([]byte, error) {
			time.Sleep(8 * time.Second)
			return config(bundle)
		}
		require.ErrorContains(t, h.Check(t.Context(), strings.NewReader(state)), "the cgroup does not exist")
		require.Equal(t, 20*time.Second, time.Since(start))
	})
}

// A37: a mistake that waiting cannot repair is refused at once, whatever the
// cgroup has.
func TestRefusesAtOnce(t *testing.T) {
	policed := contract.Decision{Mems: contracttest.NUMANodes("0-1"),
		MemoryPolicy: &contract.MemoryPolicy{Mode: contract.ModeBind, Nodes: contracttest.NUMANodes("0")}}
	policed.Requires = policed.MemoryPolicy.Features()
	for name, c := range map[string]struct {
		env []string
		err string
	}{
		"memory policy": {[]string{entry(t, 0, policed)}, "memory policy is unset"},
		"broken value":  {[]string{"DRA_CPUMEM_" + strings.Repeat("0", 32) + "_0=4"}, "decision"},
		"other value": {
			env: []string{
				entry(t, 0, contract.Decision{CPUs: contracttest.CPUs("4")}),
				entry(t, 0, contract.Decision{CPUs: contracttest.CPUs("5")}),
			},
			err: "different values",
		},
		"no variable": {nil, "without a variable"},
		"newer contract": {[]string{strings.Replace(entry(t, 0, contract.Decision{CPUs: contracttest.CPUs("4")}),
			`"v1"`, `"v2"`, 1)}, `version "v2"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				spec := unadjusted(t)
				spec.Process.Env = c.env
				h := hook(spec)
				h.Features = []string{contract.FeatureMemoryPolicy}
				require.ErrorContains(t, h.Check(t.Context(), strings.NewReader(state)), c.err)
				require.Zero(t, time.Since(start))
			})
		})
	}
}
