// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
)

// sumTable returns a table of the numbers up to limit that whole cores of the
// classes add up to; nil without classes.
func sumTable(classes []class, limit int) *table {
	var all tables
	var sum *table
	for _, c := range classes {
		sum = all.merge(sum, all.class(c, 0, limit, true), 0, limit)
	}
	return sum
}

// refuse returns an error with the largest number below n and the smallest number above n
// that whole cores, or whole L3s, add up to.
func (s *search) refuse() error {
	what, units := "cores", []class(nil)
	for i, l3 := range s.Layout.l3s {
		if s.wholeL3 && s.l3s[i] > 0 {
			units = addCore(units, 0, alike{size: l3.cpus, free: l3.cpus})
			continue
		}
		for _, c := range s.classes[s.first[i]:s.first[i+1]] {
			for range c.cores {
				units = addCore(units, 0, alike{size: c.size, free: c.free})
			}
		}
	}
	if s.kind != anyKind {
		what = string(s.kinds[s.kind]) + " cores"
	}
	if s.wholeL3 && s.kind != anyKind {
		what = "L3 caches with " + what + " only"
	} else if s.wholeL3 {
		what = "L3 caches"
	}
	sum := sumTable(units, s.all)
	below, above := 0, 0
	for n := 1; n <= s.all; n++ {
		switch ok := sum.possible(n); {
		case ok && n < s.n:
			below = n
		case ok && n > s.n && above == 0:
			above = n
		}
	}
	var would string
	switch {
	case below > 0 && above > 0:
		would = fmt.Sprintf("%d or %d", below, above)
	case below > 0 || above > 0:
		would = fmt.Sprint(max(below, above))
	default:
		return errors.New("no whole " + what + " are free in the zone")
	}
	return fmt.Errorf("%d CPUs do not make up whole free %s of the zone: claim %s", s.n, what, would)
}
