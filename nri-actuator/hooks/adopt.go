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
// pod's author can bring that about: a runtime that cannot put its list of
// containers into messages, because their environments are too large, gives the
// plugin up at each connection. So the cgroups below kubepods are looked at then:
// what no claim backs belongs to the shared pool (I1).

// adopt takes in the containers below kubepods that are not known. They are
// known until the runtime's list replaces them.
func (p *Plugin) adopt(ctx context.Context) {
	if p.levels == nil {
		dir, ok := p.Tree.Kubepods()
		if !ok {
			return
		}
		// Any pod leads to the levels.
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
	if cpus, err := p.Tree.Read(dir, "cpuset.cpus"); err == nil {
		c.pinned = cpus
	}
	// Or what is above a partition would lose its CPUs before it has ended.
	p.keepHolds(c)
	return c
}

// below returns the directories of the cgroups right below dir.
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

// backed reports whether an adopted container may stay where it is: it is a
// partition, or on CPUs of its pod's pool and claims only. So it is where a
// claim's file cannot be read (I4).
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
	has, err := p.Tree.Read(c.dir, "cpuset.cpus")
	if err != nil || has == "" {
		return err != nil
	}
	all := contract.Combine(contract.Decision{CPUs: node.SharedOf(c.ask.PodUID).CPUs}, contract.Decision{CPUs: claimed})
	_, out, err := share(has, all.CPUs)
	return err == nil && len(out) == 0
}
