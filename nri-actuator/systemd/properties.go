// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// infinity is the greatest number, which is systemd's "infinity".
const infinity = uint64(math.MaxUint64)

// Property is a property of a unit, in its D-Bus form (sv).
type Property struct {
	Name  string
	Value dbus.Variant
}

// property returns the unit property for a cgroup file of a slice, empty for a
// file that systemd does not get.
func property(file string) string {
	switch file {
	case "memory.min":
		return "MemoryMin"
	case "memory.low":
		return "MemoryLow"
	case contract.FileQuota:
		return "CPUQuotaPerSecUSec"
	}
	return ""
}

// Properties returns the unit properties for the contents of a slice's cgroup
// files, sorted by file. All files but memory.min, memory.low and cpu.max are ignored. A
// content that is not of the kernel's form is an error.
func Properties(files map[string]string) ([]Property, error) {
	var properties []Property
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name := property(file)
		if name == "" {
			continue
		}
		if file == contract.FileQuota {
			quota, err := quotaProperties(files[file])
			if err != nil {
				return nil, err
			}
			properties = append(properties, quota...)
			continue
		}
		value := infinity
		if content := files[file]; content != "max" {
			var err error
			if value, err = strconv.ParseUint(content, 10, 64); err != nil {
				return nil, fmt.Errorf("unit property %s for %s: %q is neither bytes nor \"max\"", name, file, content)
			}
		}
		properties = append(properties, Property{Name: name, Value: dbus.MakeVariant(value)})
	}
	return properties, nil
}

// quotaProperties returns the properties for a content of cpu.max. systemd has the quota
// for a second of real time, and the period.
func quotaProperties(content string) ([]Property, error) {
	quota, period, _ := strings.Cut(content, " ")
	us, err := strconv.ParseUint(period, 10, 32)
	perSecond := infinity
	if err == nil && quota != "max" {
		perSecond, err = strconv.ParseUint(quota, 10, 43) // a second's quota fits into 64 bits
		perSecond = perSecond * 1_000_000 / max(us, 1)
	}
	if err != nil || us == 0 {
		return nil, fmt.Errorf("unit property for %s: %q is not a quota and a period", contract.FileQuota, content)
	}
	return []Property{
		{Name: property(contract.FileQuota), Value: dbus.MakeVariant(perSecond)},
		{Name: "CPUQuotaPeriodUSec", Value: dbus.MakeVariant(us)},
	}, nil
}
