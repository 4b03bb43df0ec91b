// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const nodeDir = "devices/system/node"

// Distances of the ACPI SLIT, which the kernel uses where firmware has none.
const (
	localDistance  = 10
	remoteDistance = 20
)

func readNodes(sys, proc source, online contract.CPUSet) ([]NUMANode, error) {
	if _, err := fs.Stat(sys.fsys, nodeDir); missing(err) {
		return nodeOfKernelWithoutNUMA(sys, proc, online)
	}
	all, err := sys.nodes(nodeDir + "/online")
	if err != nil {
		return nil, err
	}
	ids := all.List()
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s names no node", sys.at(nodeDir+"/online"))
	}
	nodes := make([]NUMANode, 0, len(ids))
	for i, id := range ids {
		n, err := readNode(sys, id, i, len(ids), online)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, readMemoryTypes(sys, nodes)
}

func readNode(sys source, id, index, nodes int, online contract.CPUSet) (NUMANode, error) {
	dir := nodeDir + "/node" + strconv.Itoa(id)
	cpus, err := sys.cpus(dir + "/cpulist")
	if err != nil {
		return NUMANode{}, err
	}
	n := NUMANode{ID: id, CPUs: cpus.Intersection(online)}
	if n.MemTotal, err = memTotal(sys, dir+"/meminfo"); err != nil {
		return NUMANode{}, err
	}
	if n.Hugepages, err = readHugepages(sys, dir+"/hugepages"); err != nil {
		return NUMANode{}, err
	}
	if n.Distances, err = readDistances(sys, dir+"/distance", index, nodes); err != nil {
		return NUMANode{}, err
	}
	return n, nil
}

func nodeOfKernelWithoutNUMA(sys, proc source, online contract.CPUSet) ([]NUMANode, error) {
	n := NUMANode{ID: 0, CPUs: online, Distances: []int{localDistance}}
	var err error
	if n.MemTotal, err = memTotal(proc, "meminfo"); err != nil {
		return nil, err
	}
	if n.Hugepages, err = readHugepages(sys, "kernel/mm/hugepages"); err != nil {
		return nil, err
	}
	n.Memory = memories{}.typeOf(n, nil)
	return []NUMANode{n}, nil
}

func memTotal(s source, path string) (int64, error) {
	text, err := s.text(path)
	if err != nil {
		return 0, err
	}
	total, err := parseMemTotal(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.at(path), err)
	}
	return total, nil
}

func readHugepages(sys source, dir string) (map[int64]int64, error) {
	names, err := sys.names(dir)
	if err != nil {
		return nil, err
	}
	pages := make(map[int64]int64, len(names))
	for _, name := range names {
		size, err := parseHugepageDir(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sys.at(dir), err)
		}
		total, err := sys.number(dir+"/"+name+"/nr_hugepages", 0)
		if err != nil {
			return nil, err
		}
		surplus, err := sys.number(dir+"/"+name+"/surplus_hugepages", 0)
		if err != nil && !missing(err) {
			return nil, err
		}
		if total > maxNumber>>10/(size>>10) {
			return nil, fmt.Errorf("%s: %d pages of %d bytes", sys.at(dir+"/"+name+"/nr_hugepages"), total, size)
		}
		pages[size] = max(0, total-surplus)
	}
	return pages, nil
}

func readDistances(sys source, path string, index, nodes int) ([]int, error) {
	text, err := sys.text(path)
	if missing(err) {
		distances := slices.Repeat([]int{remoteDistance}, nodes)
		distances[index] = localDistance
		return distances, nil
	}
	if err != nil {
		return nil, err
	}
	distances, err := parseDistances(text, nodes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sys.at(path), err)
	}
	return distances, nil
}
