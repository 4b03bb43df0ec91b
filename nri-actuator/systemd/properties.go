// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/godbus/dbus/v5"
)

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
	}
	return ""
}

// Properties returns the unit properties for the contents of a slice's cgroup
// files, sorted by file. All files but memory.min and memory.low are ignored. A
// content that is neither bytes nor "max" is an error.
func Properties(files map[string]string) ([]Property, error) {
	var properties []Property
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name := property(file)
		if name == "" {
			continue
		}
		// systemd's "infinity" is the greatest number.
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
