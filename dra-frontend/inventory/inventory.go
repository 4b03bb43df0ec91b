// SPDX-License-Identifier: Apache-2.0

// Package inventory computes what a machine offers with a configuration: its
// zones, the devices published for them, and the inventory from which
// claims are prepared. The daemon and `cpumem simulate` both use it, so that
// they see the same machine. It is pure.
package inventory

import (
	"fmt"
	"reflect"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Inventory is a machine as it is offered at one moment.
type Inventory struct {
	Machine topology.Machine
	Zones   []zones.Zone
	// Pool is the shared pool while there is no claim.
	Pool zones.Pool
	// NodeAllocatable is the configuration's value.
	NodeAllocatable bool

	cut zones.Cut
}

// Compute divides the machine into zones. A configuration that does not fit is
// an error.
func Compute(c config.Config, m topology.Machine) (Inventory, error) {
	wanted, err := c.Zones()
	if err != nil {
		return Inventory{}, err
	}
	cut, err := zones.NewCut(m, wanted)
	if err != nil {
		return Inventory{}, fmt.Errorf("configuration does not fit this machine: %w", err)
	}
	return Inventory{
		Machine: m, Zones: cut.Offer(zones.Live{}), Pool: cut.Pool, NodeAllocatable: c.NodeAllocatable, cut: cut,
	}, nil
}

// ForDecisions returns the inventory that decisions depend on.
func (i Inventory) ForDecisions(c config.Config, bootID string) decision.Inventory {
	p := decision.Inventory{
		Zones: make(map[string]decision.Zone, len(i.Zones)),
		Pick:  placement.NewLayout(i.Machine).Pick,
		Base: nodestate.Base{
			BootID: bootID, CPUs: i.Pool.CPUs, UnmanagedCPUs: i.Pool.UnmanagedCPUs, Mems: i.Pool.Mems,
			Protect: c.MemoryQoS.Owner == config.OwnerDriver,
		},
	}
	for _, z := range i.Zones {
		p.Zones[z.Name] = decision.Zone{CPUs: z.CPUs, Mems: z.Mems}
	}
	return p
}

// Devices returns the devices of zones of the inventory, all with the taints.
func (i Inventory) Devices(zs []zones.Zone, taints []resourceapi.DeviceTaint) []resourceapi.Device {
	return resourceslices.Devices(zs, resourceslices.Options{Taints: taints, NodeAllocatable: i.NodeAllocatable})
}

// Names returns the zones' names.
func (i Inventory) Names() []string {
	names := make([]string, len(i.Zones))
	for k, z := range i.Zones {
		names[k] = z.Name
	}
	return names
}

// LeftOut returns the parts of the machine that are not offered.
func (i Inventory) LeftOut() []zones.LeftOut { return i.cut.LeftOut() }

// Equal reports whether both offer the same zones and shared pool.
func (i Inventory) Equal(other Inventory) bool {
	return reflect.DeepEqual(i.Zones, other.Zones) && reflect.DeepEqual(i.Pool, other.Pool)
}
