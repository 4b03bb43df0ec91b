// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// actuator reads the announcement.
type actuator struct{ dir string }

// Announcement implements plugin.Actuator.
func (a actuator) Announcement() (contract.Announcement, error) {
	ann, err := contract.ReadAnnouncement(a.dir)
	if err != nil {
		return ann, err
	}
	if !ann.Connected {
		return ann, errors.New("nri-actuator is running and not connected to the container runtime: look at its log and check that NRI is enabled in the runtime")
	}
	if _, err := ann.CommonVersion(); err != nil {
		return ann, err
	}
	return ann, nil
}
