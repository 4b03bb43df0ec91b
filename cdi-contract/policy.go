// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Modes of a memory policy, as set_mempolicy(2) describes them.
const (
	ModeBind               = "bind"
	ModePreferred          = "preferred"
	ModeWeightedInterleave = "weightedInterleave"
	ModeInterleave         = "interleave"
)

// MemoryPolicyModes returns the modes, the strictest first. If decisions
// differ, the stricter mode holds.
func MemoryPolicyModes() []string {
	return []string{ModeBind, ModePreferred, ModeWeightedInterleave, ModeInterleave}
}

// MemoryPolicy is the NUMA memory policy with which the container's first
// process starts. The kernel looks for pages on its nodes first; the decision's
// mems are the limit.
type MemoryPolicy struct {
	// Mode is one of [MemoryPolicyModes].
	Mode string `json:"mode"`
	// Nodes are the policy's NUMA nodes: some or all of the decision's mems.
	Nodes NUMANodeSet `json:"nodes"`
}

// Features returns the features that a decision with the policy must require.
func (p MemoryPolicy) Features() []string {
	if p.Mode == ModeWeightedInterleave {
		return []string{FeatureMemoryPolicy, FeatureWeightedInterleave}
	}
	return []string{FeatureMemoryPolicy}
}

// OCIMode returns the mode's name in an OCI configuration (config-linux.md,
// "Memory policy"). MPOL_PREFERRED uses the first node only.
func (p MemoryPolicy) OCIMode() string {
	switch {
	case p.Mode == ModeBind:
		return "MPOL_BIND"
	case p.Mode == ModePreferred && p.Nodes.Size() > 1:
		return "MPOL_PREFERRED_MANY"
	case p.Mode == ModePreferred:
		return "MPOL_PREFERRED"
	case p.Mode == ModeWeightedInterleave:
		return "MPOL_WEIGHTED_INTERLEAVE"
	}
	return "MPOL_INTERLEAVE"
}

// checkPolicy checks the memory policy.
func (d Decision) checkPolicy() error {
	p := d.MemoryPolicy
	if p == nil {
		return nil
	}
	if !slices.Contains(MemoryPolicyModes(), p.Mode) {
		return fmt.Errorf("memoryPolicy: mode %q is none of %s", p.Mode, strings.Join(MemoryPolicyModes(), ", "))
	}
	if p.Nodes.IsEmpty() {
		return fmt.Errorf("memoryPolicy: mode %s without nodes", p.Mode)
	}
	// The nodes must be within the mems: otherwise the merge of two decisions
	// could name a node outside of the merged mems.
	if !p.Nodes.IsSubsetOf(d.Mems) {
		return fmt.Errorf("memoryPolicy: nodes %s are not all among mems %q", p.Nodes, d.Mems.String())
	}
	for _, f := range p.Features() {
		if !slices.Contains(d.Requires, f) {
			return fmt.Errorf("memoryPolicy: mode %s needs feature %q in requires", p.Mode, f)
		}
	}
	return nil
}

// combinePolicies returns a policy of the stricter mode and the nodes of both.
func combinePolicies(a, b *MemoryPolicy) *MemoryPolicy {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	modes := MemoryPolicyModes()
	return &MemoryPolicy{
		Mode:  modes[min(slices.Index(modes, a.Mode), slices.Index(modes, b.Mode))],
		Nodes: a.Nodes.Union(b.Nodes),
	}
}
