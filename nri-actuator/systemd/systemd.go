// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"strings"
)

// Systemd gives systemd the values that the actuator writes into the cgroups of
// units: cpusets by drop-ins, the protection and the quota of slices over D-Bus.
type Systemd struct {
	Slices  *Writer
	Dropins Dropins
}

// Set gives systemd the contents that files of the cgroup dir shall have.
func (s Systemd) Set(dir string, files map[string]string) error {
	properties := make(map[string]string)
	for file, value := range files {
		// systemd has the values of scopes from the runtime.
		if property(file) != "" && strings.HasSuffix(dir, ".slice") {
			properties[file] = value
		}
	}
	return errors.Join(s.Dropins.Set(dir, files), s.Slices.Set(dir, properties))
}

// Correct rewrites the drop-in of the cgroup dir if it differs from files.
// Without a drop-in systemd has the runtime's values.
func (s Systemd) Correct(dir string, files map[string]string) error {
	return s.Dropins.Correct(dir, files)
}

// Again makes Set send values again that systemd has: another program has
// changed them.
func (s Systemd) Again(dir string) { s.Slices.Forget(dir) }

// UpToDate reports whether systemd has all values of the cgroup dir that were
// Set.
func (s Systemd) UpToDate(dir string) bool { return s.Slices.UpToDate(dir) }

// Forget drops a unit that is gone, or to which the driver gives no values.
func (s Systemd) Forget(dir string) error {
	s.Slices.Forget(dir)
	return s.Dropins.Remove(dir)
}

// ForgetExcept drops the unsent values of all units except the units of dirs. Drop-ins
// stay.
func (s Systemd) ForgetExcept(dirs []string) { s.Slices.ForgetExcept(dirs) }

// Reset forgets which values systemd has, and removes the drop-ins of all units
// but the units of the cgroups dirs.
func (s Systemd) Reset(dirs []string) error {
	s.Slices.Reset()
	return s.Dropins.Prune(dirs)
}
