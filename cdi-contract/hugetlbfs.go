// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// HugetlbfsPath returns the path in a container at which its claim mounts the
// hugetlbfs of a page size ("2Mi", "1Gi").
func HugetlbfsPath(size string) string { return "/dev/hugepages-" + size }

// checkHugetlbfs returns an error unless the page sizes are sorted, distinct
// and valid.
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

// hugetlbfsMounts returns mounts of new file systems, not of host paths. They
// have no size option: the container's hugetlb limits bound the content, and
// two claims of a container bring the same mount. Each user may create files.
func hugetlbfsMounts(sizes []string) []*specs.Mount {
	var mounts []*specs.Mount
	for _, size := range sizes {
		mounts = append(mounts, &specs.Mount{
			HostPath: "hugetlbfs", ContainerPath: HugetlbfsPath(size), Type: "hugetlbfs",
			// hugetlbfs wants sizes as 2M and 1G.
			Options: []string{"pagesize=" + strings.TrimSuffix(size, "i"), "mode=1777", "nosuid", "nodev"},
		})
	}
	return mounts
}
