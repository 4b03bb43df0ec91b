// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// partitions returns, from the claims, the CPUs of the cpuset partitions below
// each level and pod, by the names that people read.
func (d Directory) partitions() map[string]contract.CPUSet {
	sets := make(map[string]contract.CPUSet)
	for _, c := range d.Claims {
		for _, r := range c.Results {
			if r.Decision.Partition == "" {
				continue
			}
			for _, p := range c.Pods {
				for _, place := range []string{levelName(contract.LevelKubepods), levelName(p.QOS), podName(p.UID)} {
					sets[place] = sets[place].Union(r.Decision.CPUs)
				}
			}
		}
	}
	return sets
}

// statePartitions returns, from the node state, the partition CPUs below each level and pod.
// The actuator applies the node state.
func statePartitions(n contract.NodeState) map[string]contract.CPUSet {
	out := make(map[string]contract.CPUSet)
	for level, cpus := range n.PartitionCPUs {
		out[levelName(level)] = cpus
	}
	for uid, p := range n.Pods {
		if !p.PartitionCPUs.IsEmpty() {
			out[podName(uid)] = p.PartitionCPUs
		}
	}
	return out
}

func levelName(level string) string { return cmp.Or(level, "kubepods") }

func podName(uid string) string { return "pod " + uid }

// checkPartitions checks that each ancestor may hand down the CPUs of the
// partitions below it.
func (d *Directory) checkPartitions() {
	need, has := d.partitions(), statePartitions(*d.Node)
	places := maps.Clone(need)
	maps.Copy(places, has)
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if need[place] != has[place] {
			d.problem("the node state gives %s partition CPUs %q, the partitions of claims below it have %q",
				place, has[place].String(), need[place].String())
		}
	}
}

// explainPartitions writes the partition CPUs, and the partitions that the
// kernel does not grant. It writes nothing if there are no partitions.
func (d Directory) explainPartitions(w io.Writer) {
	if d.Node != nil {
		has := statePartitions(*d.Node)
		var parts []string
		for _, place := range slices.Sorted(maps.Keys(has)) {
			parts = append(parts, place+" "+has[place].String())
		}
		if len(parts) > 0 {
			fmt.Fprintf(w, "cpuset partitions: %s\n", strings.Join(parts, "; "))
		}
	}
	if d.Actuator == nil {
		return
	}
	for _, c := range d.Claims {
		if reason, lost := d.Actuator.InvalidPartitions[c.UID]; lost {
			fmt.Fprintf(w, "cpuset partition of %s/%s is invalid, other containers may run on its CPUs: %q\n", c.Namespace, c.Name, reason)
		}
	}
}

// cpusOf returns the CPUs of a decision and the kind of its partition, if
// any.
func cpusOf(d contract.Decision) string {
	switch d.Partition {
	case "":
		return or(d.CPUs.String(), "shared")
	case contract.PartitionRoot:
		return d.CPUs.String() + " (partition)"
	}
	return d.CPUs.String() + " (" + d.Partition + ")"
}
