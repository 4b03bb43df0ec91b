// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"regexp"
)

const devicesDir = "devices"

// hostBridge is a PCI host bridge in the directory of all devices: domain and bus.
// A firmware's own bridges, like those of Intel VMD, have domains of five digits.
var hostBridge = regexp.MustCompile(`^pci([0-9a-f]{4,8}:[0-9a-f]{2})$`)

// readPCIeRoots gives each node its PCI host bridges, and returns what it could not
// read. A bridge is local to a node if the node has all CPUs that the kernel calls
// local to the bridge's bus. For a bus without an affinity the kernel names all CPUs of
// the machine: then the bridge is local to a node only if this node has all CPUs.
//
// Source: Documentation/ABI/testing/sysfs-bus-pci (cpulistaffinity of pci_bus).
func (m *Machine) readPCIeRoots(sys source) (warnings []string) {
	names, err := sys.names(devicesDir)
	if err != nil {
		return []string{fmt.Sprintf("%v: no PCIe root is known", err)}
	}
	for _, name := range names {
		bridge := hostBridge.FindStringSubmatch(name)
		if bridge == nil {
			continue
		}
		local, err := sys.cpus(devicesDir + "/" + name + "/pci_bus/" + bridge[1] + "/cpulistaffinity")
		if missing(err) {
			continue
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%v: %s is local to no NUMA node", err, name))
			continue
		}
		for i, n := range m.NUMANodes {
			if !local.IsEmpty() && local.IsSubsetOf(n.CPUs) {
				m.NUMANodes[i].PCIeRoots = append(n.PCIeRoots, name)
			}
		}
	}
	return warnings
}
