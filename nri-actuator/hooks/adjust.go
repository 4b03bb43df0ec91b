// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"github.com/containerd/nri/pkg/api"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// The three forms of one decision: for a container that is created, that the
// runtime updates, and that runs. The memory policy and the OOM score are in the
// first one only: they are a process's, and NRI carries them at the creation.
// They are functions of the decision and of nothing else (I9), but for the OOM
// score: the lower of the decision's and of what the container came with holds.

// adjust is the decision for a container that is created. Memory and hugepages
// go through unified, the cgroup's files by name: NRI drops a reservation given
// in the memory struct, and containerd drops hugepage limits while its
// disable_hugetlb_controller is on, which is its default. OCI runtimes write
// unified last, over what kubelet asked for.
func adjust(d contract.Decision, came *int) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs(d.CPUs)
	a.SetLinuxCPUSetMems(d.Mems)
	for file, value := range d.Files() {
		a.AddLinuxUnified(file, value)
	}
	if p := d.MemoryPolicy; p != nil {
		// Static: the nodes are meant as they are named. crun sets the policy
		// before the process is in its cgroup, and without the flag the kernel
		// would map them to others then (set_mempolicy(2)).
		a.SetLinuxMemoryPolicy(api.MpolMode(api.MpolMode_value[p.OCIMode()]), p.Nodes, api.MpolFlag_MPOL_F_STATIC_NODES)
	}
	if d.LowersOOMScore(came) {
		a.SetLinuxOomScoreAdj(d.OOMScoreAdj)
	}
	return a
}

// oomScore is the container's oom_score_adj as the runtime tells it, nil where
// it does not.
func oomScore(ctr *api.Container) *int { return ctr.GetLinux().GetOomScoreAdj().Get() }

// pooledAnnotation marks containers that were created in the shared pool: the
// runtime tells their cpuset later as if it was their own.
const pooledAnnotation = contract.Vendor + "/pooled"

// pool is the decision for a container without a claim that is created.
func pool(d contract.Decision) *api.ContainerAdjustment {
	a := adjust(d, nil)
	a.AddAnnotation(pooledAnnotation, "true")
	return a
}

// update is the decision put back into a runtime's update of the container.
func update(id string, d contract.Decision) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxCPUSetCPUs(d.CPUs)
	u.SetLinuxCPUSetMems(d.Mems)
	for file, value := range d.Files() {
		u.AddLinuxUnified(file, value)
	}
	return u
}

// files is the decision as the contents of the container's cgroup files, but
// for the partition: what is above it must be right when that is written.
func files(d contract.Decision) map[string]string {
	f := d.Files()
	delete(f, contract.FilePartition)
	f["cpuset.cpus"], f["cpuset.mems"] = d.CPUs, d.Mems
	return f
}
