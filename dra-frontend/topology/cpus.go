// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const cpuDir = "devices/system/cpu"

func cpuPath(id int, file string) string {
	return cpuDir + "/cpu" + strconv.Itoa(id) + "/" + file
}

// readCPUs reads sockets, cores and clusters of the online CPUs.
func readCPUs(sys source, online contract.CPUSet) ([]CPU, error) {
	ids := online.List()
	cpus := make([]CPU, 0, len(ids))
	cores := make(map[int]contract.CPUSet, len(ids))
	var err error
	for _, id := range ids {
		if cores[id], err = readSiblings(sys, id, online); err != nil {
			return nil, err
		}
	}
	coreOf, err := groupsOf(sys, "topology/core_cpus_list", cores)
	if err != nil {
		return nil, err
	}
	sockets, err := readSockets(sys, online, cores)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		cpus = append(cpus, CPU{ID: id, Socket: sockets[id]})
	}
	for i := range cpus {
		c := &cpus[i]
		c.Core = coreOf[c.ID]
		if c.Cluster, err = readCluster(sys, c.ID, cores[c.ID], online); err != nil {
			return nil, err
		}
	}
	return cpus, nil
}

func readSiblings(sys source, id int, online contract.CPUSet) (contract.CPUSet, error) {
	return readRenamed(sys, id, "core_cpus_list", "thread_siblings_list", online)
}

// readRenamed returns the online CPUs of a list that has an older name in
// kernels before 5.3.
func readRenamed(sys source, id int, file, older string, online contract.CPUSet) (contract.CPUSet, error) {
	list, err := sys.cpus(cpuPath(id, "topology/"+file))
	if missing(err) {
		var errOld error
		if list, errOld = sys.cpus(cpuPath(id, "topology/"+older)); errOld == nil {
			err = nil
		}
	}
	return list.Intersection(online), err
}

// readSockets returns each CPU's socket: the package id if all CPUs have one,
// else the number of the package in the order of CPUs, else 0 if no CPU has an
// id.
func readSockets(sys source, online contract.CPUSet, cores map[int]contract.CPUSet) (map[int]int, error) {
	ids := online.List()
	sockets, unknown := make(map[int]int, len(ids)), 0
	for _, id := range ids {
		socket, err := sys.number(cpuPath(id, "topology/physical_package_id"), -1)
		if err != nil && !missing(err) {
			return nil, err
		}
		if err != nil || socket == -1 {
			unknown++
			socket = 0
		}
		sockets[id] = int(socket)
	}
	if unknown == 0 {
		return sockets, nil
	}
	packageOf, err := readPackages(sys, online, cores)
	switch {
	case err != nil:
		return nil, err
	case packageOf != nil:
		number := make(map[int]int)
		for _, id := range ids {
			if _, seen := number[packageOf[id]]; !seen {
				number[packageOf[id]] = len(number)
			}
			sockets[id] = number[packageOf[id]]
		}
	case unknown != len(ids):
		return nil, fmt.Errorf("%s: %d of %d CPUs have no socket (-1), and their lists of package siblings do not say which",
			sys.at(cpuDir+"/cpu*/topology/physical_package_id"), unknown, len(ids))
	}
	return sockets, nil
}

// readPackages returns the lowest CPU of each CPU's package; nil if the kernel
// has no lists, or only lists of cores because it knows no more.
func readPackages(sys source, online contract.CPUSet, cores map[int]contract.CPUSet) (map[int]int, error) {
	packages, known := make(map[int]contract.CPUSet), false
	for _, id := range online.List() {
		list, err := readRenamed(sys, id, "package_cpus_list", "core_siblings_list", online)
		if missing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		packages[id] = list
		known = known || list.Size() > cores[id].Size()
	}
	if !known {
		return nil, nil
	}
	return groupsOf(sys, "topology/package_cpus_list", packages)
}

// readCluster returns the lowest CPU of the cluster, or of the core if the
// cluster lacks a CPU of the core: kernels without clusters show none, or the
// CPU alone.
func readCluster(sys source, id int, core, online contract.CPUSet) (int, error) {
	cluster, err := sys.cpus(cpuPath(id, "topology/cluster_cpus_list"))
	if err != nil && !missing(err) {
		return 0, err
	}
	cluster = cluster.Intersection(online)
	if !core.IsSubsetOf(cluster) {
		return core.List()[0], nil
	}
	return cluster.List()[0], nil
}

// groupsOf checks that the CPUs' lists are groups without overlap, and returns
// the lowest CPU of each CPU's group. files is the lists' file below a CPU's
// directory, for errors.
func groupsOf(sys source, files string, lists map[int]contract.CPUSet) (map[int]int, error) {
	groupOf := make(map[int]int, len(lists))
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		if _, seen := groupOf[id]; seen {
			continue // agrees compared this list with a lower CPU's
		}
		if err := agrees(sys, files, lists, id); err != nil {
			return nil, err
		}
		group := lists[id].List()
		for _, member := range group {
			groupOf[member] = group[0]
		}
	}
	return groupOf, nil
}

// agrees returns an error unless the CPU's list has the CPU itself and equals
// the list of each CPU in it.
func agrees(sys source, files string, lists map[int]contract.CPUSet, id int) error {
	list := lists[id]
	if !list.Contains(id) {
		return fmt.Errorf("%s: %q lacks CPU %d itself", sys.at(cpuPath(id, files)), list.String(), id)
	}
	for _, member := range list.List() {
		if list != lists[member] {
			return fmt.Errorf("%s: %q, but CPU %d in it says %q in %s",
				sys.at(cpuPath(id, files)), list.String(), member, lists[member].String(), cpuPath(member, files))
		}
	}
	return nil
}
