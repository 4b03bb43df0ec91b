// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"reflect"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/cpuset"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/plugin"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// machine is the node as it is offered at one moment.
type machine struct {
	zones     []zones.Zone
	inventory plugin.Inventory
}

// discover reads the machine and cuts it into zones.
func discover(c config.Config, pageSize int64, bootID string) (*machine, error) {
	topo, err := topology.Discover(topology.Roots{Sys: os.DirFS(c.SysfsRoot), Proc: os.DirFS(c.ProcRoot)}, pageSize)
	if err != nil {
		return nil, fmt.Errorf("read the machine: %w", err)
	}
	cut, err := c.Zones()
	if err != nil {
		return nil, err
	}
	zs, pool, err := zones.Compute(topo, cut)
	if err != nil {
		return nil, fmt.Errorf("configuration does not fit this machine: %w", err)
	}
	layout := placement.NewLayout(topo)
	wishes := placement.Options{Placement: c.CPU.Placement, WholeCores: c.CPU.WholeCores}
	m := &machine{
		zones: zs,
		inventory: plugin.Inventory{
			Zones:    make(map[string]plugin.Zone, len(zs)),
			PageSize: pageSize,
			Pick: func(free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
				return layout.Pick(free, n, wishes)
			},
			Base: nodestate.Base{
				BootID: bootID, CPUs: pool.CPUs, Mems: cpuset.New(pool.Mems...),
				Protect: c.MemoryQoS.Owner == config.OwnerDriver, Hugepages: c.Hugepages.Limits != "unchanged",
			},
		},
	}
	for _, z := range zs {
		m.inventory.Zones[z.Name] = plugin.Zone{CPUs: z.CPUs, Mems: contract.FormatList(z.Mems)}
	}
	return m, nil
}

func (m *machine) devices(taints []resourceapi.DeviceTaint) []resourceapi.Device {
	return resourceslices.Devices(m.zones, resourceslices.Options{PageSize: m.inventory.PageSize, Taints: taints})
}

func (m *machine) names() []string {
	names := make([]string, len(m.zones))
	for i, z := range m.zones {
		names[i] = z.Name
	}
	return names
}

// equal tells whether both offer the same.
func (m *machine) equal(other *machine) bool {
	return reflect.DeepEqual(m.zones, other.zones) && reflect.DeepEqual(m.inventory.Base, other.inventory.Base)
}
