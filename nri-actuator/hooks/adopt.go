// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"path"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/decisions"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// Containers that are created while no runtime is connected run on all CPUs. A
// pod's author can cause this: the runtime drops the plugin at each connection
// if the list of containers does not fit into its messages, because their
// environments are too large. So the actuator searches the cgroups below
// kubepods then: a container that no claim backs belongs to the shared pool
// (I1).

// adopt takes in the unknown containers below kubepods, until the runtime's
// list replaces them.
func (p *Plugin) adopt(ctx context.Context) {
	if p.levels == nil {
		dir, ok := p.Tree.Kubepods()
		if !ok {
			return
		}
		// Any pod's directory leads to the levels.
		p.levels, _ = cgroups.Levels(dir + "/pod")
	}
	known := make(map[string]bool, len(p.containers))
	for _, c := range p.containers {
		known[c.dir] = true
	}
	found := 0
	for _, level := range levels {
		for _, podDir := range p.below(ctx, p.levels[level]) {
			uid := cgroups.PodUID(podDir)
			if uid == "" {
				continue
			}
			for _, dir := range p.below(ctx, podDir) {
				if known[dir] {
					continue
				}
				p.containers[dir] = p.adopted(dir, podDir, uid)
				found++
			}
		}
	}
	if found > 0 {
		logs.From(ctx).Info("containers found without the runtime", zap.Int("containers", found))
	}
}

func (p *Plugin) adopted(dir, podDir, uid string) *container {
	c := &container{
		id: dir, name: "cgroup " + contract.Excerpt(dir, maxName), ask: decisions.Container{PodUID: uid},
		dir: dir, podDir: podDir, started: true, seen: true, adopted: true, overwritten: make(map[string]string),
	}
	if cpus, err := p.Tree.ReadCPUs(dir, "cpuset.cpus"); err == nil {
		c.pinned = cpus
	}
	// The cgroups above a partition must keep its CPUs until the partition has
	// ended.
	p.keepHolds(c)
	return c
}

// below returns the directories of the cgroups directly below dir.
func (p *Plugin) below(ctx context.Context, dir string) []string {
	names, err := p.Tree.Children(dir)
	if err != nil && !errors.Is(err, cgroups.ErrGone) {
		logs.From(ctx).Warn("containers not looked for", zap.Error(err))
	}
	dirs := make([]string, len(names))
	for i, name := range names {
		dirs[i] = path.Join(dir, name)
	}
	return dirs
}

// backed reports whether a container may stay where it is: it is a partition,
// or its CPUs are all in its pod's part of the pool or in its pod's claims. It
// also stays if a claim file cannot be read (I4).
func (p *Plugin) backed(c *container, node contract.NodeState) bool {
	if len(node.Pods[c.ask.PodUID].Claims) == 0 {
		return false
	}
	if p.keepHolds(c) {
		return true
	}
	claimed, err := p.Directory.CPUsOf(node, c.ask.PodUID)
	if err != nil {
		return true
	}
	has, err := p.Tree.ReadCPUs(c.dir, "cpuset.cpus")
	if err != nil || has.IsEmpty() {
		return err != nil
	}
	return has.IsSubsetOf(node.SharedOf(c.ask.PodUID).CPUs.Union(claimed))
}
