// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// segment is a set of CPUs and NUMA nodes that becomes a zone.
type segment struct {
	name  string
	kind  Kind
	id    int
	cpus  []topology.CPU
	nodes []topology.NUMANode
}

func group(m topology.Machine, by Kind) ([]segment, error) {
	switch by {
	case NUMANode:
		return groupByNode(m, func(topology.NUMANode) bool { return true }), nil
	case Socket:
		return groupBySocket(m)
	case Machine:
		whole := segment{name: "machine", kind: Machine, cpus: m.CPUs}
		for _, n := range m.NUMANodes {
			if !withoutCPUs(n) {
				whole.nodes = append(whole.nodes, n)
			}
		}
		return append([]segment{whole}, groupByNode(m, withoutCPUs)...), nil
	}
	return nil, fmt.Errorf("groupBy %q: want %q, %q or %q", by, NUMANode, Socket, Machine)
}

func groupByNode(m topology.Machine, wanted func(topology.NUMANode) bool) []segment {
	var out []segment
	for _, n := range m.NUMANodes {
		if !wanted(n) {
			continue
		}
		s := segment{name: "numa-" + strconv.Itoa(n.ID), kind: NUMANode, id: n.ID, nodes: []topology.NUMANode{n}}
		for _, c := range m.CPUs {
			if c.Node == n.ID {
				s.cpus = append(s.cpus, c)
			}
		}
		out = append(out, s)
	}
	return out
}

// withoutCPUs reports whether the node has no CPUs. Such a node is always a
// zone of its own: the kernel knows no socket for it, and its memory is of
// another or an unknown kind.
func withoutCPUs(n topology.NUMANode) bool { return n.CPUs.IsEmpty() }

// groupBySocket gives each socket the nodes of its CPUs.
func groupBySocket(m topology.Machine) ([]segment, error) {
	sockets := make(map[int]*segment)
	socketOf := make(map[int]int)
	for _, c := range m.CPUs {
		s, seen := sockets[c.Socket]
		if !seen {
			s = &segment{name: "socket-" + strconv.Itoa(c.Socket), kind: Socket, id: c.Socket}
			sockets[c.Socket] = s
		}
		s.cpus = append(s.cpus, c)
		other, seen := socketOf[c.Node]
		if seen && other != c.Socket {
			return nil, fmt.Errorf("groupBy %s: NUMA node %d spans sockets %d and %d, "+
				"its memory cannot be divided between them; use %s or %s",
				Socket, c.Node, other, c.Socket, NUMANode, Machine)
		}
		socketOf[c.Node] = c.Socket
	}
	for _, n := range m.NUMANodes {
		if socket, found := socketOf[n.ID]; found {
			sockets[socket].nodes = append(sockets[socket].nodes, n)
		}
	}
	var out []segment
	for _, id := range slices.Sorted(maps.Keys(sockets)) {
		out = append(out, *sockets[id])
	}
	return append(out, groupByNode(m, withoutCPUs)...), nil
}
