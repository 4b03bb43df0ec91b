// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

// claimResult is a result of one of the call's claims. The values of a container depend
// on all results that the container uses.
type claimResult struct {
	claim Claim
	Result
}

// resultsOf returns the results of the claims, sorted by claim UID and index, with
// unlimited memory last. The results of a pod's claims are complete: kubelet
// asks for all claims of a pod in one call, until one call has prepared all of
// them. Input.OtherClaims has the claims that kubelet leaves out because it knows
// them to be prepared.
func resultsOf(claims []Claim) []claimResult {
	var results []claimResult
	for _, claim := range claims {
		for _, r := range claim.Results {
			results = append(results, claimResult{claim, r})
		}
	}
	slices.SortFunc(results, func(a, b claimResult) int {
		return cmp.Or(boolCompare(a.unlimited(), b.unlimited()), cmp.Compare(a.claim.UID, b.claim.UID), cmp.Compare(a.Index, b.Index))
	})
	return results
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

func (u claimResult) is(claim Claim, r Result) bool {
	return u.claim.UID == claim.UID && u.Index == r.Index
}

// resultsUsedBy returns the results that a container of the claim's pods uses.
func (c call) resultsUsedBy(claim Claim, container Container) []claimResult {
	var used []claimResult
	if len(container.Claims) == 0 {
		return nil
	}
	for i := range c.results { // a result is large
		if u := &c.results[i]; u.claim.Namespace == claim.Namespace && container.uses(u.claim.Name, u.Request) {
			used = append(used, *u)
		}
	}
	return used
}

// memoryContainer is a container that uses a result with memory.
type memoryContainer struct {
	name string
	// limited reports whether the container's spec has a memory limit.
	limited bool
	// memory has all results with memory of the container.
	memory memoryqos.Container
	// position is the place of the result in memory.Results.
	position int
	// description names memory.Results.
	description string
}

// memoryValues returns the memory values for a result. One decision serves all
// containers that use the result, and the container with the least room above
// its claimed memory decides.
func (c call) memoryValues(claim Claim, r Result) (contract.Memory, error) {
	policy := r.Settings.Memory
	users, err := c.memoryContainers(claim, r)
	if err != nil {
		return contract.Memory{}, err
	}
	if err := allOrNoneLimited(users); err != nil {
		return contract.Memory{}, err
	}
	tightest := memoryContainer{memory: memoryqos.Container{Results: []memoryqos.Result{r.Memory}}}
	if len(users) > 0 {
		tightest = slices.MinFunc(users, func(a, b memoryContainer) int { return cmp.Compare(a.memory.Headroom(), b.memory.Headroom()) })
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
		return m, fmt.Errorf("container %s (%s): %w", tightest.name, tightest.description, err)
	}
	return m, nil
}

// memoryContainers returns the containers that use a result with memory.
func (c call) memoryContainers(claim Claim, r Result) ([]memoryContainer, error) {
	var users []memoryContainer
	for _, p := range claim.Pods {
		if err := c.fits(claim, p); err != nil {
			return nil, err
		}
		for _, container := range p.Containers {
			if !container.uses(claim.Name, r.Request) {
				continue
			}
			results := slices.DeleteFunc(c.resultsUsedBy(claim, container), func(u claimResult) bool { return u.Amounts.Memory == 0 })
			u := memoryContainer{
				name: p.Name + "/" + container.Name, limited: container.MemoryLimit > 0,
				memory:      memoryqos.Container{Limit: container.MemoryLimit, Ceiling: p.MemoryLimit},
				position:    slices.IndexFunc(results, func(u claimResult) bool { return u.is(claim, r) }),
				description: describe(results),
			}
			if u.position < 0 {
				return nil, fmt.Errorf("container %s uses it, and it is not among the results of this call (%s): "+
					"a fault of this driver", u.name, u.description)
			}
			for _, other := range results {
				u.memory.Results = append(u.memory.Results, other.Memory)
			}
			users = append(users, u)
		}
	}
	return users, nil
}

func allOrNoneLimited(users []memoryContainer) error {
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
	return fmt.Errorf("one decision serves all containers that use the request, but some have a memory limit of their own (%s) "+
		"and some have none (%s): give all of them a limit, or none",
		contract.Few(limited, maxNamed), contract.Few(unlimited, maxNamed))
}

// fits refuses claimed memory above the limit of the whole pod. The claims of
// containers that run at the same time count together.
func (c call) fits(claim Claim, p Pod) error {
	if p.MemoryLimit == 0 {
		return nil
	}
	var running []claimResult
	for _, container := range p.Containers {
		now := slices.Clone(running)
		for _, u := range c.resultsUsedBy(claim, container) {
			if !slices.ContainsFunc(now, func(other claimResult) bool { return other.is(u.claim, u.Result) }) {
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
		if container.BesideMain {
			running = now
		}
	}
	return nil
}

// describe names some of the results with memory and their amounts.
func describe(results []claimResult) string {
	var out []string
	for _, u := range results {
		if u.Amounts.Memory > 0 {
			out = append(out, fmt.Sprintf("claim %s request %s: %d", u.claim.Name, u.Request, u.Amounts.Memory))
		}
	}
	return contract.Few(out, maxNamed)
}
