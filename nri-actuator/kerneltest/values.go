// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"math"
	"strconv"
	"strings"
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

// quotaFile is cpu.max, with a quota or "max" and a period in microseconds
// (cgroup-v2.rst, "cpu.max"). A content without a period keeps it.
func quotaFile(c *cgroup) file {
	read := func() string {
		if content, written := c.values[contract.FileQuota]; written {
			return content
		}
		return "max 100000"
	}
	return file{read: read, write: func(content string) error {
		words := strings.Fields(content)
		if len(words) == 1 {
			words = append(words, strings.Fields(read())[1])
		}
		if len(words) != 2 {
			return syscall.EINVAL
		}
		period, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil || period < 1_000 || period > 1_000_000 {
			return syscall.EINVAL
		}
		if quota, err := strconv.ParseUint(words[0], 10, 44); words[0] != "max" && (err != nil || quota < 1_000) {
			return syscall.EINVAL
		}
		c.values[contract.FileQuota] = strings.Join(words, " ")
		return nil
	}}
}
