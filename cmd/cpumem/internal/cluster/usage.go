// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Node is a node that publishes zones.
type Node struct {
	Name  string `json:"name"`
	Zones []Zone `json:"zones"`
	// Problem is why the scheduler takes no zone of the node, empty if it takes them.
	Problem string `json:"problem,omitempty"`
}

// Zone is a device with its claimed amounts.
type Zone struct {
	Name string `json:"name"`
	// Capacities are sorted: cpu, memory, hugepages.
	Capacities []Capacity `json:"capacities"`
	// Claims is the number of claims that have an amount of the zone.
	Claims int `json:"claims"`
	// ClaimedCPUs are the ids that the claims' status names. A claim whose pod has not
	// started has none.
	ClaimedCPUs contract.CPUSet `json:"claimedCPUs,omitzero"`
	// Blocks are what is free in one piece, nil if it is not known: the zone does not
	// publish its layout, or has claims whose CPUs are not decided yet.
	Blocks *cpulayout.Blocks `json:"freeBlocks,omitempty"`
	// Taints keep claims off the zone, as key=value:effect.
	Taints []string `json:"taints,omitempty"`

	// Device is the zone as it is published.
	Device resourceapi.Device `json:"-"`
}

// Capacity is an amount of a zone, in CPUs or bytes.
type Capacity struct {
	Name  string `json:"name"`
	Total int64  `json:"total"`
	Used  int64  `json:"used"`
}

// Free returns what claims can get. It is negative if the node publishes less than
// before, and less than is claimed.
func (c Capacity) Free() int64 { return c.Total - c.Used }

// Capacity returns the zone's capacity of the name.
func (z Zone) Capacity(name string) (Capacity, bool) {
	i := slices.IndexFunc(z.Capacities, func(c Capacity) bool { return c.Name == name })
	if i < 0 {
		return Capacity{}, false
	}
	return z.Capacities[i], true
}

// Usage returns the nodes that publish zones of this driver, by name, each with its
// zones in the order of publication.
func Usage(o Objects) []Node {
	pools := make(map[string][]*resourceapi.ResourceSlice)
	for _, s := range o.Slices {
		if s.Spec.Driver == kubelet.DriverName {
			pools[s.Spec.Pool.Name] = append(pools[s.Spec.Pool.Name], s)
		}
	}
	claimed := claimsOf(o.Claims)
	nodes := make([]Node, 0, len(pools))
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		nodes = append(nodes, nodeOf(name, pools[name], claimed))
	}
	return nodes
}

// nodeOf returns the node of a slice pool: the scheduler counts the slices of the
// highest generation, and takes none before all of them are there.
func nodeOf(pool string, all []*resourceapi.ResourceSlice, claimed map[device]taken) Node {
	node := Node{Name: pool, Zones: []Zone{}}
	newest := slices.MaxFunc(all, func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation)
	}).Spec.Pool
	all = slices.DeleteFunc(all, func(s *resourceapi.ResourceSlice) bool { return s.Spec.Pool.Generation != newest.Generation })
	slices.SortFunc(all, func(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	if int64(len(all)) != newest.ResourceSliceCount {
		node.Problem = fmt.Sprintf("%d of %d ResourceSlices are there", len(all), newest.ResourceSliceCount)
	}
	for _, s := range all {
		for _, d := range s.Spec.Devices {
			node.Zones = append(node.Zones, zoneOf(d, claimed[device{pool, d.Name}]))
		}
	}
	if len(node.Zones) == 0 {
		node.Problem = "it publishes no zone: the log of its frontend has the reason"
	}
	slices.SortStableFunc(node.Zones, func(a, b Zone) int { return CompareNames(a.Name, b.Name) })
	return node
}

// CompareNames sorts numa-2 before numa-10.
func CompareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func zoneOf(d resourceapi.Device, t taken) Zone {
	z := Zone{Name: d.Name, Claims: t.claims, ClaimedCPUs: t.cpus, Device: d}
	for _, name := range slices.SortedFunc(maps.Keys(d.Capacity), byKind) {
		used := t.amounts[name]
		z.Capacities = append(z.Capacities, Capacity{
			Name: string(name), Total: new(d.Capacity[name].Value).Value(), Used: used.Value(),
		})
	}
	z.Blocks = z.blocks()
	for _, taint := range d.Taints {
		z.Taints = append(z.Taints, Taint(taint))
	}
	return z
}

func (z Zone) blocks() *cpulayout.Blocks {
	cpus, _ := z.Capacity(string(zones.CapacityCPU))
	layout, published := z.Device.Attributes[resourceslices.AttributeCPULayout]
	threads := z.Device.Attributes[resourceslices.AttributeThreadsPerCore].IntValue
	if !published || layout.StringValue == nil || threads == nil || cpus.Used > int64(z.ClaimedCPUs.Size()) {
		return nil
	}
	l, err := cpulayout.Parse(*layout.StringValue)
	if err != nil {
		// A newer frontend may publish another form.
		return nil
	}
	return new(l.Free(z.ClaimedCPUs, int(*threads)).Within(int(cpus.Free()), int(*threads)))
}

// Taint returns the text of a taint, key=value:effect, as kubectl writes it.
func Taint(t resourceapi.DeviceTaint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return text + ":" + string(t.Effect)
}

// byKind sorts cpu before memory before hugepages, and these by their size.
func byKind[S ~string](a, b S) int {
	rank := func(n S) int {
		switch resourceapi.QualifiedName(n) {
		case zones.CapacityCPU:
			return 0
		case zones.CapacityMemory:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// device is a device of this driver, by slice pool and name.
type device struct{ pool, name string }

// taken is what claims take of a device.
type taken struct {
	amounts map[resourceapi.QualifiedName]resource.Quantity
	claims  int
	cpus    contract.CPUSet
}

// claimsOf returns what the allocated claims take.
func claimsOf(claims []*resourceapi.ResourceClaim) map[device]taken {
	out := make(map[device]taken)
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		counted := make(map[device]bool)
		for _, r := range c.Status.Allocation.Devices.Results {
			// As in the scheduler, access of an administrator takes nothing.
			if r.Driver != kubelet.DriverName || r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			d := device{r.Pool, r.Device}
			t := out[d]
			if t.amounts == nil {
				t.amounts = make(map[resourceapi.QualifiedName]resource.Quantity)
			}
			for name, q := range r.ConsumedCapacity {
				sum := t.amounts[name]
				sum.Add(q)
				t.amounts[name] = sum
			}
			if !counted[d] {
				t.claims++
			}
			counted[d] = true
			t.cpus = t.cpus.Union(Decided(c, r).CPUs)
			out[d] = t
		}
	}
	return out
}

// Decided returns the decision that the frontend wrote into the claim's status for the
// result. It is empty if the claim is not prepared, or if its status cannot be read:
// other clients may write there, too.
func Decided(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) claimstatus.Data {
	var data claimstatus.Data
	if s := statusOf(c, r); s != nil && s.Data != nil && json.Unmarshal(s.Data.Raw, &data) == nil {
		return data
	}
	return claimstatus.Data{}
}

// statusOf returns the entry in the claim's status for the result, nil without one.
func statusOf(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) *resourceapi.AllocatedDeviceStatus {
	share := ""
	if r.ShareID != nil {
		share = string(*r.ShareID)
	}
	for i, s := range c.Status.Devices {
		of := ""
		if s.ShareID != nil {
			of = *s.ShareID
		}
		if s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device && of == share {
			return &c.Status.Devices[i]
		}
	}
	return nil
}
