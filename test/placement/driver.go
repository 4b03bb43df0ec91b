// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/utils/cpuset"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

// driver places claims with this project's placement.
type driver struct {
	layout  *placement.Layout
	options placement.Options
	// free has the free CPUs by the zone's node, held the CPUs of claims by id.
	free, held map[int]contract.CPUSet
}

func newDriver(s scenario, v variant) *driver {
	d := &driver{
		layout: placement.NewLayout(s.machine), options: placement.Options{WholeCores: v.wholeCores}, free: make(map[int]contract.CPUSet),
		held: make(map[int]contract.CPUSet),
	}
	for _, z := range s.zones {
		d.free[z.node] = z.cpus
	}
	return d
}

// prepare returns the call that places the claim.
func (d *driver) prepare(c claim) (func() error, error) {
	return func() error {
		free := d.free[c.zone.node]
		var got contract.CPUSet
		var err error
		if c.wholeL3 {
			got, err = d.layout.Pick(free, c.cpus, placement.Options{WholeL3: true})
		}
		if !c.wholeL3 || err != nil {
			got, err = d.layout.Pick(free, c.cpus, d.options)
		}
		if err != nil {
			return fmt.Errorf("placement: %w", err)
		}
		d.free[c.zone.node] = free.Difference(got)
		d.held[c.id] = got
		return nil
	}, nil
}

func (d *driver) placed(c claim) cpuset.CPUSet { return cpuset.New(d.held[c.id].List()...) }

func (d *driver) release(c claim) error {
	d.free[c.zone.node] = d.free[c.zone.node].Union(d.held[c.id])
	delete(d.held, c.id)
	return nil
}
