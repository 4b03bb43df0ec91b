// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"k8s.io/utils/cpuset"
)

// driver places claims as this project does.
type driver struct {
	layout  *placement.Layout
	options placement.Options
	free    cpuset.CPUSet
}

func newDriver(m topology.Machine, v variant) *driver {
	return &driver{layout: placement.NewLayout(m), options: placement.Options{WholeCores: v.wholeCores}, free: m.Online()}
}

// prepare makes the call that places the claim.
func (d *driver) prepare(c claim) (func() (cpuset.CPUSet, error), error) {
	return func() (cpuset.CPUSet, error) {
		free := d.free.Intersection(c.zone.cpus)
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
		d.free = d.free.Difference(got)
		return got, nil
	}, nil
}

func (d *driver) release(_ claim, held cpuset.CPUSet) error {
	d.free = d.free.Union(held)
	return nil
}
