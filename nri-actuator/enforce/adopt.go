// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Adopt takes in the unknown containers below kubepods, until the runtime's list
// replaces them. Containers that are created while no runtime is connected run
// on all CPUs. A pod's author can cause this: the runtime drops the plugin at
// each connection if the list of containers does not fit into its messages,
// because their environments are too large. A container that no claim backs
// belongs to the shared pool (I1).
func (e *Enforcer) Adopt(ctx context.Context) {
	known := make(map[string]bool, len(e.containers))
	for _, c := range e.containers {
		known[c.Cgroups.Dir] = true
	}
	found := 0
	for _, level := range slices.Sorted(maps.Values(e.levels())) {
		for _, pod := range e.below(ctx, level) {
			uid := cgroups.PodUID(pod)
			if uid == "" {
				continue
			}
			for _, dir := range e.below(ctx, pod) {
				if !known[dir] {
					e.containers = e.containers.with(e.adopted(dir, pod, uid))
					found++
				}
			}
		}
	}
	if found > 0 {
		logs.From(ctx).Info("containers found without the runtime", zap.Int("containers", found))
	}
}

func (e *Enforcer) adopted(dir, pod, uid string) *Container {
	c := &Container{
		ID: dir, Name: "cgroup " + contract.Excerpt(dir, MaxName), References: claims.Container{PodUID: uid},
		Cgroups: Cgroups{Dir: dir, Pod: pod}, Life: Life{Started: true, adopted: true, seen: true},
	}
	if cpus, err := e.Mount.ReadCPUs(dir, tree.FileCPUs); err == nil {
		c.Pinned = cpus
	}
	return c
}

// MaxName bounds a container's name in logs and errors, in bytes: namespaces
// have at most 63, pods 253, containers 63.
const MaxName = 400

// below returns the directories of the cgroups directly below dir.
func (e *Enforcer) below(ctx context.Context, dir string) []string {
	names, err := e.Mount.Children(dir)
	if err != nil && !errors.Is(err, cgroups.ErrGone) {
		logs.From(ctx).Warn("cgroups not looked for", zap.Error(err))
	}
	dirs := make([]string, len(names))
	for i, name := range names {
		dirs[i] = path.Join(dir, name)
	}
	return dirs
}
