// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"path"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// cgroupDir is the mount point of cgroup v2, below /sys.
const cgroupDir = "fs/cgroup"

// KubepodsDirs returns the paths of kubelet's cgroup of all pods: for both
// cgroup drivers, below the root and below the cgroup that kind uses, and known, which is empty or another one.
func KubepodsDirs(known string) []string {
	dirs := []string{"kubepods", "kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-kubepods.slice"}
	if known == "" || slices.Contains(dirs, known) {
		return dirs
	}
	return append(dirs, known)
}

// readIsolated returns the CPUs of the kernel's parameter isolcpus. The file is
// about the boot only: it lacks the CPUs of isolated cpuset partitions.
func readIsolated(sys source) (contract.CPUSet, error) {
	isolated, err := sys.cpus(cpuDir + "/isolated")
	if missing(err) {
		return isolated, nil
	}
	return isolated, err
}

// readRestricted returns the online CPUs that no pod can have. The result must
// not depend on this driver's own writes: the CPUs of its partitions are
// missing in cpuset.cpus.effective of all other cgroups. So it reads
//
//   - cpuset.cpus of kubepods and its ancestors, which is configuration; an empty
//     file is no restriction;
//   - cpuset.cpus.effective of the root, which lacks the CPUs of all partitions
//     of the machine, and cpuset.cpus.exclusive of kubepods, which has the CPUs of
//     the pods' partitions: a CPU in neither belongs to a partition elsewhere.
//
// Without a cgroup of all pods, or without cgroup v2, no CPU is restricted.
// After a change of kubelet's cgroup driver there may be two such cgroups. Then
// both count, because the files do not say which cgroup has the pods.
//
// The returned partitions say which cgroups have such CPUs.
func readRestricted(
	sys source, known string, online contract.CPUSet,
) (restricted contract.CPUSet, partitions []ForeignPartition, err error) {
	var found []string
	for _, dir := range KubepodsDirs(known) {
		kubepods := path.Join(cgroupDir, dir)
		if _, err := sys.text(kubepods + "/cpuset.cpus"); missing(err) {
			continue
		}
		found = append(found, kubepods)
		out, err := configured(sys, kubepods, online)
		if err != nil {
			return restricted, nil, err
		}
		restricted = restricted.Union(out)
	}
	if len(found) == 0 {
		return restricted, nil, nil
	}
	elsewhere, err := partitionedElsewhere(sys, found, online)
	if err == nil && !elsewhere.IsEmpty() {
		partitions = findForeignPartitions(sys, found)
	}
	return restricted.Union(elsewhere), partitions, err
}

// configured returns the online CPUs that cpuset.cpus of the cgroup, or of an
// ancestor, leaves out.
func configured(sys source, dir string, online contract.CPUSet) (contract.CPUSet, error) {
	var out contract.CPUSet
	for ; dir != path.Dir(cgroupDir); dir = path.Dir(dir) {
		allowed, err := sys.cpus(dir + "/cpuset.cpus")
		if missing(err) { // the root of the hierarchy has none
			continue
		}
		if err != nil {
			return out, err
		}
		if !allowed.IsEmpty() {
			out = out.Union(online.Difference(allowed))
		}
	}
	return out, nil
}

// partitionedElsewhere returns the CPUs of cpuset partitions outside kubepods.
// The files of kubepods are read before the root's file and after it, because a
// partition of pods may begin or end between two reads.
func partitionedElsewhere(sys source, kubepods []string, online contract.CPUSet) (contract.CPUSet, error) {
	var none, known contract.CPUSet
	if _, err := sys.text(cgroupDir + "/cgroup.type"); !missing(err) {
		return none, err // not the root: only a part of the hierarchy is mounted
	}
	var ofPods []string
	for _, dir := range kubepods {
		ofPods = append(ofPods, dir+"/cpuset.cpus.exclusive")
	}
	const root = cgroupDir + "/cpuset.cpus.effective"
	for _, file := range slices.Concat(ofPods, []string{root}, ofPods) {
		cpus, err := sys.cpus(file)
		if missing(err) && file != root { // kernels before 6.7
			continue
		}
		if missing(err) {
			return none, nil
		}
		if err != nil {
			return none, err
		}
		known = known.Union(cpus)
	}
	return online.Difference(known), nil
}
