// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"path"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// hugetlbfs returns the page sizes of which the containers that use the request
// get a file system. Kubelet gives a volume of hugepages to pods only that
// request them in their spec. What the pod mounts at the same path stays. wish
// is the parameter, nil to mount where nothing speaks against it.
func (u users) hugetlbfs(request string, wish *bool, amounts map[string]int64) ([]string, error) {
	if wish != nil && !*wish {
		return nil, nil
	}
	sizes := slices.Sorted(maps.Keys(amounts))
	for _, p := range u.pods {
		if wish == nil && (p.UserNamespace || p.RuntimeClass != "") {
			// With a runtime class it may be the mount of another kernel.
			return nil, nil
		}
		if p.UserNamespace && len(sizes) > 0 {
			return nil, fmt.Errorf("hugepages.mount: true, but pod %s has a user namespace of its own (hostUsers: false), in which the kernel mounts no hugetlbfs: leave one of them out",
				p.Name)
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
