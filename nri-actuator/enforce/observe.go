// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// addPods adds the pods below kubepods that no known container leads to: an
// earlier actuator may have written to them. Only files with a former value
// are written: kubelet may be making the pod's cgroup, and the pod gets other values
// with its next container.
func (e *Enforcer) addPods(ctx context.Context, node contract.NodeState, levels map[string]string, desired map[string]tree.Cgroup) {
	for _, level := range slices.Sorted(maps.Values(levels)) {
		for _, dir := range e.below(ctx, level) {
			uid := cgroups.PodUID(dir)
			if _, known := desired[dir]; known || uid == "" {
				continue
			}
			pod := node.Pods[uid]
			want := contract.Files{contract.FileExclusive: pod.PartitionCPUs.String()}
			maps.Copy(want, pod.Files())
			state, err := e.Mount.Observe(dir)
			maps.DeleteFunc(want, func(file, content string) bool {
				_, written := state.Former[file]
				return err != nil || content == "" || !written
			})
			desired[dir] = tree.Cgroup{Kind: tree.Pod, Files: want}
		}
	}
}

// limit removes from desired what the scope does not concern.
func limit(desired map[string]tree.Cgroup, containers map[string]*Container, levels map[string]string, mayPartition bool, s scope) {
	concerned := make(map[string]bool)
	if s.above != nil {
		for _, dir := range levels {
			concerned[dir] = true
		}
		concerned[s.above.Cgroups.Pod] = true
		// Other pods may have CPUs that the kernel gives to one sibling only.
		for dir, c := range desired {
			concerned[dir] = concerned[dir] || mayPartition && c.Kind == tree.Pod
		}
	}
	if s.own != nil {
		concerned[s.own.Cgroups.Dir] = true
	}
	for dir, c := range desired {
		container := containers[dir]
		switch {
		case s.all && (container == nil || !container.waits() || container.trouble.refused != ""):
		case s.pool && c.Kind == tree.Pooled:
		case c.Kind == tree.Pooled && container != nil && s.takesFrom(container):
		case !concerned[dir]:
			delete(desired, dir)
		}
	}
}

// observe reads the cgroups. The partition files of containers are read only if
// containers may be partitions. The exclusive CPUs of pods and levels are always read,
// because another program can write CPUs there that a sibling needs.
func (e *Enforcer) observe(
	desired map[string]tree.Cgroup, containers map[string]*Container, mayPartition bool, r result,
) map[string]tree.State {
	observed := make(map[string]tree.State, len(desired))
	for _, dir := range slices.Sorted(maps.Keys(desired)) {
		want := desired[dir]
		var files []string
		switch {
		case want.Kind <= tree.Pod:
			files = []string{contract.FileExclusive}
		case mayPartition:
			files = []string{contract.FileExclusive, contract.FilePartition}
		}
		for file := range want.Files {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
		state, err := e.observeOne(dir, files, want, containers[dir])
		r.add(dir, err)
		if state.Files == nil {
			continue
		}
		if want.Kind > tree.Pod {
			// A program in the container may have made these.
			state.Former, state.Unusable = nil, nil
		}
		if c := containers[dir]; c != nil && c.Life.throughPod {
			// Its own files may have the wanted contents while the pod's have others.
			delete(state.Files, tree.FileCPUs)
			delete(state.Files, tree.FileMems)
		}
		// An earlier actuator may have ended before systemd had its values.
		unit := strings.HasSuffix(dir, ".slice")
		state.Behind = want.Kind <= tree.Pod && (!e.Units.UpToDate(dir) || unit && !e.looked[dir])
		observed[dir] = state
	}
	return observed
}

// observeOne observes a cgroup. The contents are the kernel's each time (I1). The marks of a
// container, which are half of the system calls, are read again only if other contents are
// wanted than those that were marked.
func (e *Enforcer) observeOne(dir string, files []string, want tree.Cgroup, c *Container) (tree.State, error) {
	if c != nil && c.Life.marked != nil && maps.Equal(c.Life.marked, want.Files) {
		if contents, err := e.Mount.KeptContents(dir, files...); err == nil {
			return tree.State{Files: contents, Written: c.Life.marked}, nil
		}
	}
	state, err := e.Mount.Observe(dir, files...)
	if c != nil {
		c.Life.seen = c.Life.seen || err == nil
		c.Life.marked = nil
		if err == nil && state.Unusable == nil && hasAll(state.Files, want.Files) && hasAll(state.Written, want.Files) {
			c.Life.marked = maps.Clone(want.Files)
		}
	}
	return state, err
}

// noteMarked notes that the cgroup of a pool container has the wanted contents and marks. c is nil for a pod or level.
func (c *Container) noteMarked(want tree.Cgroup) {
	if c != nil && want.Kind == tree.Pooled && !c.Life.throughPod {
		c.Life.marked = want.Files
	}
}

// hasAll reports whether the contents have all that is wanted.
func hasAll(contents, wanted contract.Files) bool {
	for file, content := range wanted {
		if has, exists := contents[file]; !exists || has != content {
			return false
		}
	}
	return true
}

// podLevels returns the directories of kubepods and of the QoS levels by level,
// nil without a known pod. Any pod of kubelet leads to them. Another client of the runtime may
// have pods below a kubepods cgroup of its own. A pod with claims is kubelet's. Without one, the kubepods cgroup
// right below the mount is taken, else any.
func (e *Enforcer) podLevels() (levels map[string]string) {
	var pods map[string]contract.PodState
	if node := e.last.Load(); node != nil {
		pods = node.Pods
	}
	for _, c := range e.containers {
		if _, listed := pods[c.References.PodUID]; listed {
			if levels, err := cgroups.Levels(c.Cgroups.Pod); err == nil {
				return levels
			}
		}
	}
	for _, c := range e.containers {
		found, err := cgroups.Levels(c.Cgroups.Pod)
		switch {
		case err != nil:
		case !strings.Contains(found[contract.LevelKubepods], "/"):
			return found
		case levels == nil:
			levels = found
		}
	}
	return levels
}

// levels is podLevels, with the usual directories if there is no known pod.
func (e *Enforcer) levels() map[string]string {
	if levels := e.podLevels(); levels != nil {
		return levels
	}
	dir, found := e.Mount.Kubepods()
	if !found {
		return nil
	}
	levels, err := cgroups.Levels(dir + "/pod")
	if err != nil {
		return nil
	}
	return levels
}

// node reads the node state. While claimed CPUs are in use, the last known state
// stands in for a file that cannot be read: without a pool, containers without a
// claim would run on these CPUs (I1), and refusing such containers would stop
// the node (I7).
func (e *Enforcer) node(ctx context.Context) (contract.NodeState, error) {
	node, err := e.Directory.Node()
	again := err != nil && e.stale != nil && err.Error() == e.stale.Error()
	if e.stale = err; err == nil {
		e.last.Store(&node)
		return node, nil
	}
	log := logs.From(ctx).Error
	switch {
	case again:
		log = logs.From(ctx).Debug // waiting containers are looked at ten times a second
	case errors.Is(err, fs.ErrNotExist):
		log = logs.From(ctx).Warn
	}
	if last := e.last.Load(); last != nil && e.claimsInUse() {
		log("using the last known node state", zap.Uint64("generation", last.Generation), zap.Error(err))
		return *last, nil
	}
	log("no node state", zap.Error(err))
	return contract.NodeState{}, err
}

// LacksNode reports whether containers refer to claims and the last read of the node state found no file.
func (e *Enforcer) LacksNode() bool {
	return errors.Is(e.stale, fs.ErrNotExist) && slices.ContainsFunc(e.containers, (*Container).NamesClaim)
}

// claimsInUse reports whether a container has claimed CPUs, or may have: its claim
// file may be unreadable.
func (e *Enforcer) claimsInUse() bool {
	for _, c := range e.containers {
		if c.NamesClaim() || !e.partitionCPUs(c).IsEmpty() {
			return true
		}
	}
	return false
}
