// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package boot is the start of a program that is the only process of a virtual machine: commands compare and deadlock.
package boot

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Cgroups is where Start mounts the cgroups.
const Cgroups = "/sys/fs/cgroup"

// Start mounts the kernel's file systems, and returns the words of the kernel's command line: "seed=1" is "1" at "seed".
func Start() (words map[string]string, err error) {
	for _, m := range []struct{ kind, dir, options string }{
		{"devtmpfs", "/dev", ""}, {"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"cgroup2", Cgroups, "nsdelegate"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return nil, err
		}
		if err := syscall.Mount(m.kind, m.dir, m.kind, 0, m.options); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.kind, err)
		}
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	words = make(map[string]string)
	for word := range strings.FieldsSeq(string(line)) {
		name, value, _ := strings.Cut(word, "=")
		words[name] = value
	}
	return words, nil
}
