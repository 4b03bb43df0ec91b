// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"maps"
	"path"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// hugepages returns the result's hugepage limits in bytes by page size. A claim must
// not lower the limit of a container's spec. If the limits of all results of a
// container add up to less, its first result gets the difference. With Settings.OnTop
// its first result gets the whole limit of the spec in addition, as in kubelet.
func (c call) hugepages(claim Claim, r Result) map[string]int64 {
	raised := maps.Clone(r.Amounts.Hugepages)
	for _, p := range claim.Pods {
		for _, container := range p.Containers {
			if !container.uses(claim.Name, r.Request) {
				continue
			}
			for size, amount := range r.Amounts.Hugepages {
				first, sum := true, int64(0)
				for _, u := range c.resultsUsedBy(claim, container) {
					if limit := u.hugepageLimits()[size]; limit > 0 {
						first = first && (sum > 0 || u.is(claim, r))
						sum += limit
					}
				}
				if r.Settings.OnTop {
					sum = 0
				}
				if first {
					raised[size] = max(raised[size], amount+container.Hugepages[size]-sum)
				}
			}
		}
	}
	return raised
}

// hugepageLimits returns the amounts in bytes by page size, nil if the
// parameters leave the limits unchanged.
func (r Result) hugepageLimits() map[string]int64 {
	if r.Settings.Hugepages == config.HugepagesUnchanged {
		return nil
	}
	return r.Amounts.Hugepages
}

// hugetlbfs returns the page sizes of the hugetlbfs mounts for the containers
// that use a result: kubelet gives hugepage volumes only to pods that request
// hugepages in their spec. A size is left out if such a container has a mount at
// its path. Without the parameter hugepages.mount, there are mounts where the
// pod allows them.
func (c Claim) hugetlbfs(r Result) ([]string, error) {
	wish := r.Settings.HugepagesMount
	if wish != nil && !*wish {
		return nil, nil
	}
	sizes := slices.Sorted(maps.Keys(r.Amounts.Hugepages))
	for _, p := range c.Pods {
		if wish == nil && (p.UserNamespace || p.RuntimeClass != "") {
			// With a runtime class the mount may belong to another kernel.
			return nil, nil
		}
		if p.UserNamespace && len(sizes) > 0 {
			return nil, fmt.Errorf("hugepages.mount: true, but pod %s has a user namespace of its own (hostUsers: false), "+
				"in which the kernel mounts no hugetlbfs: leave one of them out", p.Name)
		}
		for _, container := range p.Containers {
			if !container.uses(c.Name, r.Request) {
				continue
			}
			sizes = slices.DeleteFunc(sizes, func(size string) bool {
				return slices.ContainsFunc(container.MountPaths, func(at string) bool {
					return path.Clean(at) == contract.HugetlbfsPath(size)
				})
			})
		}
	}
	return sizes, nil
}
