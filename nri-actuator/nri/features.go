// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// platform returns the platform of this session.
func (s *Session) platform() contract.Platform {
	p := *s.runtime.Load()
	p.NRIVersion, p.Kernel, p.Partitions = s.nriVersion(), s.Kernel, s.enforcer.CanPartition()
	p.Machine = s.Host.Features()
	return p
}

// checkFeatures refuses a decision that this node cannot apply: the runtime or
// the kernel is older than when the claim was prepared.
func (s *Session) checkFeatures(d contract.Decision) error {
	platform := s.platform()
	for _, feature := range d.Requires {
		if lack := platform.Lacks(feature); lack != "" {
			return fmt.Errorf("its claim requires %q, which this node cannot do any more: %s", feature, lack)
		}
	}
	return nil
}
