// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/godbus/dbus/v5"
)

// Property is a property of a unit, as it goes over D-Bus: (sv).
type Property struct {
	Name  string
	Value dbus.Variant
}

// property returns the unit property that stands for a cgroup file of a slice,
// empty for files that systemd is not told of.
func property(file string) string {
	switch file {
	case "memory.min":
		return "MemoryMin"
	case "memory.low":
		return "MemoryLow"
	}
	return ""
}

// Properties returns the unit properties that stand for the contents of a
// slice's cgroup files, in the order of the files. Those but memory.min and
// memory.low are left out.
func Properties(files map[string]string) ([]Property, error) {
	var properties []Property
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name := property(file)
		if name == "" {
			continue
		}
		// The greatest number is systemd's "infinity".
		value := uint64(math.MaxUint64)
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
