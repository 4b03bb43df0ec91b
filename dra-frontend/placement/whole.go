// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/cpuset"
)

// wholeCores picks n CPUs that are all threads of their cores.
func (p *pick) wholeCores(n int, spread bool) (cpuset.CPUSet, error) {
	var order []int
	if spread {
		order = p.roundRobin()
	}
	units := func(l3s span) [][]int {
		if !spread {
			order = order[:0]
			for c := p.coresOf[l3s.lo].lo; c < p.coresOf[l3s.hi-1].hi; c++ {
				order = append(order, c)
			}
		}
		var out [][]int
		for _, c := range order {
			if p.whole(c) {
				out = append(out, p.cores[c].cpus)
			}
		}
		return out
	}
	if spread {
		return p.nearest(levelMachine, n, "cores", units)
	}
	all := units(p.groups[levelMachine][0])
	for _, u := range all {
		if len(u) != len(all[0]) {
			return p.nearest(levelL3, n, "cores", units)
		}
	}
	// Cores of one size: what is packed breaks none, because whole cores are
	// all it is given.
	if len(all) == 0 || n%len(all[0]) != 0 || n > len(all)*len(all[0]) {
		return cpuset.New(), sizeError("cores", all, n)
	}
	whole := newPick(p.Layout, cpuset.New(slices.Concat(all...)...), "")
	whole.pack(n)
	return cpuset.New(whole.taken...), nil
}

// wholeL3s picks n CPUs that are all CPUs of their L3s.
func (p *pick) wholeL3s(n int) (cpuset.CPUSet, error) {
	return p.nearest(levelPlace, n, "L3 caches", func(l3s span) [][]int {
		var out [][]int
		for l3 := l3s.lo; l3 < l3s.hi; l3++ {
			var cpus []int
			for _, c := range p.cores[p.coresOf[l3].lo:p.coresOf[l3].hi] {
				cpus = append(cpus, c.cpus...)
			}
			if len(cpus) == p.tally[levelL3][l3].free {
				out = append(out, cpus)
			}
		}
		return out
	})
}

// nearest takes units that add up to n from the smallest group, from level
// from upwards, that has them; of those the one with least left over.
func (p *pick) nearest(from level, n int, what string, units func(span) [][]int) (cpuset.CPUSet, error) {
	for lv := from; lv < levels; lv++ {
		best, bestFree := []int(nil), 0
		for i, g := range p.groups[lv] {
			free := p.tally[lv][i].free
			if free < n || best != nil && free >= bestFree {
				continue
			}
			if chosen, fits := newSums(units(g)).choose(n); fits {
				best, bestFree = chosen, free
			}
		}
		if best != nil {
			return cpuset.New(best...), nil
		}
	}
	return cpuset.New(), sizeError(what, units(p.groups[levelMachine][0]), n)
}

// sizeError tells which numbers next to n would do.
func sizeError(what string, units [][]int, n int) error {
	below, above := newSums(units).around(n)
	var would string
	switch {
	case below > 0 && above > 0:
		would = fmt.Sprintf("%d or %d", below, above)
	case below > 0 || above > 0:
		would = fmt.Sprint(max(below, above))
	default:
		return errors.New("no whole " + what + " are free in the zone")
	}
	return fmt.Errorf("%d CPUs are not whole free %s in the zone; %s would be", n, what, would)
}

// sums tells which numbers of CPUs units of several sizes add up to.
type sums struct {
	units [][]int
	sizes []int
	count map[int]int
	// reach[i][v]: units of the first i sizes add up to v.
	reach [][]bool
}

func newSums(units [][]int) sums {
	s := sums{units: units, count: make(map[int]int)}
	total := 0
	for _, u := range units {
		s.count[len(u)]++
		total += len(u)
	}
	s.sizes = slices.Sorted(maps.Keys(s.count))
	row := make([]bool, total+1)
	row[0] = true
	s.reach = append(s.reach, row)
	for _, size := range s.sizes {
		next, uses := slices.Clone(row), make([]int, total+1)
		for v := size; v <= total; v++ {
			if !next[v] && next[v-size] && uses[v-size] < s.count[size] {
				next[v], uses[v] = true, uses[v-size]+1
			}
		}
		s.reach = append(s.reach, next)
		row = next
	}
	return s
}

// choose returns the CPUs of units that add up to n, large units before small
// ones, otherwise in their order.
func (s sums) choose(n int) ([]int, bool) {
	if last := s.reach[len(s.sizes)]; n >= len(last) || !last[n] {
		return nil, false
	}
	wanted := make(map[int]int)
	for i := len(s.sizes) - 1; i >= 0; i-- {
		size := s.sizes[i]
		k := min(s.count[size], n/size)
		for !s.reach[i][n-k*size] {
			k--
		}
		wanted[size] = k
		n -= k * size
	}
	var cpus []int
	for _, u := range s.units {
		if wanted[len(u)] > 0 {
			wanted[len(u)]--
			cpus = append(cpus, u...)
		}
	}
	return cpus, true
}

// around returns the nearest numbers below and above n that can be had, 0 for
// none.
func (s sums) around(n int) (below, above int) {
	for v, ok := range s.reach[len(s.sizes)] {
		switch {
		case ok && v < n:
			below = v
		case ok && v > n && above == 0:
			above = v
		}
	}
	return below, above
}
