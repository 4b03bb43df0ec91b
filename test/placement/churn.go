// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"k8s.io/utils/cpuset"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// variant is a kind of claims.
type variant struct {
	name       string
	wholeCores bool
}

// zone is a claim's zone: a NUMA node, or the machine with node -1.
type zone struct {
	node int
	cpus contract.CPUSet
}

// claim is a request for CPUs of a zone. A request for a whole L3 takes other CPUs if
// no L3 is free as a whole, so that both placers hold the same claims at all times.
type claim struct {
	id, cpus int
	zone     zone
	wholeL3  bool
}

// placer places claims. prepare does the work that is not measured and returns the
// call that is. placed returns the CPUs of the last claim.
type placer interface {
	prepare(claim) (func() error, error)
	placed(claim) cpuset.CPUSet
	release(claim) error
}

// event is a claim that comes or goes.
type event struct {
	claim claim
	goes  bool
}

// history draws claims that a scheduler would admit. It looks at amounts only, so
// that both placers have the same history. The machine is empty at first. More
// claims come than go until more than 95 % is used, then more go than come until less
// than 60 % is used, again and again. No claim comes that would bring the use above 97 %.
func history(s scenario, v variant, seed uint64, events int) []event {
	random := rand.New(rand.NewPCG(seed, 1))
	free := make([]int, len(s.zones))
	total := 0
	for i, z := range s.zones {
		free[i] = z.cpus.Size()
		total += free[i]
	}
	type held struct {
		claim
		zone int
	}
	var holds []held
	used, filling := 0, true
	var out []event
	for len(out) < events {
		switch {
		case 100*used < 60*total:
			filling = true
		case 100*used > 95*total:
			filling = false
		}
		c := claim{id: len(out), cpus: s.sizes[random.IntN(len(s.sizes))]}
		if v.wholeCores {
			c.cpus += c.cpus % 2
		}
		if random.IntN(8) == 0 {
			c.cpus, c.wholeL3 = s.l3, true
		}
		// While the machine fills, more claims come than go.
		comes := random.IntN(4) < 1
		if filling {
			comes = random.IntN(4) < 3
		}
		var fits []int
		for i := range free {
			if c.cpus <= free[i] {
				fits = append(fits, i)
			}
		}
		switch {
		case comes && len(fits) > 0 && 100*(used+c.cpus) <= 97*total:
			at := fits[random.IntN(len(fits))]
			c.zone = s.zones[at]
			free[at] -= c.cpus
			used += c.cpus
			holds = append(holds, held{c, at})
			out = append(out, event{claim: c})
		case len(holds) > 0 && 100*used >= 60*total:
			i := random.IntN(len(holds))
			h := holds[i]
			holds = slices.Delete(holds, i, i+1)
			free[h.zone] += h.cpus
			used -= h.cpus
			out = append(out, event{claim: h.claim, goes: true})
		}
	}
	return out
}

// run lets the placer place the claims of a history.
func run(p placer, m topology.Machine, events []event, countAllocations bool) (figures, error) {
	var f figures
	b := newBook(m)
	free, held := cpuset.New(m.Online().List()...), make(map[int]cpuset.CPUSet)
	for _, e := range events {
		if e.goes {
			if err := p.release(e.claim); err != nil {
				return f, err
			}
			free = free.Union(held[e.claim.id])
			delete(held, e.claim.id)
			continue
		}
		place, err := p.prepare(e.claim)
		if err != nil {
			return f, err
		}
		var before, after runtime.MemStats
		if countAllocations {
			runtime.ReadMemStats(&before)
		}
		start := time.Now()
		err = place()
		f.time += time.Since(start)
		if countAllocations {
			runtime.ReadMemStats(&after)
			f.allocations += after.Mallocs - before.Mallocs
		}
		if err != nil {
			return f, err
		}
		got, zone := p.placed(e.claim), cpuset.New(e.claim.zone.cpus.List()...)
		if got.Size() != e.claim.cpus || !got.IsSubsetOf(zone) {
			return f, fmt.Errorf("%d CPUs of %s wanted, got %s", e.claim.cpus, zone, got)
		}
		f.add(b.judge(e.claim, free.Intersection(zone), got))
		held[e.claim.id] = got
		free = free.Difference(got)
	}
	return f, nil
}
