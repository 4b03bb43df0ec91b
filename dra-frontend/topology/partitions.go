// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"path"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// ForeignPartition is a cpuset partition outside of the cgroups of pods: its CPUs are another
// program's.
type ForeignPartition struct {
	// Cgroup is the directory below the cgroup mount.
	Cgroup string
	// Kind is "root" or "isolated" (cgroup-v2.rst, "cpuset.cpus.partition").
	Kind string
	CPUs contract.CPUSet
}

// maxDepth bounds the cgroups below the mount that are looked at: partitions of services
// and of virtual machines are three or four levels deep.
const maxDepth = 8

// findForeignPartitions returns the valid partitions outside of the cgroups kubepods. They are
// for messages: a cgroup that is gone, or whose files cannot be read, is left out.
func findForeignPartitions(sys source, kubepods []string) []ForeignPartition {
	var found []ForeignPartition
	var look func(dir string, depth int)
	look = func(dir string, depth int) {
		names, err := sys.names(dir)
		if err != nil || depth > maxDepth {
			return
		}
		for _, name := range names {
			cgroup := path.Join(dir, name)
			// A cgroup without the file has none with the file below it, because the cpuset
			// controller is switched on from the top. A file is no cgroup.
			kind, err := sys.text(cgroup + "/cpuset.cpus.partition")
			if err != nil || slices.Contains(kubepods, cgroup) {
				continue
			}
			if kind == contract.PartitionRoot || kind == contract.PartitionIsolated {
				if cpus, err := sys.cpus(cgroup + "/cpuset.cpus.effective"); err == nil {
					found = append(found, ForeignPartition{Cgroup: cgroup[len(cgroupDir)+1:], Kind: kind, CPUs: cpus})
				}
			}
			look(cgroup, depth+1)
		}
	}
	look(cgroupDir, 1)
	return found
}
