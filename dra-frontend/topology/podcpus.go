// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"path"
	"slices"

	"k8s.io/utils/cpuset"
)

// cgroupDir is the mount point of cgroup v2, below /sys.
const cgroupDir = "fs/cgroup"

// kubepodsDirs returns the paths of kubelet's cgroup of all pods: for both
// cgroup drivers, below the root and below the cgroup that kind uses.
func kubepodsDirs() []string {
	return []string{"kubepods", "kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-kubepods.slice"}
}

// readIsolated returns the CPUs of the kernel's parameter isolcpus. The file is
// about the boot only: it lacks the CPUs of isolated cpuset partitions.
func readIsolated(sys source) (cpuset.CPUSet, error) {
	ids, err := sys.list(cpuDir + "/isolated")
	if err != nil && !missing(err) {
		return cpuset.New(), err
	}
	return cpuset.New(ids...), nil
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
func readRestricted(sys source, online cpuset.CPUSet) (cpuset.CPUSet, error) {
	restricted := cpuset.New()
	var found []string
	for _, dir := range kubepodsDirs() {
		kubepods := path.Join(cgroupDir, dir)
		if _, err := sys.text(kubepods + "/cpuset.cpus"); missing(err) {
			continue
		}
		found = append(found, kubepods)
		out, err := configured(sys, kubepods, online)
		if err != nil {
			return restricted, err
		}
		restricted = restricted.Union(out)
	}
	if len(found) == 0 {
		return restricted, nil
	}
	elsewhere, err := partitionedElsewhere(sys, found, online)
	return restricted.Union(elsewhere), err
}

// configured returns the online CPUs that cpuset.cpus of the cgroup, or of an
// ancestor, leaves out.
func configured(sys source, dir string, online cpuset.CPUSet) (cpuset.CPUSet, error) {
	out := cpuset.New()
	for ; dir != path.Dir(cgroupDir); dir = path.Dir(dir) {
		ids, err := sys.list(dir + "/cpuset.cpus")
		if missing(err) { // the root of the hierarchy has none
			continue
		}
		if err != nil {
			return out, err
		}
		if len(ids) > 0 {
			out = out.Union(online.Difference(cpuset.New(ids...)))
		}
	}
	return out, nil
}

// partitionedElsewhere returns the CPUs of cpuset partitions outside kubepods.
// A partition of pods may end between two reads, and kubepods lose its CPUs
// then: so the files of kubepods are read before the root's file and after it.
func partitionedElsewhere(sys source, kubepods []string, online cpuset.CPUSet) (cpuset.CPUSet, error) {
	none := cpuset.New()
	if _, err := sys.text(cgroupDir + "/cgroup.type"); !missing(err) {
		return none, err // not the root: only a part of the hierarchy is mounted
	}
	var known []int
	var ofPods []string
	for _, dir := range kubepods {
		ofPods = append(ofPods, dir+"/cpuset.cpus.exclusive")
	}
	const root = cgroupDir + "/cpuset.cpus.effective"
	for _, file := range slices.Concat(ofPods, []string{root}, ofPods) {
		ids, err := sys.list(file)
		if missing(err) && file != root { // kernels before 6.7
			continue
		}
		if missing(err) {
			return none, nil
		}
		if err != nil {
			return none, err
		}
		known = append(known, ids...)
	}
	return online.Difference(cpuset.New(known...)), nil
}
