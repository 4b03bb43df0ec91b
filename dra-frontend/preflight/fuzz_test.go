// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
)

// FuzzCheck: files of kubelet and the kernel have any content. A node that is fit has
// cgroup v2 and no static policy, and an error quotes little of the policies.
func FuzzCheck(f *testing.F) {
	none := `{"policyName":"none"}`
	f.Add(cgroup2, "6.12.43+deb13-amd64\n", none)
	f.Add(strings.Replace(cgroup2, "nsdelegate", "memory_hugetlb_accounting", 1), "5.8", `{"policyName":"static"}`)
	f.Add("25 21 0:23 / /sys/fs/cgroup rw", "v1", "null")
	f.Fuzz(func(t *testing.T, mountinfo, osrelease, policy string) {
		n := node(mountinfo, osrelease, policy, none)
		_ = preflight.MemoryHigh(n.Proc)
		_, err := preflight.Check(node(cgroup2, "6.12", policy, none))
		if err != nil {
			require.Less(t, len(err.Error()), 600)
		}
		if _, err := preflight.Check(n); err != nil || policy == "" {
			return
		}
		require.Contains(t, mountinfo, "cgroup2")
		var state struct {
			PolicyName string `json:"policyName"`
		}
		require.NoError(t, json.Unmarshal([]byte(policy), &state))
		require.True(t, strings.EqualFold("none", state.PolicyName))
	})
}
