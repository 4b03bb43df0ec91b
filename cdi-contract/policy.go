// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Features, the names that stand in a decision's "requires" and in the
// actuator's announcement.
const (
	// FeatureMemoryPolicy: the decision has a memory policy, and the actuator's
	// runtime and kernel can set one.
	FeatureMemoryPolicy = "memoryPolicy"
	// FeatureWeightedInterleave: the policy's mode is weightedInterleave, which
	// the kernel knows since 6.9.
	FeatureWeightedInterleave = "weightedInterleave"
)

// Modes of a memory policy, as set_mempolicy(2) describes them.
const (
	ModeBind               = "bind"
	ModePreferred          = "preferred"
	ModeWeightedInterleave = "weightedInterleave"
	ModeInterleave         = "interleave"
)

// MemoryPolicyModes returns the modes, the strictest first: where decisions
// differ the first one holds.
func MemoryPolicyModes() []string {
	return []string{ModeBind, ModePreferred, ModeWeightedInterleave, ModeInterleave}
}

// MemoryPolicy is the NUMA memory policy that the container's first process
// starts with. It says where pages are looked for first; the decision's mems
// are the fence around it.
type MemoryPolicy struct {
	// Mode is one of [MemoryPolicyModes].
	Mode string `json:"mode"`
	// Nodes is the list of NUMA nodes of the policy, normalised: some or all of
	// the decision's mems.
	Nodes string `json:"nodes"`
}

// Features returns what a decision with the policy has to require.
func (p MemoryPolicy) Features() []string {
	if p.Mode == ModeWeightedInterleave {
		return []string{FeatureMemoryPolicy, FeatureWeightedInterleave}
	}
	return []string{FeatureMemoryPolicy}
}

// OCIMode is the mode's name in an OCI configuration (config-linux.md, "Memory
// policy"). MPOL_PREFERRED takes one node and ignores the others.
func (p MemoryPolicy) OCIMode() string {
	switch {
	case p.Mode == ModeBind:
		return "MPOL_BIND"
	case p.Mode == ModePreferred && strings.ContainsAny(p.Nodes, ",-"):
		return "MPOL_PREFERRED_MANY"
	case p.Mode == ModePreferred:
		return "MPOL_PREFERRED"
	case p.Mode == ModeWeightedInterleave:
		return "MPOL_WEIGHTED_INTERLEAVE"
	}
	return "MPOL_INTERLEAVE"
}

// checkPolicy checks the policy of a decision whose lists are valid.
func (d Decision) checkPolicy() error {
	p := d.MemoryPolicy
	if p == nil {
		return nil
	}
	if !slices.Contains(MemoryPolicyModes(), p.Mode) {
		return fmt.Errorf("memoryPolicy: mode %q is none of %s", p.Mode, strings.Join(MemoryPolicyModes(), ", "))
	}
	if err := checkList("memoryPolicy: nodes", p.Nodes); err != nil {
		return err
	}
	// Without the fence the union of two decisions could name a node that only
	// the other one's mems leave out.
	if d.Mems == "" || unionList(d.Mems, p.Nodes) != d.Mems {
		return fmt.Errorf("memoryPolicy: nodes %s are not all among mems %q", p.Nodes, d.Mems)
	}
	for _, f := range p.Features() {
		if !slices.Contains(d.Requires, f) {
			return fmt.Errorf("memoryPolicy: mode %s needs feature %q in requires", p.Mode, f)
		}
	}
	return nil
}

// combinePolicies unites the nodes; of two modes the stricter one holds.
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
		Nodes: unionList(a.Nodes, b.Nodes),
	}
}
