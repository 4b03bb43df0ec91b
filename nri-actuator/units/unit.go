// SPDX-License-Identifier: Apache-2.0

// Package units tells systemd the values that the actuator writes into the
// cgroups of systemd's units.
//
// With systemd as the cgroup driver, containers are scopes, and pods, QoS
// levels and kubepods are slices. Package cgroups writes their files, which is
// fast and exact, but systemd knows nothing of it: at its next reload it writes
// the values of its own back, an old AllowedCPUs for instance, and so a
// container of the shared pool onto the CPUs of a claim (I1). A [Writer] gives
// each written value to the unit as a runtime property as well. Directories
// that are no units, as all are with the cgroupfs driver, are left alone.
//
// Setting one property makes systemd write all files of that controller from
// its properties. So each file of a unit that is written must be written
// through [Writer.Write], or systemd puts back what it knows of it.
//
// Two moments are left. A reload between a direct write and systemd's answer
// brings the old value back until the call is executed; [Writer.Settle] tells
// when that can no longer happen. And a call that a stuck systemd has not
// executed when the actuator dies is unknown to the next actuator, whose own
// call for the unit comes right behind it.
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
