// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// observed returns a context whose logs are kept.
func observed(t *testing.T) (context.Context, *observer.ObservedLogs) {
	core, kept := observer.New(zapcore.DebugLevel)
	return logs.With(t.Context(), zap.New(core)), kept
}

// A node file that cannot be read is logged once, and so is the container that waits for it: not at each look.
func TestUnreadableNodeFileIsLoggedOnce(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	e := enforce.New(r.plugin.Options.Options)
	e.Add(t.Context(), at(c, false))
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	ctx, kept := observed(t)
	for range 3 {
		require.True(t, e.ApplyWaiting(ctx))
	}
	require.Len(t, kept.Filter(func(l observer.LoggedEntry) bool { return l.Level > zapcore.DebugLevel }).All(), 2)
}

// A repair is a warning when it is new, and names the container or the cgroup. While
// the same content comes back, only debug logs have it. When it has stayed away, it is new.
func TestRepairIsAWarningOnce(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
	require.NoError(t, r.plugin.Apply(t.Context()))
	for _, at := range []struct{ dir, file, name, other string }{
		{c.dir, "cpuset.cpus", "ns/pod-0001/c", "1"},
		{"kubepods", "memory.min", "kubepods", "8192"},
	} {
		repair := func(content string) zapcore.Level {
			t.Helper()
			ctx, kept := observed(t)
			want := r.node.File(at.dir, at.file)
			r.node.SetFile(at.dir, at.file, content)
			require.NoError(t, r.plugin.Apply(ctx))
			said := kept.FilterMessage("repaired what another program wrote").All()
			require.Len(t, said, 1)
			require.Equal(t, map[string]any{"cgroup": at.name, "file": at.file, "found": content, "value": want}, said[0].ContextMap())
			return said[0].Level
		}
		require.Equal(t, zapcore.WarnLevel, repair("0"))
		require.Equal(t, zapcore.DebugLevel, repair("0"))
		require.Equal(t, zapcore.WarnLevel, repair(at.other))
		if at.dir == "kubepods" {
			r.later(time.Hour)
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, zapcore.WarnLevel, repair(at.other))
		}
	}
}

// An error of a container, a pod or a level is logged with its place.
func TestErrorsOfApplyAreLogged(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podB)
	for _, at := range []struct {
		dir, file, want string
		change          func(*contract.NodeState)
	}{
		{c.dir, "cpuset.cpus", "container ns/pod-0002/c", func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") }},
		{"kubepods", "memory.min", "cgroup kubepods: memory.min", func(s *contract.NodeState) {
			s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}}
		}},
	} {
		ctx, kept := observed(t)
		back := r.node.Fail(at.dir, at.file, syscall.EIO)
		r.node.Change(at.change)
		require.Error(t, r.plugin.Apply(ctx))
		said := kept.FilterMessage("node state not applied").FilterLevelExact(zapcore.ErrorLevel).All()
		require.Len(t, said, 1)
		require.Contains(t, said[0].ContextMap()["error"], at.want)
		back()
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
}

// A node that cannot make partitions tries and says it once.
func TestNoPartitionsIsLoggedOnce(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.node.AddCgroup("outer/kubepods/burstable/pod" + podA)
	pod := sandbox(podA)
	pod.Linux.CgroupParent = "/outer" + pod.Linux.CgroupParent
	ctx, kept := observed(t)
	_, err := r.session.Synchronize(ctx, []*api.PodSandbox{pod}, []*api.Container{{
		Id: "c", PodSandboxId: pod.Id, State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"},
	}})
	require.NoError(t, err)
	require.NoError(t, r.plugin.Apply(ctx))
	require.Equal(t, 1, kept.FilterMessage("no cpuset partitions on this node").Len())
}

// deaf makes every call of systemd fail.
type deaf struct{ enforce.Units }

var errDeaf = errors.New("no answer")

func (deaf) Set(string, map[string]string) error     { return errDeaf }
func (deaf) Correct(string, map[string]string) error { return errDeaf }
func (deaf) Forget(string) error                     { return errDeaf }
func (deaf) Reset([]string) error                    { return errDeaf }

// What systemd does not get is logged, and stops nothing.
func TestSystemdsErrorsAreLogged(t *testing.T) {
	s := newSystemd(t)
	s.wrap = func(u enforce.Units) enforce.Units { return deaf{u} }
	s.start()
	ctx, kept := observed(t)
	c := s.run("c")
	_, err := s.session.Synchronize(ctx, []*api.PodSandbox{s.pod()}, []*api.Container{c})
	require.NoError(t, err)
	s.node.Change(func(n *contract.NodeState) { n.Shared.CPUs = contracttest.CPUs("0-3") })
	require.NoError(t, s.plugin.Apply(ctx))
	require.Equal(t, "0-3", s.node.File(s.dir("c"), "cpuset.cpus"))
	s.node.RemoveCgroup(s.dir("c"))
	require.NoError(t, s.session.RemoveContainer(ctx, s.pod(), c))
	for _, message := range []string{"old drop-ins stay", "systemd does not follow", "drop-in stays"} {
		said := kept.FilterMessage(message).All()
		require.NotEmpty(t, said, message)
		require.Contains(t, said[0].ContextMap()["error"], "no answer")
	}
}

// A level in which no cgroups can be looked for is logged, and the others are looked at.
func TestLevelThatCannotBeRead(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("c", podB)
	r.plugin.Disconnected(t.Context(), "gone")
	found := r.foreign("found", podC)
	r.node.Fail("kubepods/besteffort", "", syscall.EIO)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	ctx, kept := observed(t)
	_ = r.plugin.Refresh(ctx)
	require.NotZero(t, kept.FilterMessage("cgroups not looked for").Len())
	require.Equal(t, "0-3", r.cpus(found))
}

// Another pod that keeps partition CPUs keeps no container from being created. It is
// logged.
func TestPodThatKeepsCPUsIsLogged(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	require.NoError(t, r.remove(r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)))
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.Fail(r.podDir(podA), contract.FileExclusive, syscall.EIO)
	env := r.node.Prepare(podB, claimB, partitioned("8-9", contract.PartitionRoot))
	pod := sandbox(podB)
	r.addPod(podB)
	ctx, kept := observed(t)
	_, _, err := r.session.CreateContainer(ctx, pod, &api.Container{
		Id: "d", PodSandboxId: pod.Id, Name: "d", Env: env,
		Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/d"},
	})
	require.NoError(t, err)
	said := kept.FilterMessage("the values of another pod were not written: it may keep partition CPUs that this container needs").All()
	require.NotEmpty(t, said)
	require.Contains(t, said[0].ContextMap()["error"], r.podDir(podA))
}

// A node file that does not exist yet is a warning, a broken one is an error.
func TestNoNodeStateIsLogged(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	for _, want := range []zapcore.Level{zapcore.WarnLevel, zapcore.ErrorLevel} {
		ctx, kept := observed(t)
		if want == zapcore.WarnLevel {
			require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
		} else {
			r.node.WriteFile(contract.NodeFile, []byte("{"))
		}
		require.Error(t, r.plugin.Apply(ctx))
		said := kept.FilterMessage("no node state").All()
		require.NotEmpty(t, said)
		require.Equal(t, want, said[0].Level)
	}
}

// A repaired partition is news again in a container that came later to the same cgroup.
func TestRepairOfAnotherContainerIsNews(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	for range 2 {
		c := r.run("c", podA, env...)
		for _, level := range []zapcore.Level{zapcore.WarnLevel, zapcore.DebugLevel} {
			ctx, kept := observed(t)
			r.node.SetFile(c.dir, contract.FilePartition, "member")
			require.NoError(t, r.plugin.Apply(ctx))
			said := kept.FilterMessage("repaired what another program wrote").All()
			require.Len(t, said, 1)
			require.Equal(t, level, said[0].Level)
		}
		require.NoError(t, r.remove(c))
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
}
