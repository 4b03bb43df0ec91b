// SPDX-License-Identifier: Apache-2.0

// Package values applies the driver's configuration to the amounts of a claim:
// it is where policy about memory and hugepages becomes numbers.
package values

import (
	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

// Values computes the values of decisions.
type Values struct {
	policy    memoryqos.Policy
	hugepages string
}

// New returns the values that the configuration stands for on a machine with
// the base page size.
func New(c config.Config, pageSize int64) Values {
	v := Values{
		policy:    memoryqos.Policy{Protection: memoryqos.None, PageSize: pageSize},
		hugepages: c.Hugepages.Limits,
	}
	if c.MemoryQoS.Owner == config.OwnerDriver {
		v.policy.Protection = memoryqos.Protection(c.MemoryQoS.Protection)
		v.policy.Factor = c.MemoryQoS.ThrottlingFactor
	}
	return v
}

// Memory returns the values for a claimed amount; ownLimit is the limit of the
// container's own spec, 0 for none.
func (v Values) Memory(amount, ownLimit int64) (*contract.Memory, error) {
	m, err := memoryqos.Container(amount, ownLimit, v.policy)
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// Hugepages returns the limits for claimed amounts, nil to leave them as
// kubelet sets them.
func (v Values) Hugepages(amounts map[string]int64) map[string]contract.Limit {
	if v.hugepages == "unchanged" {
		return nil
	}
	limits := make(map[string]contract.Limit, len(amounts))
	for size, amount := range amounts {
		limits[size] = contract.Limit(amount)
		if v.hugepages == "unlimited" {
			limits[size] = contract.Max
		}
	}
	return limits
}
