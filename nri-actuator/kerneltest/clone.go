// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"maps"
	"slices"
)

// Clone returns a kernel in the same state, which shares nothing with k.
func (k *Kernel) Clone() *Kernel {
	next := *k
	copies := make(map[*cgroup]*cgroup)
	next.root = k.root.clone(nil, copies)
	next.remotes = slices.Clone(k.remotes)
	for i, c := range k.remotes {
		next.remotes[i] = copies[c]
	}
	return &next
}

func (c *cgroup) clone(parent *cgroup, copies map[*cgroup]*cgroup) *cgroup {
	next := *c
	copies[c] = &next
	next.parent = parent
	next.enabled, next.values, next.attributes = maps.Clone(c.enabled), maps.Clone(c.values), maps.Clone(c.attributes)
	next.children = slices.Clone(c.children)
	for i, child := range c.children {
		next.children[i] = child.clone(&next, copies)
	}
	return &next
}
