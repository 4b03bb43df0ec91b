// SPDX-License-Identifier: Apache-2.0

package memoryqos_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

const mi = 1 << 20

func TestContainer(t *testing.T) {
	factor := func(f float64) *float64 { return &f }
	for name, tc := range map[string]struct {
		amount, limit int64
		policy        memoryqos.Policy
		want          contract.Memory
	}{
		"no limit of its own: the amount is the limit": {512 * mi, 0, memoryqos.Policy{Protection: memoryqos.Auto},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: 512 * mi}},
		"limit equal to the amount": {512 * mi, 512 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: factor(0.9)},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: contract.Max}},
		"limit above the amount": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: factor(0.5)},
			contract.Memory{Low: 512 * mi, High: 768 * mi, Max: contract.Max}},
		"factor one": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: factor(1)},
			contract.Memory{Low: 512 * mi, High: 1024 * mi, Max: contract.Max}},
		"factor so small that high would be the amount": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: factor(1e-9)},
			contract.Memory{Low: 512 * mi, High: contract.Max, Max: contract.Max}},
		"no factor": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto},
			contract.Memory{Low: 512 * mi, High: contract.Max, Max: contract.Max}},
		"protection min": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Min},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: contract.Max}},
		"protection low": {512 * mi, 0, memoryqos.Policy{Protection: memoryqos.Low},
			contract.Memory{Low: 512 * mi, High: contract.Max, Max: 512 * mi}},
		"protection none": {512 * mi, 0, memoryqos.Policy{Protection: memoryqos.None},
			contract.Memory{High: contract.Max, Max: 512 * mi}},
		"a limit of the parameters": {512 * mi, 0, memoryqos.Policy{Limit: 1024*mi + 5000, Protection: memoryqos.Auto, Factor: factor(0.5)},
			contract.Memory{Low: 512 * mi, High: 768 * mi, Max: 1024*mi + 4096}},
		"a limit of the parameters equal to the amount": {512 * mi, 0, memoryqos.Policy{Limit: 512 * mi, Protection: memoryqos.Auto},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: 512 * mi}},
		"the container's own limit before that of the parameters": {512 * mi, 600 * mi, memoryqos.Policy{Limit: 1024 * mi, Protection: memoryqos.None},
			contract.Memory{High: contract.Max, Max: contract.Max}},
		"64Ki pages round down": {64 << 10, 100 * 64 << 10, memoryqos.Policy{Protection: memoryqos.None, Factor: factor(0.333), PageSize: 64 << 10},
			contract.Memory{High: 33 * 64 << 10, Max: contract.Max}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.policy.PageSize == 0 {
				tc.policy.PageSize = 4096
			}
			got, err := memoryqos.Container(tc.amount, tc.limit, tc.policy)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestContainerRefuses(t *testing.T) {
	policy := memoryqos.Policy{Protection: memoryqos.Auto, PageSize: 4096}
	_, err := memoryqos.Container(512*mi, 511*mi, policy)
	require.ErrorContains(t, err, "limit of 535822336 bytes is below the claimed 536870912 bytes")
	_, err = memoryqos.Container(512*mi, 0, memoryqos.Policy{Limit: 511 * mi, PageSize: 4096})
	require.ErrorContains(t, err, "memory.limit of 535822336 bytes is below the claimed 536870912 bytes: want at least the claimed amount")
	_, err = memoryqos.Container(4097, 0, policy)
	require.ErrorContains(t, err, "4097 is not a positive multiple")
}

// The values are ordered as the kernel needs them, whatever comes in.
func TestContainerLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int64{4096, 16384, 65536}).Draw(t, "page")
		amount := rapid.Int64Range(1, 1<<40/page).Draw(t, "pages") * page
		limit := amount + rapid.Int64Range(0, 1<<40).Draw(t, "above")
		f := rapid.Float64Range(0.001, 1).Draw(t, "factor")
		m, err := memoryqos.Container(amount, limit, memoryqos.Policy{Factor: &f, Protection: memoryqos.Auto, PageSize: page})
		require.NoError(t, err)
		if m.High != contract.Max {
			require.Greater(t, int64(m.High), amount)
			require.LessOrEqual(t, int64(m.High), limit)
			require.Zero(t, int64(m.High)%page)
		}
		require.Equal(t, contract.Limit(amount), m.Min+m.Low, "exactly one protection of the claimed amount")
	})
}
