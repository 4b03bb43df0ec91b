// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
)

// FileQuota is the cgroup file of the CPU quota: the quota, or "max", and the period,
// both in microseconds (cgroup-v2.rst, "cpu.max").
const FileQuota = "cpu.max"

const (
	// QuotaNone is the quota of a container that the kernel never throttles.
	QuotaNone = "none"
	// QuotaPeriod is the period of the quotas that this driver writes, in microseconds. It
	// is the kernel's default and kubelet's.
	QuotaPeriod = 100_000
)

var (
	// NoQuota is the content of [FileQuota] without a quota.
	NoQuota = fmt.Sprintf("max %d", QuotaPeriod)

	quotaForm = formOf(`^(max|[1-9][0-9]{0,18}) [1-9][0-9]{0,6}$`)
)

// checkQuota checks the quota. Without CPUs of its own the container would run
// without a limit on the CPUs of other containers.
func (d Decision) checkQuota() error {
	switch {
	case d.Quota == "":
		return nil
	case d.Quota != QuotaNone:
		return fmt.Errorf("quota: %q is not %q", d.Quota, QuotaNone)
	case d.CPUs.IsEmpty():
		return fmt.Errorf("quota: %s without cpus", d.Quota)
	case !slices.Contains(d.Requires, FeatureQuota):
		return fmt.Errorf("quota: %s needs feature %q in requires", d.Quota, FeatureQuota)
	}
	return nil
}

// checkQuota checks the pod's quota.
func (p PodState) checkQuota(uid string) error {
	switch {
	case p.Quota == "":
		return nil
	case !quotaForm.matches(p.Quota):
		return fmt.Errorf("node state: pod %s: quota %q is not of the form \"max 100000\"", uid, p.Quota)
	case !slices.Contains(p.Requires, FeatureQuota):
		return fmt.Errorf("node state: pod %s: quota %q needs feature %q in requires", uid, p.Quota, FeatureQuota)
	}
	return nil
}
