// SPDX-License-Identifier: Apache-2.0

// Package systemd gives systemd the values that the actuator writes into the
// cgroups of systemd's units.
//
// With systemd as the cgroup driver, containers are scopes, and pods, QoS
// levels and kubepods are slices. Package cgroups writes their files, which is
// fast and exact. But systemd does not see these writes and puts its own values
// back some day. So systemd gets the values, in a way for each kind of unit:
//
//   - Slices over D-Bus (a [Writer]). Every minute kubelet sets properties of
//     slices, and systemd then writes all controllers of the unit from its own
//     values. So it needs the actuator's values at once. These are memory.min,
//     memory.low and cpu.max, which change rarely. D-Bus never carries a cpuset:
//     the one slice whose cpuset.cpus the actuator writes, that of its own pod,
//     gets a drop-in as a scope does. systemd has no property for
//     cpuset.cpus.exclusive and never writes it. So no late or lost call breaks I1.
//   - Scopes by runtime drop-ins. systemd reads them at its next reload, the
//     only time when it writes to a scope unasked. Over D-Bus, one property
//     would make systemd write all controllers of the scope, memory.oom.group
//     and the device rules included, and a call under way could undo a newer
//     cpuset (I1).
//
// Directories that are no units are left alone, as all directories with the
// cgroupfs driver. Until systemd has answered ([Writer.UpToDate]), it may put an
// old value of a slice back. The call is repeated and brings the new value.
package systemd

import "strings"

// maxName is the largest length of a unit's name (systemd.unit(5)).
const maxName = 255

// Unit returns the name of the unit of the cgroup dir, a path below the cgroup
// mount. ok is false if dir is no unit's: a cgroup of the cgroupfs driver, or
// inside of a scope or service, where the unit's own program makes the cgroups.
func Unit(dir string) (name string, ok bool) {
	parent := ""
	for element := range strings.SplitSeq(dir, "/") {
		// Only slices are above a unit.
		if name != "" && !strings.HasSuffix(name, ".slice") {
			return "", false
		}
		// systemd puts "_" before a name that a kernel file could have (cgroup.x).
		name = strings.TrimPrefix(element, "_")
		stem := validStem(name)
		if stem == "" {
			return "", false
		}
		if strings.HasSuffix(name, ".slice") {
			// A slice's name determines its parents (systemd.slice(5)).
			word, nested := strings.CutPrefix(stem, parent)
			if !nested || word == "" || strings.Contains(word, "-") {
				return "", false
			}
			parent = stem + "-"
		}
	}
	return name, true
}

// validStem returns a unit's name without its type, empty if no unit with a
// cgroup can have the name.
func validStem(name string) string {
	if len(name) > maxName {
		return ""
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return ""
	}
	switch name[dot:] {
	case ".slice", ".scope", ".service":
	default:
		return ""
	}
	for _, c := range []byte(name[:dot]) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune(`:-_.\@`, rune(c)) {
			return ""
		}
	}
	return name[:dot]
}
