// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Reserved returns ReservedCPUs as a set.
func (c Config) Reserved() contract.CPUSet { return mustCPUs(c.ReservedCPUs) }

// Managed returns ManagedCPUs as a set, empty for all.
func (c Config) Managed() contract.CPUSet { return mustCPUs(c.ManagedCPUs) }

// mustCPUs parses a list that Parse has checked.
func mustCPUs(s string) contract.CPUSet {
	set, err := contract.ParseCPUs(s)
	if err != nil {
		panic(err)
	}
	return set
}

// ReservedMemoryBytes returns ReservedMemory in bytes by NUMA node id.
func (c Config) ReservedMemoryBytes() (map[int]int64, error) {
	out := make(map[int]int64, len(c.ReservedMemory))
	for _, key := range slices.Sorted(maps.Keys(c.ReservedMemory)) {
		node, err := nodeID("reservedMemory", key)
		if err != nil {
			return nil, err
		}
		q := c.ReservedMemory[key]
		if q.Sign() < 0 {
			return nil, fmt.Errorf("reservedMemory.%s: %s is negative", key, q.String())
		}
		// Value rounds fractions up, and is 0 for some amounts that an int64 cannot have.
		bytes := q.Value()
		if resource.NewQuantity(bytes, q.Format).Cmp(q) != 0 {
			return nil, fmt.Errorf("reservedMemory.%s: %s, want whole bytes, such as 512Mi", key, q.String())
		}
		out[node] = bytes
	}
	return out, nil
}

// ReservedHugepageCounts returns ReservedHugepages as pages by NUMA node id
// and page size in bytes.
func (c Config) ReservedHugepageCounts() (map[int]map[int64]int64, error) {
	out := make(map[int]map[int64]int64, len(c.ReservedHugepages))
	for _, key := range slices.Sorted(maps.Keys(c.ReservedHugepages)) {
		node, err := nodeID("reservedHugepages", key)
		if err != nil {
			return nil, err
		}
		out[node] = make(map[int64]int64)
		for size, pages := range c.ReservedHugepages[key] {
			bytes, err := contract.ParsePageSize(size)
			if err != nil {
				return nil, fmt.Errorf("reservedHugepages.%s: %w", key, err)
			}
			if pages < 0 {
				return nil, fmt.Errorf("reservedHugepages.%s.%s: %d pages, want 0 or more", key, size, pages)
			}
			out[node][bytes] = pages
		}
	}
	return out, nil
}

// Divide divides a machine into zones. A configuration that does not fit the
// machine is an error.
func (c Config) Divide(m topology.Machine) (zones.Division, error) {
	wanted, err := c.ZonesConfig()
	if err != nil {
		return zones.Division{}, err
	}
	divided, err := zones.Divide(m, wanted)
	if err != nil {
		return zones.Division{}, fmt.Errorf("configuration does not fit this machine: %w", err)
	}
	return divided, nil
}

// ZonesConfig returns the configuration that package zones needs.
func (c Config) ZonesConfig() (zones.Config, error) {
	memory, err := c.ReservedMemoryBytes()
	if err != nil {
		return zones.Config{}, err
	}
	hugepages, err := c.ReservedHugepageCounts()
	if err != nil {
		return zones.Config{}, err
	}
	kinds := make([]topology.MemoryType, len(c.MemoryTypes))
	for i, kind := range c.MemoryTypes {
		kinds[i] = topology.MemoryType(kind)
	}
	return zones.Config{
		GroupBy: zones.Kind(c.GroupBy), ReservedCPUs: c.Reserved(), ManagedCPUs: c.Managed(),
		ReservedMemory: memory, ReservedHugepages: hugepages, MemoryTypes: kinds, OfferIsolated: c.OfferIsolcpus,
		SharedMode: zones.PoolMode(c.SharedPool.Mode), SharedMinCPUs: c.SharedPool.MinCPUs, WholeCores: c.CPU.WholeCores,
	}, nil
}

func nodeID(what, key string) (int, error) {
	id, err := strconv.Atoi(key)
	if err != nil || id < 0 || strconv.Itoa(id) != key {
		return 0, fmt.Errorf("%s: key %q is not a NUMA node id", what, key)
	}
	return id, nil
}
