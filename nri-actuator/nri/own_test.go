// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
)

// sets are the calls of Set and Correct for a cgroup, and the cgroups of other calls.
type sets struct {
	enforce.Units
	calls, corrected     []map[string]string
	again, forgot, stays []string
	dir                  string
}

func (s *sets) Correct(dir string, files map[string]string) error {
	if dir == s.dir {
		s.corrected = append(s.corrected, files)
	}
	return s.Units.Correct(dir, files)
}

func (s *sets) Forget(dir string) error {
	s.forgot = append(s.forgot, dir)
	return s.Units.Forget(dir)
}

func (s *sets) ForgetExcept(dirs []string) {
	s.stays = dirs
	s.Units.ForgetExcept(dirs)
}

func (s *sets) Again(dir string) {
	s.again = append(s.again, dir)
	s.Units.Again(dir)
}

func (s *sets) Set(dir string, files map[string]string) error {
	if dir == s.dir {
		s.calls = append(s.calls, files)
	}
	return s.Units.Set(dir, files)
}

// The actuator may not write to the root of its own cgroup namespace. Its pod gets the
// pool instead, once, and systemd follows. No other error is hidden this way.
func TestOwnContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	dir, pod := r.podDir(podB)+"/own", r.podDir(podB)
	r.node.AddCgroup(pod)
	r.node.AddCgroup(dir)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })

	options := r.plugin.Options.Options
	units := &sets{Units: options.Units, dir: pod}
	options.Mount, options.Units = r.node.MountIn(dir), units
	apply := func(change func(*enforce.Container)) error {
		c := &enforce.Container{
			ID: "own", Name: "ns/own", References: claims.Container{PodUID: podB},
			Cgroups: enforce.Cgroups{Dir: dir, Pod: pod}, Life: enforce.Life{Started: true},
		}
		change(c)
		e := enforce.New(options)
		e.Replace(t.Context(), []*enforce.Container{c})
		_, err := e.ApplyAll(t.Context())
		return err
	}
	for range 2 {
		require.NoError(t, apply(func(*enforce.Container) {}))
		require.Equal(t, "0-3", r.node.File(pod, "cpuset.cpus"))
		require.Empty(t, r.node.File(dir, "cpuset.cpus"))
		files := map[string]string{"cpuset.cpus": "0-3", "cpuset.mems": "0-1"}
		require.Equal(t, []map[string]string{files, files}, units.calls, "once for each file")
	}

	// A pod that has taken the actuator's rights away is no such container: its other containers keep their CPUs.
	denied := r.node.Fail(dir, "cpuset.cpus", syscall.EACCES)
	r.node.SetFile(pod, "cpuset.cpus", "0-15")
	require.ErrorIs(t, apply(func(*enforce.Container) {}), syscall.EACCES)
	require.Equal(t, "0-15", r.node.File(pod, "cpuset.cpus"))
	denied()

	require.ErrorIs(t, apply(func(c *enforce.Container) { c.Cgroups.Pod, c.Cgroups.PodErr = "", errors.New("unknown") }), syscall.EPERM)
	env := r.node.Prepare(podB, claimA, quad())
	require.ErrorIs(t, apply(func(c *enforce.Container) { c.References = c.References.WithEnv(env) }), syscall.EPERM)
	r.node.Unprepare(podB, claimA, "")
	back := r.node.Intercept(pod, "cpuset.cpus", func(write bool, do func() error) error {
		if write {
			return do()
		}
		return syscall.EIO
	})
	require.ErrorContains(t, apply(func(*enforce.Container) {}), "input/output error", "what the pod has is not known")
	back()
	r.node.RemoveFile(pod, "cpuset.cpus")
	require.ErrorContains(t, apply(func(*enforce.Container) {}), pod)
}

// A creation looks at the actuator's pod, whatever the actuator's own cgroup has (I1).
func TestCreationBesideOwnContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	dir, pod := r.podDir(podB)+"/own", r.podDir(podB)
	r.node.AddCgroup(dir)
	claimed := r.foreign("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	const pool = "0-3,8-15"
	r.node.SetFile(dir, "cpuset.cpus", pool)
	options := r.plugin.Options.Options
	options.Mount = r.node.MountIn(dir)
	e := enforce.New(options)
	e.Replace(t.Context(), []*enforce.Container{{
		ID: "own", Name: "ns/own", References: claims.Container{PodUID: podB},
		Cgroups: enforce.Cgroups{Dir: dir, Pod: pod}, Life: enforce.Life{Started: true},
	}})
	for range 2 {
		_, err := e.ApplyAll(t.Context())
		require.NoError(t, err)
	}
	r.node.SetFile(pod, "cpuset.cpus", "0-15")
	c := at(claimed, false)
	e.Add(t.Context(), c)
	_, err := e.Create(t.Context(), c, func(contract.Decision) error { return nil })
	require.NoError(t, err)
	require.Equal(t, pool, r.node.File(pod, "cpuset.cpus"))
}

// A level that refuses a write is an error, and no container's.
func TestLevelThatRefuses(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.foreign("c", podB)
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
	options := r.plugin.Options.Options
	options.Mount = r.node.MountIn("kubepods")
	e := enforce.New(options)
	e.Add(t.Context(), &enforce.Container{ID: "c", Cgroups: enforce.Cgroups{Dir: r.podDir(podB) + "/c", Pod: r.podDir(podB)}})
	_, err := e.ApplyAll(t.Context())
	require.ErrorIs(t, err, syscall.EPERM)
}

// Systemd gets the files of a cgroup once in a round, and once more those that another
// program has changed in a pod.
func TestSystemdGetsFilesOnce(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.node.AddCgroup(r.podDir(podB) + "/c")
	r.node.Change(func(s *contract.NodeState) {
		s.Pods[podB] = contract.PodState{Claims: []string{claimB}, Cgroup: contract.Files{"memory.min": "4096", "memory.low": "4096"}}
	})
	options := r.plugin.Options.Options
	// The first round also writes the pod: the second one finds that another program has
	// changed it.
	for _, of := range []struct {
		dir  string
		want map[string]string
	}{
		{r.podDir(podB) + "/c", map[string]string{"cpuset.cpus": "0-15", "cpuset.mems": "0-1"}},
		{r.podDir(podB), map[string]string{"memory.min": "4096", "memory.low": "4096"}},
	} {
		dir, want := of.dir, of.want
		units := &sets{Units: r.plugin.Options.Units, dir: dir}
		options.Units = units
		e := enforce.New(options)
		e.Add(t.Context(), &enforce.Container{
			ID: "c", Name: "c", References: claims.Container{PodUID: podB}, Life: enforce.Life{Started: true},
			Cgroups: enforce.Cgroups{Dir: r.podDir(podB) + "/c", Pod: r.podDir(podB)},
		})
		for _, file := range slices.Sorted(maps.Keys(want)) {
			r.node.SetFile(dir, file, map[bool]string{true: "0", false: "8192"}[strings.HasPrefix(file, "cpuset.")])
		}
		_, err := e.ApplyAll(t.Context())
		require.NoError(t, err)
		require.Equal(t, []map[string]string{want}, units.calls, dir)
		require.Equal(t, dir == r.podDir(podB), slices.Contains(units.again, dir), dir)
		require.Empty(t, units.forgot, dir)
		require.Contains(t, units.stays, dir)
	}
}

// Systemd is corrected about a container that has its values, and gets the values of a
// container before they are written. It gets nothing of a pod without values.
func TestSystemdGetsValuesOrIsCorrected(t *testing.T) {
	// One file has the wanted content and no mark, the other another content.
	for _, found := range []map[string]string{
		{"cpuset.cpus": "0", "cpuset.mems": "0-1"}, {"cpuset.cpus": "0-15", "cpuset.mems": "0"},
	} {
		r := newRuntime(t, t.TempDir())
		c := r.foreign("c", podB)
		for dir, want := range map[string][2]int{c.dir: {1, 1}, r.podDir(podB): {0, 0}} {
			for file, content := range found {
				r.node.SetFile(c.dir, file, content)
				r.node.SetAttribute(c.dir, "user."+contract.Vendor+".written."+file, "")
			}
			options := r.plugin.Options.Options
			units := &sets{Units: options.Units, dir: dir}
			options.Units = units
			e := enforce.New(options)
			e.Add(t.Context(), at(c, true))
			for range 2 {
				_, err := e.ApplyAll(t.Context())
				require.NoError(t, err)
			}
			require.Len(t, units.calls, want[0], "%s with %v", dir, found)
			require.Len(t, units.corrected, want[1], "%s with %v", dir, found)
		}
	}
}

// When a value of a pod ends, because it is given back or because another program wrote
// over it, systemd forgets the pod's values, and gets the values that still hold.
func TestSystemdGetsAgainWhatHolds(t *testing.T) {
	both, one := map[string]string{"memory.min": "4096", "memory.low": "4096"}, map[string]string{"memory.min": "4096"}
	for name, c := range map[string]struct {
		another bool
		low     string
		calls   []map[string]string
	}{
		"given back":    {false, "0", []map[string]string{one, {"memory.low": "0"}, one}},
		"another wrote": {true, "8192", []map[string]string{one, one}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			options := r.plugin.Options.Options
			units := &sets{Units: options.Units, dir: r.podDir(podB)}
			options.Units = units
			e := enforce.New(options)
			e.Add(t.Context(), at(r.foreign("c", podB), true))
			for _, files := range []map[string]string{both, one} {
				r.node.Change(func(s *contract.NodeState) { s.Pods[podB] = contract.PodState{Claims: []string{claimB}, Cgroup: files} })
				units.calls, units.forgot = nil, nil
				_, err := e.ApplyAll(t.Context())
				require.NoError(t, err)
				if c.another {
					r.node.SetFile(r.podDir(podB), "memory.low", "8192")
				}
			}
			require.Equal(t, []string{r.podDir(podB)}, units.forgot)
			require.Equal(t, c.calls, units.calls)
			require.Equal(t, c.low, r.node.File(r.podDir(podB), "memory.low"))
		})
	}
}

// A container that waits for a claim is forgotten with its pod, also if its cgroup had its decision: nothing reports the
// end of a container whose start failed.
func TestWaitingContainerIsForgottenWithItsPod(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	dir, pod := r.podDir(podA)+"/c", r.podDir(podA)
	r.node.AddCgroup(dir)
	e := enforce.New(r.plugin.Options.Options)
	e.Replace(t.Context(), []*enforce.Container{{
		ID: "c", Name: "ns/c", References: claims.Container{PodUID: podA}.WithEnv(r.node.Prepare(podA, claimA, quad())),
		Cgroups: enforce.Cgroups{Dir: dir, Pod: pod},
	}})
	for range 2 {
		require.True(t, e.ApplyWaiting(t.Context()))
	}
	require.Equal(t, "4-7", r.node.File(dir, "cpuset.cpus"))
	r.node.RemoveCgroup(dir)
	r.node.RemoveCgroup(pod)
	_, err := e.ApplyAll(t.Context())
	require.NoError(t, err)
	require.False(t, e.HasContainers())
}
