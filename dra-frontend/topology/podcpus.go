// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"path"
	"slices"

	"k8s.io/utils/cpuset"
)

// cgroupDir is where cgroup v2 is mounted.
const cgroupDir = "fs/cgroup"

// kubepodsDirs are the places of kubelet's cgroup of all pods: of its two cgroup
// drivers, right below the root and where kind has it.
func kubepodsDirs() []string {
	return []string{"kubepods", "kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-kubepods.slice"}
}

// readIsolated returns the CPUs of the kernel's parameter isolcpus. The file is
// about the boot only: cpuset partitions that are isolated are not in it.
func readIsolated(sys source) (cpuset.CPUSet, error) {
	ids, err := sys.list(cpuDir + "/isolated")
	if err != nil && !missing(err) {
		return cpuset.New(), err
	}
	return cpuset.New(ids...), nil
}

// readRestricted returns the online CPUs that no pod can have. It must not
// depend on what this driver does: the CPUs of its own partitions are taken from
// cpuset.cpus.effective of all other cgroups. So it reads
//
//   - cpuset.cpus of kubepods and its ancestors, which says what somebody has
//     configured; empty is no restriction;
//   - cpuset.cpus.effective of the root, which lacks the CPUs of all partitions
//     of the machine, with cpuset.cpus.exclusive of kubepods, which has those of
//     the pods' partitions: what is in neither belongs to a partition elsewhere.
//
// Without a cgroup of all pods, or without cgroup v2, nothing is restricted. Where
// another one is left from before kubelet's cgroup driver was changed, both count:
// which of them has the pods is not in the files.
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

// configured returns the CPUs that cpuset.cpus of the cgroup or of one above
// leaves out.
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

// partitionedElsewhere returns the CPUs of cpuset partitions that are not the
// pods'. A partition may end between two reads, and kubepods give its CPUs back:
// so what kubepods have is read before the root and after it.
func partitionedElsewhere(sys source, kubepods []string, online cpuset.CPUSet) (cpuset.CPUSet, error) {
	none := cpuset.New()
	if _, err := sys.text(cgroupDir + "/cgroup.type"); !missing(err) {
		return none, err // not the root: what is mounted is a part of the hierarchy
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
