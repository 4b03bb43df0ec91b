// SPDX-License-Identifier: Apache-2.0

// Package health finds what prepared claims lack. Check compares their amounts
// with the machine: CPUs can go offline or to another program, page pools shrink and partitions be lost
// under a running claim. CheckProtection compares their memory protection with the
// cgroups. A claim keeps its decision in any case; the daemon reports the device to
// kubelet and the result in the claim's status.
package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Reasons of findings, in the form of Kubernetes' conditions.
const (
	ReasonCPUs      = "CPUsOffline"
	ReasonTaken     = "CPUsTaken"
	ReasonMemory    = "MemoryShort"
	ReasonHugepages = "HugepagesShort"
	ReasonPartition = "PartitionInvalid"
)

// Reasons returns all reasons of findings.
func Reasons() []string {
	return []string{ReasonCPUs, ReasonTaken, ReasonMemory, ReasonHugepages, ReasonPartition}
}

const separator = "; "

// Finding is a part of a result that the machine lacks.
type Finding struct {
	Reason  string
	Message string
}

// Report has the unhealthy devices and results only.
type Report struct {
	// Devices has the problem of each device by name.
	Devices map[string]string
	// ByReason has the devices with a problem of each reason, each device once.
	ByReason map[string][]string
	// Results has the findings of results. With several findings about one
	// result, the first gives the reason and the message has all.
	Results map[contract.Key]Finding
}

// Check compares the claims with the machine. invalid has the kernel's reasons
// for lost partitions by claim UID.
func Check(m topology.Machine, claims []contract.ClaimRecord, invalid map[string]string) Report {
	r := Report{Devices: make(map[string]string), ByReason: make(map[string][]string), Results: make(map[contract.Key]Finding)}
	devices := make(map[string]*zone)
	online := m.Online()
	for _, c := range claims {
		for i, result := range c.Results {
			held := contract.Key{ClaimUID: c.UID, Index: i}
			if off := result.Decision.CPUs.Difference(online); !off.IsEmpty() {
				r.add(result.Device, ReasonCPUs,
					fmt.Sprintf("CPUs %s of a claim's CPUs %s are offline", off, result.Decision.CPUs), held)
			}
			// The CPUs of claims' partitions are not in Restricted.
			if taken := result.Decision.CPUs.Intersection(m.Restricted); !taken.IsEmpty() {
				r.add(result.Device, ReasonTaken, fmt.Sprintf("CPUs %s of a claim's CPUs %s are taken: a cpuset above all pods "+
					"leaves them out, or another program has made a partition of them", taken, result.Decision.CPUs), held)
			}
			if why, found := invalid[c.UID]; found && result.Decision.Partition != "" {
				r.add(result.Device, ReasonPartition,
					fmt.Sprintf("other containers may run on CPUs %s of a claim: the kernel does not grant its cpuset partition (%.200q)",
						result.Decision.CPUs, why), held)
			}
			if devices[result.Device] == nil {
				devices[result.Device] = &zone{held: make(map[int64]int64), holders: make(map[int64][]contract.Key)}
			}
			devices[result.Device].add(result, held)
		}
	}
	for _, device := range slices.Sorted(maps.Keys(devices)) {
		z := devices[device]
		for _, page := range slices.Sorted(maps.Keys(z.held)) {
			if has := z.has(m, page); has < z.held[page] {
				what, reason := string(zones.CapacityMemory), ReasonMemory
				if page != zones.BasePages {
					what, reason = string(zones.CapacityHugepages(page)), ReasonHugepages
				}
				r.add(device, reason, fmt.Sprintf("NUMA nodes %s have %d bytes of %s, less than the %d bytes held by %s",
					z.mems, has, what, z.held[page], count(z.holders[page])), z.holders[page]...)
			}
		}
	}
	return r
}

func (r Report) add(device, reason, message string, holders ...contract.Key) {
	r.Devices[device] = join(r.Devices[device], message)
	if !slices.Contains(r.ByReason[reason], device) {
		r.ByReason[reason] = append(r.ByReason[reason], device)
	}
	for _, h := range holders {
		f := r.Results[h]
		if f.Reason == "" {
			f.Reason = reason
		}
		f.Message = join(f.Message, message)
		r.Results[h] = f
	}
}

// join adds a message to messages, once.
func join(messages, message string) string {
	if messages == "" {
		return message
	}
	if slices.Contains(strings.Split(messages, separator), message) {
		return messages
	}
	return messages + separator + message
}

// count returns the number of claims in words. Messages name no claim: kubelet shows the
// message of a device in the status of each pod that uses the device, of any namespace.
func count(holders []contract.Key) string {
	claims := make(map[string]bool)
	for _, h := range holders {
		claims[h.ClaimUID] = true
	}
	if len(claims) == 1 {
		return "1 claim"
	}
	return fmt.Sprintf("%d claims", len(claims))
}

// zone has the memory that claims hold of a device, in bytes by page size.
type zone struct {
	mems    contract.NUMANodeSet
	held    map[int64]int64
	holders map[int64][]contract.Key
}

// add takes the NUMA nodes from the decision: the configuration, and with it the
// zones, may have changed since the decision.
func (z *zone) add(r contract.ResultRecord, h contract.Key) {
	for page, bytes := range zones.HeldMemory(r) {
		z.held[page] += bytes
		z.holders[page] = append(z.holders[page], h)
	}
	z.mems = z.mems.Union(r.Decision.Mems)
}

// has returns the bytes that the zone's NUMA nodes have of a page size.
func (z *zone) has(m topology.Machine, page int64) int64 {
	total := int64(0)
	for _, id := range z.mems.List() {
		n, _ := m.Node(id)
		if page != zones.BasePages {
			total += n.Hugepages[page] * page
			continue
		}
		total += n.MemTotal
		for size, pages := range n.Hugepages {
			total -= pages * size
		}
	}
	return total
}
