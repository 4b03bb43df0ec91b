// SPDX-License-Identifier: Apache-2.0

package description

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/fields"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Machine is a machine as people describe it in YAML: a regular machine, with
// optional additions.
type Machine struct {
	Sockets            int `json:"sockets"`
	NUMANodesPerSocket int `json:"numaNodesPerSocket"`
	L3sPerNUMANode     int `json:"l3sPerNUMANode"`
	CoresPerL3         int `json:"coresPerL3"`
	ThreadsPerCore     int `json:"threadsPerCore"`
	// EfficiencyCoresPerL3 are added, with one thread each; all other cores are
	// performance cores then.
	EfficiencyCoresPerL3 int `json:"efficiencyCoresPerL3"`
	// AdjacentSiblings numbers the threads of a core one after the other; else
	// all first threads come before all second threads.
	AdjacentSiblings bool `json:"adjacentSiblings"`
	// OfflineCPUs is a list of CPU ids.
	OfflineCPUs string `json:"offlineCPUs"`

	PageSize          string            `json:"pageSize"`
	MemoryPerNUMANode resource.Quantity `json:"memoryPerNUMANode"`
	// HugepagesPerNUMANode maps page size to pages.
	HugepagesPerNUMANode map[string]int64 `json:"hugepagesPerNUMANode"`
	MemoryOnlyNodes      []MemoryOnlyNode `json:"memoryOnlyNodes"`
}

// MemoryOnlyNode is a NUMA node without CPUs.
type MemoryOnlyNode struct {
	// Type is cxl, hbm or unknown.
	Type      topology.MemoryType `json:"type"`
	Memory    resource.Quantity   `json:"memory"`
	Hugepages map[string]int64    `json:"hugepages"`
	// Socket is the nearest socket.
	Socket int `json:"socket"`
}

// Parse reads a description; missing keys mean one of each part. Unknown,
// duplicate and miscased keys are errors.
func Parse(data []byte) (Spec, error) {
	m := Machine{
		Sockets: 1, NUMANodesPerSocket: 1, L3sPerNUMANode: 1, CoresPerL3: 1, ThreadsPerCore: 1,
		PageSize: "4Ki", MemoryPerNUMANode: resource.MustParse("16Gi"),
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Spec{}, err
	}
	if string(asJSON) == "null" {
		return Spec{}, errors.New("the description of the machine is empty")
	}
	if wrong := fields.Decode(asJSON, &m); len(wrong) > 0 {
		return Spec{}, errors.Join(wrong...)
	}
	return m.spec()
}

// Limits, roughly the kernel's. They bound the product of all counts.
const (
	maxCPUs   = 8192
	maxNodes  = 1024
	maxMemory = int64(1) << 46
)

// Distances between nodes of one socket, of two sockets, and to memory-only
// nodes.
const (
	near, far  = 12, 32
	memoryOnly = 20
)

// Memory tiers; a lower tier is faster.
const (
	hbmTier  = 2
	dramTier = 4
)

func (m Machine) spec() (Spec, error) {
	cpus := 1
	for _, c := range []struct {
		key   string
		value int
	}{
		{"sockets", m.Sockets}, {"numaNodesPerSocket", m.NUMANodesPerSocket}, {"l3sPerNUMANode", m.L3sPerNUMANode},
		{"coresPerL3", m.CoresPerL3}, {"threadsPerCore", m.ThreadsPerCore},
	} {
		if c.value < 1 || c.value > maxCPUs {
			return Spec{}, fmt.Errorf("%s: %d, want 1 to %d", c.key, c.value, maxCPUs)
		}
		if cpus *= c.value; cpus > maxCPUs {
			return Spec{}, fmt.Errorf("%s: the machine would have more than %d CPUs", c.key, maxCPUs)
		}
	}
	l3s := m.Sockets * m.NUMANodesPerSocket * m.L3sPerNUMANode
	if m.EfficiencyCoresPerL3 < 0 || m.EfficiencyCoresPerL3 > (maxCPUs-cpus)/l3s {
		return Spec{}, fmt.Errorf("efficiencyCoresPerL3: %d, want 0 or more, and a machine of at most %d CPUs",
			m.EfficiencyCoresPerL3, maxCPUs)
	}
	if nodes := m.Sockets*m.NUMANodesPerSocket + len(m.MemoryOnlyNodes); nodes > maxNodes {
		return Spec{}, fmt.Errorf("%d NUMA nodes, want at most %d", nodes, maxNodes)
	}
	page, err := contract.ParsePageSize(m.PageSize)
	if err != nil {
		return Spec{}, fmt.Errorf("pageSize: %w", err)
	}
	memory, pages, err := amounts(m.MemoryPerNUMANode, m.HugepagesPerNUMANode)
	if err != nil {
		return Spec{}, fmt.Errorf("memoryPerNUMANode, hugepagesPerNUMANode: %w", err)
	}
	s := Regular{
		Sockets: m.Sockets, Nodes: m.NUMANodesPerSocket, L3s: m.L3sPerNUMANode, Cores: m.CoresPerL3, Threads: m.ThreadsPerCore,
		PageSize: page, Memory: memory, Hugepages: pages, Adjacent: m.AdjacentSiblings,
	}.Spec()
	s.Present = true
	m.addEfficiencyCores(&s)
	for i, n := range m.MemoryOnlyNodes {
		if err := m.addMemoryOnly(&s, n); err != nil {
			return Spec{}, fmt.Errorf("memoryOnlyNodes[%d]: %w", i, err)
		}
	}
	m.measure(&s)
	return s, m.takeOffline(&s)
}

func amounts(memory resource.Quantity, hugepages map[string]int64) (int64, map[int64]int64, error) {
	bytes := memory.Value()
	if bytes < 0 || bytes > maxMemory {
		return 0, nil, fmt.Errorf("memory of %s, want 0 to 64Ti", memory.String())
	}
	pages, left := make(map[int64]int64, len(hugepages)), bytes
	for _, key := range slices.Sorted(maps.Keys(hugepages)) {
		size, err := contract.ParsePageSize(key)
		if err != nil {
			return 0, nil, err
		}
		n := hugepages[key]
		if n < 0 || n > left/size {
			return 0, nil, fmt.Errorf("%d pages of %s, want 0 or more and no more than there is memory (%s)", n, key, memory.String())
		}
		left -= n * size
		pages[size] = n
	}
	return bytes, pages, nil
}

// addEfficiencyCores adds the efficiency cores after all other CPUs.
func (m Machine) addEfficiencyCores(s *Spec) {
	if m.EfficiencyCoresPerL3 == 0 {
		return
	}
	for i := range s.CPUs {
		s.CPUs[i].Type = topology.CPUPerformance
	}
	cores := len(s.CPUs) / m.ThreadsPerCore
	for l3 := range m.Sockets * m.NUMANodesPerSocket * m.L3sPerNUMANode {
		node := l3 / m.L3sPerNUMANode
		for range m.EfficiencyCoresPerL3 {
			s.CPUs = append(s.CPUs, CPU{
				ID: len(s.CPUs), Core: cores, CoreID: cores, Cluster: NoCluster, L3: l3, Node: node,
				Socket: node / m.NUMANodesPerSocket, Type: topology.CPUEfficiency,
			})
			cores++
		}
	}
}

// addMemoryOnly adds a node with the evidence for its type of memory.
func (m Machine) addMemoryOnly(s *Spec, n MemoryOnlyNode) error {
	if n.Socket < 0 || n.Socket >= m.Sockets {
		return fmt.Errorf("socket %d, want 0 to %d", n.Socket, m.Sockets-1)
	}
	memory, pages, err := amounts(n.Memory, n.Hugepages)
	if err != nil {
		return err
	}
	node := Node{ID: len(s.Nodes), Memory: memory, Hugepages: pages}
	switch n.Type {
	case topology.MemoryCXL:
		node.DAX = CXL
	case topology.MemoryHBM:
		node.Tier = hbmTier
		for i := range m.Sockets * m.NUMANodesPerSocket {
			s.Nodes[i].Tier = dramTier
		}
	case topology.MemoryUnknown:
	default:
		return fmt.Errorf("type %q, want one of %q",
			n.Type, []topology.MemoryType{topology.MemoryCXL, topology.MemoryHBM, topology.MemoryUnknown})
	}
	s.Nodes = append(s.Nodes, node)
	return nil
}

// measure sets the distances.
func (m Machine) measure(s *Spec) {
	withCPUs := m.Sockets * m.NUMANodesPerSocket
	socket := func(node int) int {
		if node >= withCPUs {
			return m.MemoryOnlyNodes[node-withCPUs].Socket
		}
		return node / m.NUMANodesPerSocket
	}
	for a := range s.Nodes {
		for b := range s.Nodes {
			d := near
			switch {
			case a == b:
				d = 10
			case socket(a) != socket(b):
				d = far
			case a >= withCPUs || b >= withCPUs:
				d = memoryOnly
			}
			s.Nodes[a].Distances = append(s.Nodes[a].Distances, d)
		}
	}
}

func (m Machine) takeOffline(s *Spec) error {
	offline, err := contract.ParseCPUs(m.OfflineCPUs)
	if err != nil {
		return fmt.Errorf("offlineCPUs: %w", err)
	}
	if offline.Size() == len(s.CPUs) {
		return errors.New("offlineCPUs: no CPU would be online")
	}
	for _, id := range offline.List() {
		i := slices.IndexFunc(s.CPUs, func(c CPU) bool { return c.ID == id })
		if i < 0 {
			return fmt.Errorf("offlineCPUs: the machine has CPUs 0 to %d, not %d", len(s.CPUs)-1, id)
		}
		s.CPUs[i].Offline = true
	}
	return nil
}
