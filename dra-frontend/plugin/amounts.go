// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/amounts"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

// claimed is one result with memory or hugepages. The values of a container
// depend on all results that it uses.
type claimed struct {
	namespace, claim, request string
	// uid is the claim's UID, index the number of the result in the claim.
	uid   string
	index int
	// memory is zero for a result without memory.
	memory memoryqos.Use
	// hugepages are bytes by page size, nil if the parameters leave the limits
	// unchanged.
	hugepages map[string]int64
	// throttled reports whether the parameters have a throttling factor.
	throttled bool
}

// asked returns the results with memory or hugepages of one call's claims,
// in the order of [order]. Results that cannot be read are left out: their
// claims are refused, and the pod does not start.
func (d *Driver) asked(claims []*resourceapi.ResourceClaim) []claimed {
	var out []claimed
	for _, claim := range claims {
		results, err := ownResults(claim)
		if err != nil {
			continue
		}
		for i, r := range results {
			// This page size never changes, so no lock is needed.
			a, err := amounts.Of(r, d.settings.Memory.PageSize)
			if err != nil || !a.Divisible() {
				continue
			}
			settings, err := d.settings.Resolve(r.Request, configOf(claim, r))
			if err != nil {
				continue
			}
			c := claimed{
				namespace: claim.Namespace, claim: claim.Name, request: r.Request, uid: string(claim.UID), index: i,
				throttled: settings.Memory.Factor != nil,
			}
			if a.Memory > 0 {
				if c.memory, err = settings.Memory.Use(a.Memory); err != nil {
					continue
				}
			}
			if settings.Hugepages != config.HugepagesUnchanged {
				c.hugepages = a.Hugepages
			}
			out = append(out, c)
		}
	}
	return order(out)
}

// order sorts results by claim UID and index, unlimited memory last, so that
// the order of claims does not matter (I8). The results of a pod's claims are
// complete: kubelet asks for all claims of a pod in one call, until one call
// has prepared all of them. beside reads the claims that kubelet leaves out
// because it knows them to be prepared.
func order(asked []claimed) []claimed {
	slices.SortFunc(asked, func(a, b claimed) int {
		return cmp.Or(boolCompare(a.unlimited(), b.unlimited()), cmp.Compare(a.uid, b.uid), cmp.Compare(a.index, b.index))
	})
	return asked
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (c claimed) unlimited() bool { return c.memory.Limit == contract.Max }

func (c claimed) is(uid string, index int) bool { return c.uid == uid && c.index == index }

// usedBy returns the results of the call that the container uses.
func (u users) usedBy(c Container) []claimed {
	var out []claimed
	for _, k := range u.asked {
		if k.namespace == u.namespace && c.uses(k.claim, k.request) {
			out = append(out, k)
		}
	}
	return out
}

// memory returns the memory values for the result number index of the claim.
// One decision serves all containers that use the result. The container with
// the least room above its claimed memory decides.
func (u users) memory(request string, index int, policy memoryqos.Policy, amount int64) (contract.Memory, error) {
	self, err := policy.Use(amount)
	if err != nil {
		return contract.Memory{}, err
	}
	tightest, position := memoryqos.Container{Uses: []memoryqos.Use{self}}, 0
	var who string
	var limited, unlimited []string
	for _, p := range u.pods {
		if err := u.fits(p); err != nil {
			return contract.Memory{}, err
		}
		for _, c := range p.Containers {
			if !c.uses(u.claim, request) {
				continue
			}
			name := p.Name + "/" + c.Name
			if c.MemoryLimit > 0 {
				limited = append(limited, name)
			} else {
				unlimited = append(unlimited, name)
			}
			of := memoryqos.Container{Limit: c.MemoryLimit, Ceiling: p.MemoryLimit}
			all := slices.DeleteFunc(u.usedBy(c), func(k claimed) bool { return k.memory.Amount == 0 })
			at := slices.IndexFunc(all, func(k claimed) bool { return k.is(u.uid, index) })
			if at < 0 {
				return contract.Memory{}, fmt.Errorf("container %s uses it, and it is not among what this call asks for (%s): "+
					"a fault of this driver", name, describe(all))
			}
			for _, k := range all {
				of.Uses = append(of.Uses, k.memory)
			}
			if who == "" || of.Headroom() < tightest.Headroom() {
				tightest, position, who = of, at, fmt.Sprintf("container %s (%s)", name, describe(all))
			}
		}
	}
	if len(limited) > 0 && len(unlimited) > 0 {
		return contract.Memory{}, fmt.Errorf("of the containers that use it some have a memory limit of their own (%s) "+
			"and some have none (%s), and one value serves all: give all of them a limit, or none",
			few(limited), few(unlimited))
	}
	if tightest.Limit == 0 && tightest.Ceiling == 0 {
		tightest.Ceiling = math.MaxInt64
		if self.Limit == contract.Max && policy.Factor != nil {
			if tightest.Ceiling, err = u.allocatable, u.allocatableErr; err != nil {
				return contract.Memory{}, fmt.Errorf("memory.limit is unlimited, "+
					"so that memory.high depends on the node's allocatable memory: %w", err)
			}
		}
	}
	m, err := tightest.Values(position, policy)
	if err != nil {
		return m, fmt.Errorf("%s: %w", who, err)
	}
	return m, nil
}

// fits refuses claimed memory above the limit of the whole pod. The claims of
// containers that run at the same time count together.
func (u users) fits(p Pod) error {
	if p.MemoryLimit == 0 {
		return nil
	}
	var running []claimed
	for _, c := range p.Containers {
		now := slices.Clone(running)
		for _, k := range u.usedBy(c) {
			if !slices.ContainsFunc(now, func(other claimed) bool { return other.is(k.uid, k.index) }) {
				now = append(now, k)
			}
		}
		sum := int64(0)
		for _, k := range now {
			sum += k.memory.Amount
		}
		if sum > p.MemoryLimit {
			return fmt.Errorf("the memory limit of pod %s of %d bytes is below the claimed %d bytes (%s): raise the limit or drop it",
				p.Name, p.MemoryLimit, sum, describe(now))
		}
		if c.Runs {
			running = now
		}
	}
	return nil
}

// describe names results with memory and their amounts.
func describe(all []claimed) string {
	var out []string
	for _, c := range all {
		if c.memory.Amount > 0 {
			out = append(out, fmt.Sprintf("claim %s, request %s: %d", c.claim, c.request, c.memory.Amount))
		}
	}
	return strings.Join(out, "; ")
}

// hugepages returns the amounts in bytes by page size. It raises them so that
// the results of a container add up to the limit of its own spec: a claim takes
// nothing away, and users mirror claims in the spec. With added, the spec's
// limit comes on top of the claims, as in kubelet. Only the first result of a
// container is raised.
func (u users) hugepages(request string, index int, amounts map[string]int64, added bool) map[string]int64 {
	raised := maps.Clone(amounts)
	for _, p := range u.pods {
		for _, c := range p.Containers {
			if !c.uses(u.claim, request) {
				continue
			}
			for size, amount := range amounts {
				first, sum := true, int64(0)
				for _, k := range u.usedBy(c) {
					if k.hugepages[size] > 0 {
						first = first && (sum > 0 || k.is(u.uid, index))
						sum += k.hugepages[size]
					}
				}
				if added {
					sum = 0
				}
				if first {
					raised[size] = max(raised[size], amount+c.Hugepages[size]-sum)
				}
			}
		}
	}
	return raised
}
