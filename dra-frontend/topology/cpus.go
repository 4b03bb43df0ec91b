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
	unknownSockets := 0
	for _, id := range online {
		socket, err := sys.number(cpuPath(id, "topology/physical_package_id"), -1)
		if err != nil {
			return nil, err
		}
		if socket == -1 {
			unknownSockets++
			socket = 0
		}
		if cores[id], err = readSiblings(sys, id, online); err != nil {
			return nil, err
		}
		cpus = append(cpus, CPU{ID: id, Socket: int(socket), Type: CPUStandard})
	}
	if unknownSockets != 0 && unknownSockets != len(online) {
		return nil, fmt.Errorf("sysfs %s/cpu*/topology/physical_package_id: %d of %d CPUs have no socket (-1)", cpuDir, unknownSockets, len(online))
	}
	coreOf, err := partition("topology/core_cpus_list", cores)
	if err != nil {
		return nil, err
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
	siblings, err := sys.list(cpuPath(id, "topology/core_cpus_list"))
	if missing(err) { // kernels before 5.3
		var errOld error
		if siblings, errOld = sys.list(cpuPath(id, "topology/thread_siblings_list")); errOld == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return intersect(siblings, online), nil
}

// readCluster returns the lowest CPU of the cluster. Kernels that know of no
// clusters show none, or the CPU alone.
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

// partition checks that the lists of all CPUs are groups without overlap, and
// returns the lowest CPU of each CPU's group. files names, under a CPU's
// directory, where its list comes from.
func partition(files string, lists map[int][]int) (map[int]int, error) {
	groupOf := make(map[int]int, len(lists))
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		if _, seen := groupOf[id]; seen {
			continue // its list equals that of a lower CPU in it
		}
		list := lists[id]
		if !slices.Contains(list, id) {
			return nil, fmt.Errorf("sysfs %s: %q lacks CPU %d itself", cpuPath(id, files), contract.FormatList(list), id)
		}
		for _, member := range list {
			if !slices.Equal(list, lists[member]) {
				return nil, fmt.Errorf("sysfs %s: %q, but CPU %d in it says %q in %s",
					cpuPath(id, files), contract.FormatList(list), member, contract.FormatList(lists[member]), cpuPath(member, files))
			}
			groupOf[member] = list[0]
		}
	}
	return groupOf, nil
}
