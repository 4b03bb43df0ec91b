// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type mask struct {
	Action string `json:"action"`
	CPUs   string `json:"cpus"`
}

type view struct {
	Action string            `json:"action"`
	CPUs   string            `json:"cpus"`
	Mems   string            `json:"mems"`
	Cgroup map[string]string `json:"cgroup"` // file name → content
}

// cgroupFiles are patterns of files in the process's own cgroup; missing files are left out.
var cgroupFiles = []string{
	"cpu.max", "cpu.weight",
	"cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective",
	"memory.min", "memory.low", "memory.high", "memory.max", "memory.current",
	"hugetlb.*.max", "hugetlb.*.current",
}

func readMask(status string) (mask, error) {
	fields, err := statusFields(status)
	return mask{Action: "mask", CPUs: fields["Cpus_allowed_list"]}, err
}

func readView(status, cgroup string) (view, error) {
	fields, err := statusFields(status)
	if err != nil {
		return view{}, err
	}
	v := view{Action: "view", CPUs: fields["Cpus_allowed_list"], Mems: fields["Mems_allowed_list"], Cgroup: map[string]string{}}
	for _, pattern := range cgroupFiles {
		files, err := filepath.Glob(filepath.Join(cgroup, pattern))
		if err != nil {
			return view{}, err
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				return view{}, err
			}
			v.Cgroup[filepath.Base(f)] = strings.TrimSpace(string(data))
		}
	}
	return v, nil
}

func statusFields(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}

func parseSize(s string) (int, error) {
	number, shift := s, 0
	for suffix, bits := range map[string]int{"Ki": 10, "Mi": 20, "Gi": 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, shift = n, bits
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 || n > 1<<40>>shift {
		return 0, fmt.Errorf("size %q: want a whole number with Ki, Mi, Gi or nothing, at most 1024Gi", s)
	}
	return n << shift, nil
}
