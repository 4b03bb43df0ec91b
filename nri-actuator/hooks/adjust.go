// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/api"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
)

// The three forms of one decision: for a container that is created, that the
// runtime updates, and that runs. They are functions of the decision and of
// nothing else (I9).

// adjust is the decision for a container that is created.
func adjust(d contract.Decision) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs(d.CPUs)
	a.SetLinuxCPUSetMems(d.Mems)
	if d.Memory != nil {
		// Through unified: NRI drops a reservation given in the memory struct.
		for file, value := range d.Memory.Files() {
			a.AddLinuxUnified(file, value)
		}
	}
	for _, size := range slices.Sorted(maps.Keys(d.Hugepages)) {
		a.AddLinuxHugepageLimit(contract.CgroupPageSize(size), guard.LimitOf(d.Hugepages[size]))
	}
	return a
}

// update is the decision put back into a runtime's update of the container.
// Hugepages are left out: OCI runtimes ignore them in updates, and NRI would
// only repeat them.
func update(id string, d contract.Decision) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxCPUSetCPUs(d.CPUs)
	u.SetLinuxCPUSetMems(d.Mems)
	if d.Memory != nil {
		for file, value := range d.Memory.Files() {
			u.AddLinuxUnified(file, value)
		}
	}
	return u
}

// files is the decision as the contents of the container's cgroup files.
func files(d contract.Decision) map[string]string {
	f := map[string]string{"cpuset.cpus": d.CPUs, "cpuset.mems": d.Mems}
	if d.Memory != nil {
		maps.Copy(f, d.Memory.Files())
	}
	for size, limit := range d.Hugepages {
		// The runtime sets both: what may be used and what may be reserved.
		f["hugetlb."+contract.CgroupPageSize(size)+".max"] = limit.String()
		f["hugetlb."+contract.CgroupPageSize(size)+".rsvd.max"] = limit.String()
	}
	return f
}
