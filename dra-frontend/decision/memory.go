// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

// use is a result of one of the call's claims. The values of a container depend
// on all results that the container uses.
type use struct {
	claim Claim
	Result
}

// usesOf returns the results of the claims, sorted by claim UID and index, with
// unlimited memory last. The results of a pod's claims are complete: kubelet
// asks for all claims of a pod in one call, until one call has prepared all of
// them. Input.Beside has the claims that kubelet leaves out because it knows
// them to be prepared.
func usesOf(claims []Claim) []use {
	var uses []use
	for _, claim := range claims {
		for _, r := range claim.Results {
			uses = append(uses, use{claim, r})
		}
	}
	slices.SortFunc(uses, func(a, b use) int {
		return cmp.Or(boolCompare(a.unlimited(), b.unlimited()), cmp.Compare(a.claim.UID, b.claim.UID), cmp.Compare(a.Index, b.Index))
	})
	return uses
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

func (u use) is(claim Claim, r Result) bool { return u.claim.UID == claim.UID && u.Index == r.Index }

// usedBy returns the results that a container of the claim's pods uses.
func (c call) usedBy(claim Claim, container Container) []use {
	return slices.DeleteFunc(slices.Clone(c.uses), func(u use) bool {
		return u.claim.Namespace != claim.Namespace || !container.uses(u.claim.Name, u.Request)
	})
}

// user is a container that uses a result with memory.
type user struct {
	name string
	// limited reports whether the container's spec has a memory limit.
	limited bool
	// memory has all results with memory of the container.
	memory memoryqos.Container
	// position is the place of the result in memory.Uses.
	position int
	// uses describes memory.Uses.
	uses string
}

// memoryValues returns the memory values for a result. One decision serves all
// containers that use the result, and the container with the least room above
// its claimed memory decides.
func (c call) memoryValues(claim Claim, r Result) (contract.Memory, error) {
	policy := r.Settings.Memory
	users, err := c.memoryUsers(claim, r)
	if err != nil {
		return contract.Memory{}, err
	}
	if err := allOrNoneLimited(users); err != nil {
		return contract.Memory{}, err
	}
	tightest := user{memory: memoryqos.Container{Uses: []memoryqos.Use{r.Memory}}}
	if len(users) > 0 {
		tightest = slices.MinFunc(users, func(a, b user) int { return cmp.Compare(a.memory.Headroom(), b.memory.Headroom()) })
	}
	if tightest.memory.Limit == 0 && tightest.memory.Ceiling == 0 {
		tightest.memory.Ceiling = math.MaxInt64
		if r.unlimited() && policy.Factor != nil {
			if tightest.memory.Ceiling = c.AllocatableMemory; c.AllocatableMemoryErr != nil {
				return contract.Memory{}, fmt.Errorf("memory.limit is unlimited, "+
					"so that memory.high depends on the node's allocatable memory: %w", c.AllocatableMemoryErr)
			}
		}
	}
	m, err := tightest.memory.Values(tightest.position, policy)
	if err != nil {
		return m, fmt.Errorf("container %s (%s): %w", tightest.name, tightest.uses, err)
	}
	return m, nil
}

// memoryUsers returns the containers that use a result with memory.
func (c call) memoryUsers(claim Claim, r Result) ([]user, error) {
	var users []user
	for _, p := range claim.Pods {
		if err := c.fits(claim, p); err != nil {
			return nil, err
		}
		for _, container := range p.Containers {
			if !container.uses(claim.Name, r.Request) {
				continue
			}
			uses := slices.DeleteFunc(c.usedBy(claim, container), func(u use) bool { return u.Amounts.Memory == 0 })
			u := user{
				name: p.Name + "/" + container.Name, limited: container.MemoryLimit > 0,
				memory:   memoryqos.Container{Limit: container.MemoryLimit, Ceiling: p.MemoryLimit},
				position: slices.IndexFunc(uses, func(u use) bool { return u.is(claim, r) }),
				uses:     describe(uses),
			}
			if u.position < 0 {
				return nil, fmt.Errorf("container %s uses it, and it is not among the results of this call (%s): "+
					"a fault of this driver", u.name, u.uses)
			}
			for _, other := range uses {
				u.memory.Uses = append(u.memory.Uses, other.Memory)
			}
			users = append(users, u)
		}
	}
	return users, nil
}

func allOrNoneLimited(users []user) error {
	var limited, unlimited []string
	for _, u := range users {
		if u.limited {
			limited = append(limited, u.name)
		} else {
			unlimited = append(unlimited, u.name)
		}
	}
	if len(limited) == 0 || len(unlimited) == 0 {
		return nil
	}
	return fmt.Errorf("of the containers that use it some have a memory limit of their own (%s) "+
		"and some have none (%s), and one value serves all: give all of them a limit, or none", few(limited), few(unlimited))
}

// fits refuses claimed memory above the limit of the whole pod. The claims of
// containers that run at the same time count together.
func (c call) fits(claim Claim, p Pod) error {
	if p.MemoryLimit == 0 {
		return nil
	}
	var running []use
	for _, container := range p.Containers {
		now := slices.Clone(running)
		for _, u := range c.usedBy(claim, container) {
			if !slices.ContainsFunc(now, func(other use) bool { return other.is(u.claim, u.Result) }) {
				now = append(now, u)
			}
		}
		sum := int64(0)
		for _, u := range now {
			sum += u.Amounts.Memory
		}
		if sum > p.MemoryLimit {
			return fmt.Errorf("the memory limit of pod %s of %d bytes is below the claimed %d bytes (%s): raise the limit or drop it",
				p.Name, p.MemoryLimit, sum, describe(now))
		}
		if container.Runs {
			running = now
		}
	}
	return nil
}

// describe names results with memory and their amounts.
func describe(uses []use) string {
	var out []string
	for _, u := range uses {
		if u.Amounts.Memory > 0 {
			out = append(out, fmt.Sprintf("claim %s, request %s: %d", u.claim.Name, u.Request, u.Amounts.Memory))
		}
	}
	return strings.Join(out, "; ")
}
