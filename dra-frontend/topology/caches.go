// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"
)

// readCaches gives each CPU its L3. A cache that spans NUMA nodes or sockets
// (Intel's sub-NUMA clusters report the L3 of the socket, but each node's
// memory is cached in its own part) is one L3 for each of them.
func (m Machine) readCaches(sys source) error {
	online := make([]int, 0, len(m.CPUs))
	threads := make(map[int]int, len(m.CPUs))
	for _, c := range m.CPUs {
		online = append(online, c.ID)
		threads[c.Core]++
	}
	caches := make(map[int][]int, len(m.CPUs))
	for _, c := range m.CPUs {
		list, err := readLastLevelCache(sys, c.ID, threads[c.Core], online)
		if err != nil {
			return err
		}
		if list != nil {
			caches[c.ID] = list
		}
	}
	cacheOf, err := partition("cache/index*/{level,type,shared_cpu_list}", caches)
	if err != nil {
		return err
	}
	type place struct{ cache, node, socket int }
	first := make(map[place]int, len(m.CPUs))
	for i := range m.CPUs { // in order of ids: the first one is the lowest
		c := &m.CPUs[i]
		at := place{cache: -1, node: c.Node, socket: c.Socket}
		if cache, found := cacheOf[c.ID]; found {
			at.cache = cache
		}
		if _, seen := first[at]; !seen {
			first[at] = c.ID
		}
		c.L3 = first[at]
	}
	return nil
}

// readLastLevelCache returns the CPUs that share the CPU's unified cache of
// level 3, or of the last level where there is no third; nil where the kernel
// knows none, or none that more than a core shares. Attributes that the kernel
// does not know are absent, such an entry is passed over.
func readLastLevelCache(sys source, id, threads int, online []int) ([]int, error) {
	dir := cpuPath(id, "cache")
	names, err := sys.names(dir)
	if err != nil {
		return nil, err
	}
	var best []int
	var bestLevel int64
	for _, name := range names {
		if !strings.HasPrefix(name, "index") {
			continue
		}
		kind, err := sys.text(dir + "/" + name + "/type")
		switch {
		case missing(err) || err == nil && (kind == "Data" || kind == "Instruction"):
			continue
		case err != nil:
			return nil, err
		case kind != "Unified":
			return nil, fmt.Errorf("%s: %q is not Unified, Data or Instruction", sys.at(dir+"/"+name+"/type"), kind)
		}
		level, err := sys.number(dir+"/"+name+"/level", 0)
		if missing(err) || err == nil && (bestLevel == 3 || level < bestLevel && level != 3) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list, err := sys.list(dir + "/" + name + "/shared_cpu_list")
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		best, bestLevel = intersect(list, online), level
		if len(best) == 0 {
			return nil, fmt.Errorf("%s: no online CPU shares the cache", sys.at(dir+"/"+name+"/shared_cpu_list"))
		}
	}
	if bestLevel < 3 && len(best) <= threads {
		return nil, nil
	}
	return best, nil
}
