// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"k8s.io/utils/cpuset"
)

// driver places claims with this project's placement.
type driver struct {
	layout  *placement.Layout
	options placement.Options
	// free has the free CPUs by the zone's node.
	free map[int]cpuset.CPUSet
}

func newDriver(s scenario, v variant) *driver {
	d := &driver{
		layout: placement.NewLayout(s.machine), options: placement.Options{WholeCores: v.wholeCores}, free: make(map[int]cpuset.CPUSet),
	}
	for _, z := range s.zones {
		d.free[z.node] = z.cpus
	}
	return d
}

// prepare returns the call that places the claim.
func (d *driver) prepare(c claim) (func() (cpuset.CPUSet, error), error) {
	return func() (cpuset.CPUSet, error) {
		free := d.free[c.zone.node]
		got, err := cpuset.New(), error(nil)
		if c.wholeL3 {
			got, err = d.layout.Pick(free, c.cpus, placement.Options{WholeL3: true})
		}
		if !c.wholeL3 || err != nil {
			got, err = d.layout.Pick(free, c.cpus, d.options)
		}
		if err != nil {
			return got, fmt.Errorf("placement: %w", err)
		}
		d.free[c.zone.node] = free.Difference(got)
		return got, nil
	}, nil
}

func (d *driver) release(c claim, held cpuset.CPUSet) error {
	d.free[c.zone.node] = d.free[c.zone.node].Union(held)
	return nil
}
