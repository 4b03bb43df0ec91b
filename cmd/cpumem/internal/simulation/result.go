// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Result is the outcome for all pods. CPUs and NUMA nodes are in the kernel's
// list format, amounts are in bytes.
type Result struct {
	Machine Machine `json:"machine"`
	Zones   []Zone  `json:"zones"`
	// OutsideZones are the L3s of CPUs outside all zones.
	OutsideZones []L3 `json:"outsideZones,omitempty"`
	// Claims are in the order of the pods that use them.
	Claims []Claim `json:"claims"`
	CPUs   CPUs    `json:"cpus"`
	// NodeState is the node state that the frontend would write.
	NodeState contract.NodeState `json:"nodeState"`
}

// Machine is the size of the machine.
type Machine struct {
	Sockets   int   `json:"sockets"`
	NUMANodes int   `json:"numaNodes"`
	CPUs      int   `json:"cpus"`
	PageSize  int64 `json:"pageSize"`
}

// Zone is a device with its hardware.
type Zone struct {
	Name string `json:"name"`
	// CPU counts CPUs.
	CPU       Usage                `json:"cpu"`
	Memory    Usage                `json:"memory"`
	Hugepages map[string]Usage     `json:"hugepages,omitempty"`
	Mems      contract.NUMANodeSet `json:"mems"`
	// MemoryType is dram, hbm, cxl or unknown, empty without memory.
	MemoryType topology.MemoryType `json:"memoryType,omitempty"`
	L3s        []L3                `json:"l3s"`
}

// Usage is a capacity and its used amount, as the scheduler counts them.
type Usage struct {
	Used     int64 `json:"used"`
	Capacity int64 `json:"capacity"`
}

// L3 is the part of a last-level cache that has cores of one kind.
type L3 struct {
	// ID is the lowest CPU of the cache.
	ID   int              `json:"id"`
	Node int              `json:"numaNode"`
	Type topology.CPUType `json:"cpuType"`
	// Cores has the CPUs of each core.
	Cores []contract.CPUSet `json:"cores"`
}

// Lacking returns how many claims are not allocated, or cannot be used by each of their pods.
func (r Result) Lacking() int {
	n := 0
	for _, c := range r.Claims {
		// The reason of an allocated claim is that of a pod that cannot share it.
		if c.Result != Allocated || c.Reason != "" {
			n++
		}
	}
	return n
}

// State is how far a claim got.
type State string

// States of claims.
const (
	// Allocated claims were prepared: their pods run.
	Allocated State = "allocated"
	// Unschedulable claims have no zone: their pods are pending.
	Unschedulable State = "unschedulable"
	// Refused claims have a zone and could not be prepared there: their pods
	// are created and do not start.
	Refused State = "refused"
)

// Claim is the outcome for one claim.
type Claim struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Pods      []string `json:"pods"`
	Result    State    `json:"result"`
	// Reason is the message for the user: why the claim has no zone, why it was
	// refused, or why a later pod cannot share an allocated claim.
	Reason string `json:"reason,omitempty"`
	// CPUs are all CPUs that the claim holds.
	CPUs    contract.CPUSet `json:"cpus,omitzero"`
	Results []Request       `json:"results,omitempty"`
	// Devices are the claim's devices of other drivers.
	Devices []Device `json:"devices,omitempty"`
}

// Device is a device of another driver that a claim got.
type Device struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Device  string `json:"device"`
}

// Request is a request of a claim that got its share of a zone.
type Request struct {
	Request  string            `json:"request"`
	Zone     string            `json:"zone"`
	Consumed map[string]string `json:"consumed"`
	// RoundedFrom has the amounts of the claim that the scheduler rounded up.
	RoundedFrom map[string]string `json:"roundedFrom,omitempty"`
	// Decision and Parameters are missing if the claim was refused.
	Decision   *contract.Decision `json:"decision,omitempty"`
	Parameters map[string]string  `json:"parameters,omitempty"`
}

// CPUs lists the CPUs that no claim holds, by their use.
type CPUs struct {
	// Shared is the shared pool; in dynamic mode it includes reserved CPUs.
	Shared    contract.CPUSet `json:"shared"`
	Reserved  contract.CPUSet `json:"reserved,omitzero"`
	Unmanaged contract.CPUSet `json:"others,omitzero"`
	Offline   contract.CPUSet `json:"offline,omitzero"`
}

func (s *simulation) result(c config.Config) (Result, error) {
	state, _ := s.ledger.Node()
	shared := state.PoolCPUs()
	m := s.offered.Machine
	out := Result{
		Machine:   Machine{NUMANodes: len(m.NUMANodes), CPUs: len(m.CPUs), PageSize: m.PageSize},
		Zones:     []Zone{},
		Claims:    []Claim{},
		NodeState: state,
		CPUs: CPUs{
			Shared: shared, Unmanaged: state.Shared.UnmanagedCPUs, Offline: m.Offline,
			Reserved: c.Reserved().Intersection(m.Online()),
		},
	}
	sockets := make(map[int]bool)
	for _, cpu := range m.CPUs {
		sockets[cpu.Socket] = true
	}
	out.Machine.Sockets = len(sockets)
	drawn := make(map[int]bool)
	for _, z := range s.offered.Zones {
		cpus := cpusOf(z, m)
		for _, cpu := range cpus {
			drawn[cpu.ID] = true
		}
		out.Zones = append(out.Zones, s.zone(z, l3sOf(cpus)))
	}
	var rest []topology.CPU
	for _, cpu := range m.CPUs {
		if !drawn[cpu.ID] {
			rest = append(rest, cpu)
		}
	}
	if len(rest) > 0 {
		out.OutsideZones = l3sOf(rest)
	}
	seen := make(map[key]bool)
	for _, pod := range s.objects.pods {
		for _, claim := range s.objects.ClaimsOf(pod) {
			id := key{claim.Namespace, claim.Name}
			if seen[id] {
				continue
			}
			seen[id] = true
			result, err := s.claim(claim)
			if err != nil {
				return Result{}, err
			}
			out.Claims = append(out.Claims, result)
		}
	}
	return out, nil
}

func (s *simulation) zone(offered zones.Zone, l3s []L3) Zone {
	z := Zone{
		Name: offered.Name, Mems: offered.Mems, MemoryType: offered.MemoryType,
		L3s: l3s, Hugepages: make(map[string]Usage),
	}
	for capacity, value := range s.scheduler.capacities(z.Name) {
		used := s.scheduler.used(z.Name, capacity)
		usage := Usage{Used: used.Value(), Capacity: value.Value.Value()}
		switch capacity {
		case zones.CapacityCPU:
			z.CPU = usage
		case zones.CapacityMemory:
			z.Memory = usage
		default:
			if size, is := zones.HugepageSize(capacity); is {
				z.Hugepages[contract.FormatPageSize(size)] = usage
			}
		}
	}
	return z
}

func (s *simulation) claim(c *resourceapi.ResourceClaim) (Claim, error) {
	o := s.outcomes[c.UID]
	out := Claim{
		Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), Pods: o.pods, Result: o.state, Reason: o.reason,
	}
	if c.Status.Allocation == nil {
		return out, nil
	}
	record, _, err := s.record(c)
	if err != nil {
		return Claim{}, err
	}
	out.CPUs = record.CPUs()
	// The record has this driver's results, in the same order.
	decided := record.Results
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != kubelet.DriverName {
			out.Devices = append(out.Devices, Device{Request: r.Request, Driver: r.Driver, Device: r.Device})
			continue
		}
		request := Request{Request: r.Request, Zone: r.Device, Consumed: make(map[string]string, len(r.ConsumedCapacity))}
		for name, q := range r.ConsumedCapacity {
			request.Consumed[string(name)] = q.String()
		}
		request.RoundedFrom = rounded(c, r)
		if len(decided) > 0 {
			request.Decision, request.Parameters = &decided[0].Decision, decided[0].Parameters
			decided = decided[1:]
		}
		out.Results = append(out.Results, request)
	}
	return out, nil
}

// rounded returns the amounts of the request that differ from what the result has.
func rounded(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) map[string]string {
	var out map[string]string
	for name, wanted := range wantedBy(c, r.Request) {
		if granted := r.ConsumedCapacity[name]; granted.Cmp(wanted) != 0 {
			if out == nil {
				out = make(map[string]string)
			}
			out[string(name)] = wanted.String()
		}
	}
	return out
}

// wantedBy returns the amounts of a request, "request" or "request/subrequest".
func wantedBy(c *resourceapi.ResourceClaim, reference string) map[resourceapi.QualifiedName]resource.Quantity {
	name, sub, _ := strings.Cut(reference, "/")
	for _, r := range c.Spec.Devices.Requests {
		if r.Name != name {
			continue
		}
		if r.Exactly != nil && r.Exactly.Capacity != nil {
			return r.Exactly.Capacity.Requests
		}
		for _, s := range r.FirstAvailable {
			if s.Name == sub && s.Capacity != nil {
				return s.Capacity.Requests
			}
		}
	}
	return nil
}
