// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/godbus/dbus/v5"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Property is a property of a unit, as it goes over D-Bus: (sv).
type Property struct {
	Name  string
	Value dbus.Variant
}

// property returns the unit property that stands for a cgroup file and how its
// content becomes a value. systemd has none for the other files.
func property(file string) (name string, parse func(string) (any, error)) {
	switch file {
	case "cpuset.cpus":
		return "AllowedCPUs", bitmap
	case "cpuset.mems":
		return "AllowedMemoryNodes", bitmap
	case "memory.min":
		return "MemoryMin", bytes
	case "memory.low":
		return "MemoryLow", bytes
	case "memory.high":
		return "MemoryHigh", limit
	case "memory.max":
		return "MemoryMax", limit
	}
	return "", nil
}

// Properties returns the unit properties that stand for the contents of cgroup
// files, in the order of the files. It leaves out the files that systemd knows
// nothing of, as those of hugetlb.
func Properties(files map[string]string) ([]Property, error) {
	var properties []Property
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name, parse := property(file)
		if name == "" {
			continue
		}
		value, err := parse(files[file])
		if err != nil {
			return nil, fmt.Errorf("unit property %s for %s: %w", name, file, err)
		}
		properties = append(properties, Property{Name: name, Value: dbus.MakeVariant(value)})
	}
	return properties, nil
}

// bytes reads an amount; the greatest number is systemd's "infinity".
func bytes(content string) (any, error) {
	if content == "max" {
		return uint64(math.MaxUint64), nil
	}
	n, err := strconv.ParseUint(content, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is neither bytes nor \"max\"", content)
	}
	return n, nil
}

func limit(content string) (any, error) {
	n, err := bytes(content)
	if n == uint64(0) {
		return nil, fmt.Errorf("systemd takes no limit of 0 bytes, only 1 and more")
	}
	return n, err
}

// bitmap reads a list of CPUs or nodes into a bit for each id, the lowest bit
// of the first byte for 0. No bit at all means no restriction, as an empty file
// does.
func bitmap(content string) (any, error) {
	if content == "" {
		return []byte{}, nil
	}
	ids, err := contract.ParseList(content)
	if err != nil {
		return nil, err
	}
	bits := make([]byte, ids[len(ids)-1]/8+1)
	for _, id := range ids {
		bits[id/8] |= 1 << (id % 8)
	}
	return bits, nil
}
