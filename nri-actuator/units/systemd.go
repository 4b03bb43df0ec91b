// SPDX-License-Identifier: Apache-2.0

package units

import (
	"errors"
	"strings"
)

// Systemd has systemd follow what is written into the cgroups of its units:
// cpusets by drop-ins, the memory protection of slices over D-Bus.
type Systemd struct {
	Bus     *Writer
	Dropins Dropins
}

// Set notes what files of the cgroup dir shall have.
func (s Systemd) Set(dir string, files map[string]string) error {
	protection := make(map[string]string)
	for file, value := range files {
		// The runtime has told systemd of its scopes' memory.
		if strings.HasPrefix(file, "memory.") && strings.HasSuffix(dir, ".slice") {
			protection[file] = value
		}
	}
	return errors.Join(s.Dropins.Set(dir, files), s.Bus.Set(dir, protection))
}

// Correct writes the drop-in of the cgroup dir anew if it says something else than
// files. Where there is no drop-in, systemd has what the runtime told it.
func (s Systemd) Correct(dir string, files map[string]string) error {
	return s.Dropins.Correct(dir, files)
}

// Again has Set tell the values again that systemd was told already: someone
// else has changed them.
func (s Systemd) Again(dir string) { s.Bus.Forget(dir) }

// Settled tells whether systemd has all that was Set.
func (s Systemd) Settled(dir string) bool { return s.Bus.Settled(dir) }

// Forget drops a unit that is gone, or whose values are not the driver's any
// more.
func (s Systemd) Forget(dir string) error {
	s.Bus.Forget(dir)
	return s.Dropins.Remove(dir)
}

// Reset forgets what systemd was told, and the drop-ins of all units but those
// of the cgroups dirs.
func (s Systemd) Reset(dirs []string) error {
	s.Bus.Reset()
	return s.Dropins.Prune(dirs)
}
