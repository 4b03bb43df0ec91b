// SPDX-License-Identifier: Apache-2.0

// Package units gives systemd the values that the actuator writes into the
// cgroups of systemd's units.
//
// With systemd as the cgroup driver, containers are scopes, and pods, QoS
// levels and kubepods are slices. Package cgroups writes their files, which is
// fast and exact, but systemd knows nothing of it and puts its own values back
// some day. So it learns them, in the way that fits the kind of unit:
//
//   - Slices follow over D-Bus (a [Writer]). Kubelet sets properties of theirs
//     every minute, at which systemd writes all of a unit's controllers again
//     from its own values: it has to have ours at once. These are memory.min and
//     memory.low only, which change rarely. A slice's cpuset.cpus is not ours, and
//     cpuset.cpus.exclusive systemd has no property for and never writes: no
//     value that is late or lost breaks I1.
//   - Scopes follow by runtime drop-ins, which systemd reads at its next reload,
//     the only time when it writes to a scope unasked. Over D-Bus, setting one
//     property would make systemd write all controllers of the scope,
//     memory.oom.group and the device rules included, and a call under way could
//     undo a newer cpuset (I1).
//
// Directories that are no units, as all are with the cgroupfs driver, are left
// alone. Until systemd has answered ([Writer.Settled]) it may put an old value
// of a slice back; the call, which is repeated until then, brings the new one.
package units

import "strings"

// maxName is the length that systemd allows a unit's name (systemd.unit(5)).
const maxName = 255

// Unit returns the name of the unit whose cgroup is dir, a directory below the
// cgroup mount. ok is false for all others: those of the cgroupfs driver, and
// what is inside of a scope or service, which belongs to whoever runs there.
func Unit(dir string) (name string, ok bool) {
	parent := ""
	for element := range strings.SplitSeq(dir, "/") {
		// Nothing but slices is above a unit.
		if name != "" && !strings.HasSuffix(name, ".slice") {
			return "", false
		}
		// systemd marks the names that a kernel file could have (cgroup.x).
		name = strings.TrimPrefix(element, "_")
		stem := validStem(name)
		if stem == "" {
			return "", false
		}
		if strings.HasSuffix(name, ".slice") {
			// A slice is nested as its name says, and nowhere else
			// (systemd.slice(5)).
			word, nested := strings.CutPrefix(stem, parent)
			if !nested || word == "" || strings.Contains(word, "-") {
				return "", false
			}
			parent = stem + "-"
		}
	}
	return name, true
}

// validStem returns the unit's name without its type, empty if it is no name of
// a unit that has a cgroup.
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
