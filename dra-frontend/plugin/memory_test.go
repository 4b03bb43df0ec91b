// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

// A result that is not among the results of the call is refused, so that no
// result gets another result's values. The call has no such result.
func TestResultNobodyAskedFor(t *testing.T) {
	u := users{namespace: "ns", claim: "c", uid: "1",
		pods:  []Pod{{Name: "p", Containers: []Container{{Name: "main", Runs: true, Claims: []ClaimReference{{Claim: "c"}}}}}},
		asked: []claimed{{namespace: "ns", claim: "c", request: "r", uid: "1", index: 0, memory: memoryqos.Use{Amount: 4096, Limit: 4096}}}}
	policy := memoryqos.Policy{Protection: memoryqos.Auto, PageSize: 4096}
	_, err := u.memory("r", 0, policy, 4096)
	require.NoError(t, err)
	_, err = u.memory("r", 1, policy, 4096)
	require.ErrorContains(t, err, "container p/main")
}
