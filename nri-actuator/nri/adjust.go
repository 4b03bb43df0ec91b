// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"github.com/containerd/nri/pkg/api"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// A decision has three forms: for a container that is created, for a container
// that the runtime updates, and for a container that runs. Only the first form
// has the memory policy and the OOM score, because NRI carries them at the
// creation only: they belong to a process. Each form depends on the decision
// alone (I9), except the OOM score: the lower one of the decision's and the
// container's own score holds.

// adjust returns the decision for a container that is created. own is the
// container's own OOM score. Memory and hugepages go through unified, the
// cgroup's files by name: NRI drops a reservation in the memory struct, and
// containerd drops hugepage limits while its disable_hugetlb_controller is on,
// which is its default. OCI runtimes write unified last, over kubelet's values.
func adjust(d contract.Decision, own *int) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs(d.CPUs.String())
	a.SetLinuxCPUSetMems(d.Mems.String())
	for file, value := range d.Files() {
		a.AddLinuxUnified(file, value)
	}
	if p := d.MemoryPolicy; p != nil {
		// With the flag, the policy means the nodes as they are named. crun
		// sets the policy before the process is in its cgroup, and without the
		// flag the kernel would map it to other nodes then (set_mempolicy(2)).
		a.SetLinuxMemoryPolicy(api.MpolMode(api.MpolMode_value[p.OCIMode()]), p.Nodes.String(), api.MpolFlag_MPOL_F_STATIC_NODES)
	}
	if d.LowersOOMScore(own) {
		a.SetLinuxOomScoreAdj(d.OOMScoreAdj)
	}
	return a
}

// oomScore returns the container's own oom_score_adj, nil if the runtime does
// not report it.
func oomScore(ctr *api.Container) *int { return ctr.GetLinux().GetOomScoreAdj().Get() }

// pooledAnnotation marks containers that were created in the shared pool: later
// the runtime reports the pool's cpuset as the container's own.
const pooledAnnotation = contract.Vendor + "/pooled"

// adjustToPool returns the shared pool for a container without a claim that is created.
func adjustToPool(d contract.Decision) *api.ContainerAdjustment {
	a := adjust(d, nil)
	a.AddAnnotation(pooledAnnotation, "true")
	return a
}

// update returns the decision for a container that the runtime updates.
func update(id string, d contract.Decision) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxCPUSetCPUs(d.CPUs.String())
	u.SetLinuxCPUSetMems(d.Mems.String())
	for file, value := range d.Files() {
		u.AddLinuxUnified(file, value)
	}
	return u
}
