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

// claimed is one result that holds memory or hugepages: what a container's
// values depend on where it uses several.
type claimed struct {
	namespace, claim, request string
	// uid and index tell results apart.
	uid   string
	index int
	// memory is zero without memory.
	memory memoryqos.Use
	// hugepages are the amounts by page size whose limits follow the claim.
	hugepages map[string]int64
	// throttled tells whether the parameters have a throttling factor.
	throttled bool
}

// asked returns the results that hold memory or hugepages in the claims of one
// call, in an order of their own. Those that cannot be read are left out: their claims are refused, and
// the pod does not start.
func (d *Driver) asked(claims []*resourceapi.ResourceClaim) []claimed {
	var out []claimed
	for _, claim := range claims {
		results, err := ownResults(claim)
		if err != nil {
			continue
		}
		for i, r := range results {
			// The page size is the machine's: no lock is needed for it.
			a, err := amounts.Of(r, d.settings.Memory.PageSize)
			if err != nil || !a.Divisible() {
				continue
			}
			settings, err := d.settings.Resolve(r.Request, configOf(claim, r))
			if err != nil {
				continue
			}
			c := claimed{namespace: claim.Namespace, claim: claim.Name, request: r.Request, uid: string(claim.UID), index: i, throttled: settings.Memory.Factor != nil}
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

// order sorts what a call asks for, so that it does not depend on the order of
// claims (I8). Nothing of the pods' other claims is missing: kubelet reads all
// claims of a pod or asks for none, and asks for all of them again until one
// call has prepared all. What it knows to be prepared, for a pod that is ending,
// is read beside.
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

// usedBy returns those that a container uses of what is asked for.
func (u users) usedBy(c Container) []claimed {
	var out []claimed
	for _, k := range u.asked {
		if k.namespace == u.namespace && c.uses(k.claim, k.request) {
			out = append(out, k)
		}
	}
	return out
}

// memory returns the values for the result number index of the claim. One
// decision serves all containers that use the result; the one with the least
// room above what it claims decides.
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
				return contract.Memory{}, fmt.Errorf("container %s uses it, and it is not among what this call asks for (%s): a fault of this driver", name, describe(all))
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
		return contract.Memory{}, fmt.Errorf("of the containers that use it some have a memory limit of their own (%s) and some have none (%s), and one value serves all: give all of them a limit, or none",
			few(limited), few(unlimited))
	}
	if tightest.Limit == 0 && tightest.Ceiling == 0 {
		tightest.Ceiling = math.MaxInt64
		if self.Limit == contract.Max && policy.Factor != nil {
			if tightest.Ceiling, err = u.allocatable, u.allocatableErr; err != nil {
				return contract.Memory{}, fmt.Errorf("memory.limit is unlimited, so that memory.high depends on the node's allocatable memory: %w", err)
			}
		}
	}
	m, err := tightest.Values(position, policy)
	if err != nil {
		return m, fmt.Errorf("%s: %w", who, err)
	}
	return m, nil
}

// fits refuses amounts above the limit of the whole pod: those of containers
// that run at the same time count together.
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
			return fmt.Errorf("the memory limit of pod %s of %d bytes is below the claimed %d bytes (%s): raise the limit or drop it", p.Name, p.MemoryLimit, sum, describe(now))
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

// hugepages returns the amounts, raised to what a container's own spec allows:
// a claim takes nothing away, and users mirror claims in the spec. Where claims
// are counted with the spec (added), the spec's limit is on top of the claims',
// as kubelet has it then. Of several results the first is raised, so that they
// add up to that.
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
