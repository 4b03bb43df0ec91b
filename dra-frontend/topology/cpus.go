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
func readCPUs(sys source, online []int) ([]CPU, error) {
	cpus := make([]CPU, 0, len(online))
	cores := make(map[int][]int, len(online))
	var err error
	for _, id := range online {
		if cores[id], err = readSiblings(sys, id, online); err != nil {
			return nil, err
		}
	}
	coreOf, err := partition(sys, "topology/core_cpus_list", cores)
	if err != nil {
		return nil, err
	}
	sockets, err := readSockets(sys, online, cores)
	if err != nil {
		return nil, err
	}
	for _, id := range online {
		cpus = append(cpus, CPU{ID: id, Socket: sockets[id], Type: CPUStandard})
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

func readSiblings(sys source, id int, online []int) ([]int, error) {
	return readRenamed(sys, id, "core_cpus_list", "thread_siblings_list", online)
}

// readRenamed returns the online CPUs of a list that has an older name in
// kernels before 5.3.
func readRenamed(sys source, id int, file, older string, online []int) ([]int, error) {
	list, err := sys.list(cpuPath(id, "topology/"+file))
	if missing(err) {
		var errOld error
		if list, errOld = sys.list(cpuPath(id, "topology/"+older)); errOld == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return intersect(list, online), nil
}

// readSockets returns each CPU's socket: the package id if all CPUs have one,
// else the number of the package in the order of CPUs, else 0 if no CPU has an
// id.
func readSockets(sys source, online []int, cores map[int][]int) (map[int]int, error) {
	sockets, unknown := make(map[int]int, len(online)), 0
	for _, id := range online {
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
		for _, id := range online {
			if _, seen := number[packageOf[id]]; !seen {
				number[packageOf[id]] = len(number)
			}
			sockets[id] = number[packageOf[id]]
		}
	case unknown != len(online):
		return nil, fmt.Errorf("%s: %d of %d CPUs have no socket (-1), and their lists of package siblings do not say which",
			sys.at(cpuDir+"/cpu*/topology/physical_package_id"), unknown, len(online))
	}
	return sockets, nil
}

// readPackages returns the lowest CPU of each CPU's package; nil if the kernel
// has no lists, or only lists of cores because it knows no more.
func readPackages(sys source, online []int, cores map[int][]int) (map[int]int, error) {
	packages, known := make(map[int][]int, len(online)), false
	for _, id := range online {
		list, err := readRenamed(sys, id, "package_cpus_list", "core_siblings_list", online)
		if missing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		packages[id] = list
		known = known || len(list) > len(cores[id])
	}
	if !known {
		return nil, nil
	}
	return partition(sys, "topology/package_cpus_list", packages)
}

// readCluster returns the lowest CPU of the cluster, or of the core if the
// cluster lacks a CPU of the core: kernels without clusters show none, or the
// CPU alone.
func readCluster(sys source, id int, core, online []int) (int, error) {
	cluster, err := sys.list(cpuPath(id, "topology/cluster_cpus_list"))
	if err != nil && !missing(err) {
		return 0, err
	}
	cluster = intersect(cluster, online)
	if len(intersect(core, cluster)) != len(core) {
		return core[0], nil
	}
	return cluster[0], nil
}

// partition checks that the CPUs' lists are groups without overlap, and returns
// the lowest CPU of each CPU's group. files is the lists' file below a CPU's
// directory, for errors.
func partition(sys source, files string, lists map[int][]int) (map[int]int, error) {
	groupOf := make(map[int]int, len(lists))
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		if _, seen := groupOf[id]; seen {
			continue // agrees compared this list with a lower CPU's
		}
		if err := agrees(sys, files, lists, id); err != nil {
			return nil, err
		}
		for _, member := range lists[id] {
			groupOf[member] = lists[id][0]
		}
	}
	return groupOf, nil
}

// agrees returns an error unless the CPU's list has the CPU itself and equals
// the list of each CPU in it.
func agrees(sys source, files string, lists map[int][]int, id int) error {
	list := lists[id]
	if !slices.Contains(list, id) {
		return fmt.Errorf("%s: %q lacks CPU %d itself", sys.at(cpuPath(id, files)), contract.FormatList(list), id)
	}
	for _, member := range list {
		if !slices.Equal(list, lists[member]) {
			return fmt.Errorf("%s: %q, but CPU %d in it says %q in %s",
				sys.at(cpuPath(id, files)), contract.FormatList(list), member, contract.FormatList(lists[member]), cpuPath(member, files))
		}
	}
	return nil
}
