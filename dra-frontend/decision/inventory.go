// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// InventoryOf returns the inventory of a machine that a configuration divides.
func InventoryOf(c config.Config, divided zones.Division, bootID string) Inventory {
	i := Inventory{
		Zones: make(map[string]Zone, len(divided.Zones)),
		Pick:  placement.NewLayout(divided.Machine).Pick,
		Base: nodestate.Base{
			BootID: bootID, CPUs: divided.Pool.CPUs, UnmanagedCPUs: divided.Pool.UnmanagedCPUs, Mems: divided.Pool.Mems,
			Online: divided.Machine.Online(), Protect: c.MemoryQoS.Owner == config.OwnerDriver,
		},
	}
	for _, z := range divided.Zones {
		i.Zones[z.Name] = Zone{CPUs: z.CPUs, Mems: z.Mems}
	}
	return i
}
