// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// concerns reports whether an event needs a look at all claims. Of the node
// file only the removal does: this instance writes it. An announcement does
// not: the actuator announces each node state of this instance, and the poll
// reads the announcement.
func concerns(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	switch name {
	case contract.NodeFile:
		return e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	case contract.ActuatorFile:
		return false
	}
	return name[0] != '.'
}
