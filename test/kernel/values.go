// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"
	"strconv"
	"syscall"
)

// valueFile is a file with an amount of bytes or "max".
type valueFile struct {
	controller string
	initial    string
	// unit is what the kernel rounds the amount down to.
	unit uint64
}

const (
	page  = 4 << 10
	large = 2 << 20
	giant = 1 << 30
)

// valueFiles are the files with amounts (cgroup-v2.rst, "Memory" and "HugeTLB").
var valueFiles = map[string]valueFile{
	"memory.min":  {"memory", "0", page},
	"memory.low":  {"memory", "0", page},
	"memory.high": {"memory", "max", page},
	"memory.max":  {"memory", "max", page},

	"hugetlb.2MB.max":      {"hugetlb", "max", large},
	"hugetlb.2MB.rsvd.max": {"hugetlb", "max", large},
	"hugetlb.1GB.max":      {"hugetlb", "max", giant},
	"hugetlb.1GB.rsvd.max": {"hugetlb", "max", giant},
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
