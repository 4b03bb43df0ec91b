// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// place is the part of a NUMA node on one socket.
type place struct{ node, socket int }

func (c CPU) place() place { return place{c.Node, c.Socket} }

// readCaches sets the L3 of each CPU. A cache that spans NUMA nodes or sockets
// is one L3 for each place: Intel's sub-NUMA clusters report the L3 of the
// socket, but each node's memory is cached in its own part. A place with
// unknown or faulty caches is one L3; a faulty place gives one warning.
func (m Machine) readCaches(sys source) (warnings []string) {
	lists, faults := m.readLastLevelCaches(sys)
	agreed := make(map[int]bool, len(m.CPUs))
	for _, c := range m.CPUs {
		if lists[c.ID].IsEmpty() || faults[c.place()] != nil || agreed[c.ID] {
			continue
		}
		if err := agrees(sys, "cache/index*/shared_cpu_list", lists, c.ID); err != nil {
			faults[c.place()] = err
			continue
		}
		for _, member := range lists[c.ID].List() {
			agreed[member] = true
		}
	}
	type l3 struct {
		cache int
		place place
	}
	first, warned := make(map[l3]int, len(m.CPUs)), make(map[place]bool, len(faults))
	for i := range m.CPUs { // in order of ids: the first CPU of an L3 is the lowest
		c := &m.CPUs[i]
		at := l3{cache: -1, place: c.place()}
		switch fault, list := faults[at.place], lists[c.ID]; {
		case fault != nil && !warned[at.place]:
			warned[at.place] = true
			warnings = append(warnings,
				fmt.Sprintf("%v; the CPUs of NUMA node %d on socket %d are taken for one L3", fault, c.Node, c.Socket))
		case fault == nil && !list.IsEmpty():
			at.cache = list.List()[0]
		}
		if _, seen := first[at]; !seen {
			first[at] = c.ID
		}
		c.L3 = first[at]
	}
	return warnings
}

// errNoCaches means that the kernel shows no cache of a CPU. While a CPU comes or goes, the kernel can call the CPU online and show no
// cache of the CPU (drivers/base/cacheinfo.c of Linux).
var errNoCaches = errors.New("no caches, while other CPUs have caches")

// readLastLevelCaches returns for each CPU the CPUs that share its last-level
// cache, and the first fault of each place with a fault. CPUs without any cache are a fault if other CPUs have caches.
func (m Machine) readLastLevelCaches(sys source) (lists map[int]contract.CPUSet, faults map[place]error) {
	online, threads := m.Online(), make(map[int][]int, len(m.CPUs))
	for _, c := range m.CPUs {
		threads[c.Core] = append(threads[c.Core], c.ID)
	}
	lists, faults = make(map[int]contract.CPUSet, len(m.CPUs)), make(map[place]error)
	without := 0
	for _, c := range m.CPUs {
		list, err := readLastLevelCache(sys, c.ID, contract.CPUs(threads[c.Core]...), online)
		if errors.Is(err, errNoCaches) {
			without++
		}
		if err != nil && faults[c.place()] == nil {
			faults[c.place()] = err
		}
		if !list.IsEmpty() {
			lists[c.ID] = list
		}
	}
	if without == len(m.CPUs) {
		return nil, nil
	}
	return lists, faults
}

// readLastLevelCache returns the online CPUs that share the CPU's unified cache
// of level 3, else of the highest level; none if the kernel shows none of
// level 3 and none that more than one core shares.
func readLastLevelCache(sys source, id int, core, online contract.CPUSet) (contract.CPUSet, error) {
	var none contract.CPUSet
	dir, level, err := lastLevelCache(sys, id)
	if err != nil || level == 0 {
		return none, err
	}
	file := dir + "/shared_cpu_list"
	list, err := sys.cpus(file)
	if missing(err) {
		file = dir + "/shared_cpu_map"
		list, err = sys.mask(file)
	}
	if err != nil {
		return none, err
	}
	list = list.Intersection(online)
	if list.IsEmpty() {
		return none, fmt.Errorf("%s: no online CPU shares the cache", sys.at(file))
	}
	// Some virtual machines show each CPU a cache of its own, also where CPUs are threads of one core.
	if list.Contains(id) && !core.IsSubsetOf(list) {
		return none, fmt.Errorf("%s: %s, without all CPUs %s of the core", sys.at(file), list, core)
	}
	if level < 3 && list == core {
		return none, nil
	}
	return list, nil
}

// lastLevelCache returns the cache's directory and level; level 0 for no unified cache. For no cache at all the error is errNoCaches.
// The kernel numbers caches from the first level up, so the search from the end
// reads one directory of most CPUs. Entries without type or level are skipped:
// the kernel leaves out attributes that it does not know.
func lastLevelCache(sys source, id int) (best string, bestLevel int64, err error) {
	dir := cpuPath(id, "cache")
	names, err := sys.names(dir)
	if err != nil {
		return "", 0, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "index") })
	if len(names) == 0 {
		return "", 0, fmt.Errorf("%s: %w", sys.at(dir), errNoCaches)
	}
	for _, name := range slices.Backward(names) {
		if bestLevel == 3 {
			break
		}
		kind, err := sys.text(dir + "/" + name + "/type")
		switch {
		case missing(err) || err == nil && (kind == "Data" || kind == "Instruction"):
			continue
		case err != nil:
			return "", 0, err
		case kind != "Unified":
			return "", 0, fmt.Errorf("%s: %q is not Unified, Data or Instruction", sys.at(dir+"/"+name+"/type"), kind)
		}
		level, err := sys.number(dir+"/"+name+"/level", 0)
		if missing(err) || err == nil && level != 3 && level <= bestLevel {
			continue
		}
		if err != nil {
			return "", 0, err
		}
		best, bestLevel = dir+"/"+name, level
	}
	return best, bestLevel, nil
}
