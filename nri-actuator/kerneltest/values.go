// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"math"
	"strconv"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// valueFile is a file with an amount of bytes or "max".
type valueFile struct {
	controller string
	initial    string
	// unit is what the kernel rounds the amount down to.
	unit uint64
}

// values returns the files with amounts (cgroup-v2.rst, "Memory" and "HugeTLB").
func (m Machine) values() map[string]valueFile {
	page := uint64(m.PageSize)
	files := map[string]valueFile{
		"memory.min":  {"memory", "0", page},
		"memory.low":  {"memory", "0", page},
		"memory.high": {"memory", "max", page},
		"memory.max":  {"memory", "max", page},
	}
	for _, size := range m.HugepageSizes {
		name := "hugetlb." + contract.CgroupPageSize(contract.FormatPageSize(size))
		files[name+".max"] = valueFile{"hugetlb", "max", uint64(size)}
		files[name+".rsvd.max"] = valueFile{"hugetlb", "max", uint64(size)}
	}
	return files
}
func (v valueFile) file(c *cgroup, name string) file {
	return file{
		read: func() string {
			if content, written := c.values[name]; written {
				return content
			}
			return v.initial
		},
		write: func(content string) error {
			if content != "max" {
				bytes, err := strconv.ParseUint(content, 10, 64)
				if err != nil {
					return syscall.EINVAL
				}
				content = "max"
				if units := bytes / v.unit; units < math.MaxInt64/v.unit {
					content = strconv.FormatUint(units*v.unit, 10)
				}
			}
			c.values[name] = content
			return nil
		},
	}
}
