// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// HugetlbfsPath is where a container finds the hugetlbfs of a page size ("2Mi",
// "1Gi") that its claim brings.
func HugetlbfsPath(size string) string { return "/dev/hugepages-" + size }

// checkHugetlbfs checks page sizes of mounts: sorted, each once.
func checkHugetlbfs(sizes []string) error {
	if !slices.IsSorted(sizes) || len(slices.Compact(slices.Clone(sizes))) != len(sizes) {
		return fmt.Errorf("hugetlbfs: page sizes %q are not sorted and distinct", sizes)
	}
	for _, size := range sizes {
		if _, err := ParsePageSize(size); err != nil {
			return fmt.Errorf("hugetlbfs: %w", err)
		}
	}
	return nil
}

// hugetlbfsMounts are mounts of new file systems, so that there is no host path.
// None has a size: the container's hugetlb limits bound what is in it, and two
// claims of a container bring the same mount. Any of its users may create files.
func hugetlbfsMounts(sizes []string) []*specs.Mount {
	var mounts []*specs.Mount
	for _, size := range sizes {
		mounts = append(mounts, &specs.Mount{
			HostPath: "hugetlbfs", ContainerPath: HugetlbfsPath(size), Type: "hugetlbfs",
			// hugetlbfs reads sizes as 2M and 1G.
			Options: []string{"pagesize=" + strings.TrimSuffix(size, "i"), "mode=1777", "nosuid", "nodev"},
		})
	}
	return mounts
}
