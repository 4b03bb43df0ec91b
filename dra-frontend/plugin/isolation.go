// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/amounts"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// The CPUs of a claim are kept from other containers in one of two ways: the
// shared pool leaves them out, or the claim's container is a cpuset partition,
// so that the kernel takes them from all other cgroups. A partition is one
// cgroup. So a result can be a partition only if one container has it alone,
// and a container is a partition with all its CPUs or not at all.

// cpuUse is a result with CPUs, and what decides whether it is a partition.
type cpuUse struct {
	namespace, claim, uid, request string
	// count is the number of CPUs.
	count int
	// isolation and exclusivity are from the result's settings.
	isolation, exclusivity string
	pods                   []Pod
	// none is the reason why the result is no partition, nil for a result that
	// is a partition or can be one. unread is set if the only reason is that
	// the pods could not be read.
	none, unread error
}

// demand names the setting that demands a partition, empty for none.
func (k cpuUse) demand() string {
	switch {
	case k.isolation == parameters.IsolationPartition || k.isolation == parameters.IsolationIsolated:
		return "cpu.isolation: " + k.isolation
	case k.exclusivity == config.ExclusivityPartition:
		return "exclusivity of this node's configuration: " + k.exclusivity
	}
	return ""
}

// obstacle returns why the result cannot be a partition, whatever else its
// container uses, or nil. joinable reports whether more pods may use the claim.
func (k cpuUse) obstacle(joinable bool) error {
	used, running := containers(k.pods, k.claim, k.request)
	switch {
	case k.isolation == parameters.IsolationNone:
		return errors.New("cpu.isolation of the claim is none")
	case k.exclusivity == config.ExclusivityPool:
		return errors.New("exclusivity of this node's configuration is pool")
	case len(k.pods) > 1:
		return fmt.Errorf("%d pods have the claim", len(k.pods))
	case used == 0:
		return errors.New("no container uses it")
	case len(running) > 1:
		return fmt.Errorf("%d containers that run at the same time use it (%s)", len(running), few(running))
	case k.demand() != "":
		return nil
	case joinable:
		return errors.New("other pods may come to the claim")
	}
	for _, p := range k.pods {
		if p.RuntimeClass != "" {
			return fmt.Errorf("pod %s has runtime class %s: its containers may have no cgroup of their own on this machine",
				p.Name, p.RuntimeClass)
		}
	}
	return nil
}

// meets returns a container that uses both results, as "pod/container", or "".
func (k cpuUse) meets(other cpuUse) (container string) {
	for _, p := range k.pods {
		for _, c := range p.Containers {
			if k.namespace == other.namespace && c.uses(k.claim, k.request) && c.uses(other.claim, other.request) {
				return p.Name + "/" + c.Name
			}
		}
	}
	return ""
}

// cpuUses returns the results with CPUs in the claims of one call. Results that
// cannot be read are left out: their claims are refused, and the pod does not
// start.
func (d *Driver) cpuUses(claims []*resourceapi.ResourceClaim, read map[types.UID]func() (users, error)) []cpuUse {
	var out []cpuUse
	for _, claim := range claims {
		results, err := ownResults(claim)
		if err != nil || len(results) == 0 {
			continue
		}
		users, usersErr := read[claim.UID]()
		joinable, uses := !ownedByPod(claim), []cpuUse(nil)
		for _, r := range results {
			a, err := amounts.Of(r, d.settings.Memory.PageSize)
			if err != nil {
				continue
			}
			joinable = joinable && !a.Divisible()
			settings, err := d.settings.Resolve(r.Request, configOf(claim, r))
			if err != nil || a.CPUs == 0 {
				continue
			}
			k := cpuUse{
				namespace: claim.Namespace, claim: claim.Name, uid: string(claim.UID), request: r.Request, count: a.CPUs,
				isolation: settings.Isolation, exclusivity: settings.Exclusivity, pods: users.pods,
			}
			// A claim that demands a partition takes no more pods.
			joinable = joinable && k.demand() == ""
			uses = append(uses, k)
		}
		for _, k := range uses {
			if k.none, k.unread = usersErr, usersErr; usersErr == nil {
				k.none = k.obstacle(joinable)
			}
			out = append(out, k)
		}
	}
	return out
}

// partition returns the kind of partition for a result of u's claim, empty for
// none. The error says why a partition that is needed cannot be made, or which
// pods could not be read.
func (u users) partition(request string, prepared []contract.ClaimRecord, features []string) (string, error) {
	uses := u.settle(prepared, features)
	i := slices.IndexFunc(uses, func(k cpuUse) bool { return k.uid == u.uid && k.request == request })
	if i < 0 {
		return "", errors.New("it is not among what this call asks for: a fault of this driver")
	}
	self := uses[i]
	for _, other := range uses {
		if c := self.meets(other); c != "" && other.unread != nil {
			// A decision stands once it is made, so this decision waits until
			// the pods can be read.
			return "", fmt.Errorf("container %s has CPUs of claim %s as well: %w", c, other.claim, other.unread)
		}
	}
	switch {
	case self.none == nil && self.isolation == parameters.IsolationIsolated:
		return contract.PartitionIsolated, nil
	case self.none == nil:
		return contract.PartitionRoot, nil
	case self.demand() != "":
		return "", fmt.Errorf("%s, but it cannot be a cpuset partition: %w", self.demand(), self.none)
	}
	for _, other := range uses {
		if c := self.meets(other); c != "" && other.none == nil {
			return "", fmt.Errorf("container %s has CPUs of claim %s as well, which is a cpuset partition already, "+
				"and this cannot be one: %w", c, other.claim, self.none)
		}
	}
	return "", nil
}

// reason returns why a prepared result is no partition, as far as the call
// knows.
func (u users) reason(prepared cpuUse) error {
	for _, k := range u.cpus {
		if k.none != nil && k.uid == prepared.uid && k.request == prepared.request {
			return k.none
		}
	}
	return errors.New("it was prepared without")
}

// settle returns the results with CPUs of this call and of prepared claims,
// each with the reason why it is no partition. The answer is the same for all
// claims of a call, whichever comes first (I8).
func (u users) settle(prepared []contract.ClaimRecord, features []string) []cpuUse {
	uses := slices.Clone(u.cpus)
	for i := range uses {
		if uses[i].none == nil && !slices.Contains(features, contract.FeaturePartition) {
			uses[i].none = errors.New("nri-actuator has found no way to make cpuset partitions on this node: " +
				"they need Linux 6.7 and a cgroup mount that is the machine's")
		}
	}
	for _, r := range prepared {
		if slices.ContainsFunc(u.cpus, func(k cpuUse) bool { return k.claim == r.Name && k.uid != r.UID }) {
			// The record is of an earlier claim of the same name, which is
			// being released.
			continue
		}
		// A prepared result stays as it was decided.
		uses = slices.DeleteFunc(uses, func(k cpuUse) bool { return k.uid == r.UID })
		for _, of := range r.Results {
			if of.Decision.CPUs.IsEmpty() {
				continue
			}
			k := cpuUse{namespace: r.Namespace, claim: r.Name, uid: r.UID, request: of.Request}
			if of.Decision.Partition == "" {
				k.none = u.reason(k)
			}
			uses = append(uses, k)
		}
	}
	for changed := true; changed; {
		changed = false
		for i, k := range uses {
			if k.none != nil {
				continue
			}
			for _, other := range uses {
				if c := k.meets(other); c != "" && other.none != nil {
					uses[i].none = fmt.Errorf("container %s has CPUs of claim %s, request %s, as well, and that is none: %w",
						c, other.claim, other.request, other.none)
					changed = true
					break
				}
			}
		}
	}
	return uses
}
