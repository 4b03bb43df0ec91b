// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"

	"k8s.io/utils/cpuset"
)

// readTypes tells kinds of cores apart: by the event sources that x86 has for
// each kind, else by the capacity the scheduler knows (arm64).
func (m Machine) readTypes(sys source) error {
	performance, err := readEventCPUs(sys, "devices/cpu_core/cpus")
	if err != nil {
		return err
	}
	efficiency, err := readEventCPUs(sys, "devices/cpu_atom/cpus")
	if err != nil {
		return err
	}
	if both := performance.Intersection(efficiency); !both.IsEmpty() {
		return fmt.Errorf("sysfs devices/cpu_core/cpus and devices/cpu_atom/cpus both name CPUs %s", both)
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

func readEventCPUs(sys source, path string) (cpuset.CPUSet, error) {
	ids, err := sys.list(path)
	if err != nil && !missing(err) {
		return cpuset.CPUSet{}, err
	}
	return cpuset.New(ids...), nil
}

func (m Machine) readCapacities(sys source) error {
	capacities := make([]int64, 0, len(m.CPUs))
	lowest, highest := int64(maxNumber), int64(0)
	for _, c := range m.CPUs {
		capacity, err := sys.number(cpuPath(c.ID, "cpu_capacity"), 0)
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		capacities = append(capacities, capacity)
		lowest, highest = min(lowest, capacity), max(highest, capacity)
	}
	if lowest == highest {
		return nil
	}
	for i, capacity := range capacities {
		m.CPUs[i].Type = CPUEfficiency
		if capacity == highest {
			m.CPUs[i].Type = CPUPerformance
		}
	}
	return nil
}
