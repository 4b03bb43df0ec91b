// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// readTypes sets the type of each CPU: from the event sources that x86 has for
// each kind of core, else from part number and capacity (arm64).
func (m Machine) readTypes(sys source) error {
	for i := range m.CPUs {
		m.CPUs[i].Type = CPUStandard // CPUs of an earlier reading have its types
	}
	performance, err := readEventCPUs(sys, "devices/cpu_core/cpus")
	if err != nil {
		return err
	}
	efficiency, err := readEventCPUs(sys, "devices/cpu_atom/cpus")
	if err != nil {
		return err
	}
	lowPower, err := readEventCPUs(sys, "devices/cpu_lowpower/cpus")
	if err != nil {
		return err
	}
	efficiency = efficiency.Union(lowPower)
	if both := performance.Intersection(efficiency); !both.IsEmpty() {
		return fmt.Errorf("%s and %s or cpu_lowpower both name CPUs %s", sys.at("devices/cpu_core/cpus"), sys.at("devices/cpu_atom/cpus"), both)
	}
	if performance.IsEmpty() && efficiency.IsEmpty() {
		return m.readCapacities(sys)
	}
	for i := range m.CPUs {
		switch c := &m.CPUs[i]; {
		case performance.Contains(c.ID):
			c.Type = CPUPerformance
		case efficiency.Contains(c.ID):
			c.Type = CPUEfficiency
		}
	}
	return nil
}

func readEventCPUs(sys source, path string) (contract.CPUSet, error) {
	cpus, err := sys.cpus(path)
	if missing(err) {
		return cpus, nil
	}
	return cpus, err
}

// withinKind is the largest factor between neighbouring capacities of one kind
// where part numbers are unknown: frequencies differ from core to core.
const withinKind = 1.1

// readCapacities sets types from capacities. CPUs of one part are of one kind:
// the frequencies, and so the capacities, of its cores differ. The largest gap
// (a factor) between parts, or between capacities where parts are unknown,
// separates efficiency from performance cores.
func (m Machine) readCapacities(sys source) error {
	levels := make([]float64, 0, len(m.CPUs))
	for _, c := range m.CPUs {
		capacity, err := sys.number(cpuPath(c.ID, "cpu_capacity"), 0)
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		levels = append(levels, float64(capacity))
	}
	parts, err := m.readParts(sys)
	if err != nil {
		return err
	}
	largest := withinKind
	if parts != nil {
		largest = 1
		of := make(map[part]float64)
		for i, p := range parts {
			of[p] = max(of[p], levels[i])
		}
		for i, p := range parts {
			levels[i] = of[p]
		}
	}
	performance := 0.0 // the least level of a performance core
	sorted := slices.Compact(slices.Sorted(slices.Values(levels)))
	for i := 1; i < len(sorted); i++ {
		if gap := sorted[i] / sorted[i-1]; gap > largest {
			largest, performance = gap, sorted[i]
		}
	}
	for i, level := range levels {
		switch {
		case performance == 0:
		case level < performance:
			m.CPUs[i].Type = CPUEfficiency
		default:
			m.CPUs[i].Type = CPUPerformance
		}
	}
	return nil
}

// part is the design of an Arm core: the implementer's code and its part
// number.
type part struct{ implementer, number uint64 }

// readParts returns the part of each CPU; nil if the kernel does not show all.
func (m Machine) readParts(sys source) ([]part, error) {
	parts := make([]part, 0, len(m.CPUs))
	for _, c := range m.CPUs {
		path := cpuPath(c.ID, "regs/identification/midr_el1")
		text, err := sys.text(path)
		if missing(err) || err == nil && text == "" { // the kernel has not read the register
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		register, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a hexadecimal number of 64 bits", sys.at(path), text)
		}
		parts = append(parts, part{implementer: register >> 24 & 0xff, number: register >> 4 & 0xfff})
	}
	return parts, nil
}
