// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/amounts"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// Others are kept off the CPUs of a claim in one of two ways: the shared pool
// leaves them out, or the claim's container is a cpuset partition, so that the
// kernel takes them from everybody. A partition is one cgroup's, so it is for
// results that one container uses.

// cpuUse is a result with CPUs, as far as it matters to that.
type cpuUse struct {
	claim, request string
	// isolation and exclusivity are as in the settings.
	isolation, exclusivity string
	// joinable tells whether other pods may come to the claim, shared whether
	// they are there.
	joinable, shared bool
}

// asked tells whether the user or the node wants a partition or nothing.
func (k cpuUse) asked() bool {
	return k.isolation != "" || k.exclusivity == config.ExclusivityPartition
}

// cpuUses returns the results with CPUs in the claims of one call. Those that
// cannot be read are left out: their claims are refused, and the pod does not
// start.
func (d *Driver) cpuUses(claims []*resourceapi.ResourceClaim) []cpuUse {
	var out []cpuUse
	for _, claim := range claims {
		results, err := ownResults(claim)
		if err != nil {
			continue
		}
		divisible, uses := false, []cpuUse(nil)
		for _, r := range results {
			a, err := amounts.Of(r, d.settings.Memory.PageSize)
			if err != nil {
				continue
			}
			divisible = divisible || a.Divisible()
			settings, err := d.settings.Resolve(r.Request, configOf(claim, r))
			if err != nil || a.CPUs == 0 {
				continue
			}
			uses = append(uses, cpuUse{
				claim: claim.Name, request: r.Request, shared: len(claim.Status.ReservedFor) > 1,
				isolation: settings.Isolation, exclusivity: settings.Exclusivity,
			})
		}
		for _, k := range uses {
			k.joinable = !divisible && !ownedByPod(claim)
			out = append(out, k)
		}
	}
	return out
}

// partition returns the kind of partition for a result of the claim that u is
// about, empty for none. The error says why there cannot be one that is asked
// for.
func (u users) partition(request string, prepared []contract.ClaimRecord, features []string) (string, error) {
	i := slices.IndexFunc(u.cpus, func(k cpuUse) bool { return k.claim == u.claim && k.request == request })
	if i < 0 {
		return "", fmt.Errorf("it is not among what this call asks for: a fault of this driver")
	}
	self := u.cpus[i]
	switch {
	case self.isolation == parameters.IsolationNone && self.exclusivity == config.ExclusivityPartition:
		return "", errors.New("cpu.isolation: none, but every claim of this node is to be a partition (exclusivity of its configuration): leave it out")
	case self.isolation == parameters.IsolationNone:
		return "", nil
	case self.exclusivity == config.ExclusivityPool && self.isolation != "":
		return "", fmt.Errorf("cpu.isolation: %s, but this node has none (exclusivity of its configuration is pool): want none", self.isolation)
	case self.exclusivity == config.ExclusivityPool:
		return "", nil
	}
	err := u.alone(self)
	if !slices.Contains(features, contract.FeaturePartition) {
		err = errors.New("nri-actuator has found no way to make cpuset partitions on this node: they need Linux 6.7 and a cgroup mount that is the machine's")
	}
	if err == nil {
		err = u.unmixed(self, prepared)
	}
	switch {
	case err != nil && self.asked():
		return "", fmt.Errorf("it cannot be a partition (cpu.isolation %q, exclusivity %s): %w", self.isolation, self.exclusivity, err)
	case err != nil:
		return "", nil
	case self.isolation == parameters.IsolationIsolated:
		return contract.PartitionIsolated, nil
	}
	return contract.PartitionRoot, nil
}

// alone tells why the CPUs are or may come to be those of several cgroups, or
// of one that is not on this machine.
func (u users) alone(k cpuUse) error {
	running := u.running(k.claim, k.request)
	if len(running) > 1 || k.shared {
		return fmt.Errorf("%d containers that run at the same time use it (%s), or other pods do", len(running), strings.Join(running, ", "))
	}
	if k.asked() {
		return nil
	}
	if k.joinable {
		return errors.New("other pods may come to the claim")
	}
	for _, p := range u.pods {
		if p.RuntimeClass != "" {
			return fmt.Errorf("pod %s has runtime class %s: its containers may have no cgroup of their own on this machine", p.Name, p.RuntimeClass)
		}
	}
	return nil
}

// unmixed tells why a container that uses the result would be a partition with
// CPUs of another claim that are not its alone.
func (u users) unmixed(self cpuUse, prepared []contract.ClaimRecord) error {
	for _, p := range u.pods {
		for _, c := range p.Containers {
			if !c.uses(self.claim, self.request) {
				continue
			}
			for _, other := range u.cpus {
				pooled := other.isolation == parameters.IsolationNone || u.alone(other) != nil
				if pooled && c.uses(other.claim, other.request) {
					return mixed(p, c, other.claim)
				}
			}
			for _, r := range prepared {
				if r.Namespace == u.namespace && slices.ContainsFunc(r.Results, func(of contract.ResultRecord) bool {
					return of.Decision.CPUs != "" && of.Decision.Partition == "" && c.uses(r.Name, of.Request)
				}) {
					return mixed(p, c, r.Name)
				}
			}
		}
	}
	return nil
}

func mixed(p Pod, c Container, claim string) error {
	return fmt.Errorf("container %s/%s has CPUs of claim %s as well, which cannot be a partition or is not to be", p.Name, c.Name, claim)
}
