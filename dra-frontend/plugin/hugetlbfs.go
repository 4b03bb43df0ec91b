// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"path"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// hugetlbfs returns the page sizes of the hugetlbfs mounts for the containers
// that use the request: kubelet gives hugepage volumes only to pods that
// request hugepages in their spec. A size is left out if such a container has a
// mount at its path. wish is the parameter hugepages.mount, nil to mount where
// the pod allows it.
func (u users) hugetlbfs(request string, wish *bool, amounts map[string]int64) ([]string, error) {
	if wish != nil && !*wish {
		return nil, nil
	}
	sizes := slices.Sorted(maps.Keys(amounts))
	for _, p := range u.pods {
		if wish == nil && (p.UserNamespace || p.RuntimeClass != "") {
			// With a runtime class the mount may belong to another kernel.
			return nil, nil
		}
		if p.UserNamespace && len(sizes) > 0 {
			return nil, fmt.Errorf("hugepages.mount: true, but pod %s has a user namespace of its own (hostUsers: false), "+
				"in which the kernel mounts no hugetlbfs: leave one of them out", p.Name)
		}
		for _, c := range p.Containers {
			if !c.uses(u.claim, request) {
				continue
			}
			sizes = slices.DeleteFunc(sizes, func(size string) bool {
				return slices.ContainsFunc(c.MountPaths, func(at string) bool { return path.Clean(at) == contract.HugetlbfsPath(size) })
			})
		}
	}
	return sizes, nil
}
