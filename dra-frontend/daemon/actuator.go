// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// actuator reads the announcement.
type actuator struct{ announcements *contract.AnnouncementReader }

// Announcement implements kubelet.Actuator.
func (a actuator) Announcement() (contract.Announcement, error) {
	ann, err := a.announcements.Read()
	if err != nil {
		return ann, err
	}
	if !ann.Connected {
		return ann, fmt.Errorf("nri-actuator is running and not connected to the container runtime: %s", reason(ann))
	}
	if _, err := ann.CommonVersion(); err != nil {
		return ann, err
	}
	return ann, nil
}

// reason returns the actuator's reason for a missing connection. The actuator is
// another image, so the length of its text is bounded here too.
func reason(a contract.Announcement) string {
	if a.Disconnected == "" {
		return "look at its log, and check that NRI is enabled in the runtime"
	}
	const size = 500
	return contract.Excerpt(a.Disconnected, size)
}
