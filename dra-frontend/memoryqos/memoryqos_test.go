// SPDX-License-Identifier: Apache-2.0

package memoryqos_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

const (
	ki = 1 << 10
	mi = 1 << 20
	gi = 1 << 30
)

// alone returns the values of a container with one result.
func alone(amount, limit int64, p memoryqos.Policy) (contract.Memory, error) {
	use, err := p.Result(amount)
	if err != nil {
		return contract.Memory{}, err
	}
	return memoryqos.Container{Limit: limit, Ceiling: 16 * gi, Results: []memoryqos.Result{use}}.Values(0, p)
}

func TestContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		amount, limit int64
		policy        memoryqos.Policy
		want          contract.Memory
	}{
		"no limit of its own: the amount is the limit": {512 * mi, 0, memoryqos.Policy{Protection: memoryqos.Auto},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: 512 * mi}},
		"limit equal to the amount": {512 * mi, 512 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(0.9)},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: contract.Max}},
		"limit above the amount": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(0.5)},
			contract.Memory{Low: 512 * mi, High: 768 * mi, Max: contract.Max}},
		"factor one": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(1.0)},
			contract.Memory{Low: 512 * mi, High: 1024 * mi, Max: contract.Max}},
		"factor so small that high would be the amount": {
			amount: 512 * mi,
			limit:  1024 * mi,
			policy: memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(1e-9)},
			want:   contract.Memory{Low: 512 * mi, High: contract.Max, Max: contract.Max},
		},
		"no factor": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Auto},
			contract.Memory{Low: 512 * mi, High: contract.Max, Max: contract.Max}},
		"protection min": {512 * mi, 1024 * mi, memoryqos.Policy{Protection: memoryqos.Min},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: contract.Max}},
		"protection low": {512 * mi, 0, memoryqos.Policy{Protection: memoryqos.Low},
			contract.Memory{Low: 512 * mi, High: contract.Max, Max: 512 * mi}},
		"protection none": {512 * mi, 0, memoryqos.Policy{Protection: memoryqos.None},
			contract.Memory{High: contract.Max, Max: 512 * mi}},
		"a limit of the parameters": {512 * mi, 0, memoryqos.Policy{Limit: 1024*mi + 5000, Protection: memoryqos.Auto, Factor: new(0.5)},
			contract.Memory{Low: 512 * mi, High: 768 * mi, Max: 1024*mi + 4096}},
		"a limit of the parameters equal to the amount": {512 * mi, 0, memoryqos.Policy{Limit: 512 * mi, Protection: memoryqos.Auto},
			contract.Memory{Min: 512 * mi, High: contract.Max, Max: 512 * mi}},
		"the container's own limit before that of the parameters": {
			amount: 512 * mi,
			limit:  600 * mi,
			policy: memoryqos.Policy{Limit: 1024 * mi, Protection: memoryqos.None},
			want:   contract.Memory{High: contract.Max, Max: contract.Max},
		},
		"unlimited: the ceiling stands for the limit": {
			amount: 512 * mi,
			limit:  0,
			policy: memoryqos.Policy{Limit: contract.Max, Protection: memoryqos.Auto, Factor: new(0.5)},
			want:   contract.Memory{Low: 512 * mi, High: (512*mi + 16*gi) / 2, Max: contract.Max},
		},
		"unlimited without a factor": {512 * mi, 0, memoryqos.Policy{Limit: contract.Max, Protection: memoryqos.Auto},
			contract.Memory{Low: 512 * mi, High: contract.Max, Max: contract.Max}},
		"unlimited, all of the node": {16 * gi, 0, memoryqos.Policy{Limit: contract.Max, Protection: memoryqos.Auto, Factor: new(0.5)},
			contract.Memory{Low: 16 * gi, High: contract.Max, Max: contract.Max}},
		"unlimited, more than the node says it has": {
			amount: 17 * gi,
			limit:  0,
			policy: memoryqos.Policy{Limit: contract.Max, Protection: memoryqos.Auto, Factor: new(0.5)},
			want:   contract.Memory{Low: 17 * gi, High: contract.Max, Max: contract.Max},
		},
		"unlimited and a limit of its own": {
			amount: 512 * mi,
			limit:  512 * mi,
			policy: memoryqos.Policy{Limit: contract.Max, Protection: memoryqos.Auto, Factor: new(0.5)},
			want:   contract.Memory{Min: 512 * mi, High: contract.Max, Max: contract.Max},
		},
		"16Ki pages": {16 * ki, 100 * 16 * ki, memoryqos.Policy{Protection: memoryqos.None, Factor: new(0.5), PageSize: 16 * ki},
			contract.Memory{High: 50 * 16 * ki, Max: contract.Max}},
		"64Ki pages round down": {
			amount: 64 * ki,
			limit:  100 * 64 * ki,
			policy: memoryqos.Policy{Protection: memoryqos.None, Factor: new(0.333), PageSize: 64 * ki},
			want:   contract.Memory{High: 33 * 64 * ki, Max: contract.Max},
		},
		"less than a 64Ki page above": {
			amount: 64 * mi,
			limit:  64*mi + 60*ki,
			policy: memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(1.0), PageSize: 64 * ki},
			want:   contract.Memory{Low: 64 * mi, High: contract.Max, Max: contract.Max},
		},
		"a limit without end": {512 * mi, 1<<63 - 1, memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(1.0)},
			contract.Memory{Low: 512 * mi, High: 1 << 62, Max: contract.Max}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.policy.PageSize == 0 {
				tc.policy.PageSize = 4096
			}
			got, err := alone(tc.amount, tc.limit, tc.policy)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestContainerRefuses(t *testing.T) {
	policy := memoryqos.Policy{Protection: memoryqos.Auto, PageSize: 4096}
	_, err := alone(512*mi, 511*mi, policy)
	require.ErrorContains(t, err, "limit of 535822336 bytes is below the claimed 536870912 bytes")
	_, err = alone(512*mi, 0, memoryqos.Policy{Limit: 511 * mi, PageSize: 4096})
	require.ErrorContains(t, err, "memory.limit of 535822336 bytes is below the claimed 536870912 bytes: want at least the claimed amount")
	_, err = alone(4097, 0, policy)
	require.ErrorContains(t, err, "4097 is not a positive multiple")
	_, err = memoryqos.Container{Limit: 900 * mi, Results: []memoryqos.Result{{Amount: 512 * mi}, {Amount: 512 * mi}}}.Values(1, policy)
	require.ErrorContains(t, err, "limit of 943718400 bytes is below the claimed 1073741824 bytes")
}

// The parts of several results add up to the values of one claim of the sum.
func TestSeveralResults(t *testing.T) {
	for name, tc := range map[string]struct {
		container memoryqos.Container
		want      contract.Memory
	}{
		"a limit of its own": {memoryqos.Container{Limit: 2 * gi, Results: []memoryqos.Result{{256 * mi, 256 * mi}, {768 * mi, 768 * mi}}},
			contract.Memory{Low: gi, High: 3 * gi / 2, Max: contract.Max}},
		"all of its limit": {memoryqos.Container{Limit: gi, Results: []memoryqos.Result{{256 * mi, 256 * mi}, {768 * mi, 768 * mi}}},
			contract.Memory{Min: gi, High: contract.Max, Max: contract.Max}},
		"one so small that its own part is below a page": {
			container: memoryqos.Container{Limit: 2 * gi, Results: []memoryqos.Result{{4 * ki, 4 * ki}, {gi - 4*ki, gi - 4*ki}}},
			want:      contract.Memory{Low: gi, High: 3 * gi / 2, Max: contract.Max},
		},
		"no limits": {memoryqos.Container{Results: []memoryqos.Result{{256 * mi, 256 * mi}, {768 * mi, 768 * mi}}},
			contract.Memory{Min: gi, High: contract.Max, Max: gi}},
		"a limit of one's parameters": {memoryqos.Container{Results: []memoryqos.Result{{256 * mi, 256 * mi}, {768 * mi, 1792 * mi}}},
			contract.Memory{Low: gi, High: 3 * gi / 2, Max: 2 * gi}},
		"unlimited by one's parameters": {
			container: memoryqos.Container{Ceiling: 5 * gi, Results: []memoryqos.Result{{256 * mi, 512 * mi}, {768 * mi, contract.Max}}},
			want:      contract.Memory{Low: gi, High: 3 * gi, Max: contract.Max},
		},
		"unlimited by both": {
			container: memoryqos.Container{Ceiling: 5 * gi, Results: []memoryqos.Result{{256 * mi, contract.Max}, {768 * mi, contract.Max}}},
			want:      contract.Memory{Low: gi, High: 3 * gi, Max: contract.Max},
		},
		"limits without end": {memoryqos.Container{Results: []memoryqos.Result{{gi, 1 << 62}, {gi, 1 << 62}, {gi, 1 << 62}}},
			contract.Memory{Low: 3 * gi, High: (3*gi + 1<<62) / 2, Max: contract.Max}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(0.5), PageSize: 4 * ki}
			require.Equal(t, tc.want, merged(t, tc.container, func(int) memoryqos.Policy { return policy }))
		})
	}
}

// A result with a limit does not depend on the ceiling: the caller reads the
// ceiling only for results without a limit.
func TestCeilingIsForTheUnlimited(t *testing.T) {
	policy := memoryqos.Policy{Protection: memoryqos.Auto, Factor: new(0.5), PageSize: 4 * ki}
	c := memoryqos.Container{Ceiling: 5 * gi, Results: []memoryqos.Result{{256 * mi, 512 * mi}, {768 * mi, contract.Max}}}
	want, err := c.Values(0, policy)
	require.NoError(t, err)
	c.Ceiling = 1<<63 - 1
	got, err := c.Values(0, policy)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// merged returns the container's values: the contract's merge of all parts.
func merged(t require.TestingT, c memoryqos.Container, policy func(i int) memoryqos.Policy) contract.Memory {
	decisions := make(map[contract.Key]contract.Decision)
	for i := range c.Results {
		m, err := c.Values(i, policy(i))
		require.NoError(t, err)
		d := contract.Decision{V: contract.Version, Memory: &m}
		require.NoError(t, d.Validate())
		decisions[contract.Key{ClaimUID: "c", Index: i}] = d
	}
	return *contract.Merge(decisions).Memory
}

func TestAmountIsPositive(t *testing.T) {
	for _, amount := range []int64{0, -4096, 4095} {
		_, err := memoryqos.Policy{PageSize: 4096}.Result(amount)
		require.ErrorContains(t, err, "is not a positive multiple of the page size 4096")
	}
}

// A container without a limit has the most room.
func TestHeadroom(t *testing.T) {
	results := func(limit contract.Limit) []memoryqos.Result {
		return []memoryqos.Result{{Amount: 4 * mi, Limit: limit}}
	}
	require.Equal(t, 2.0, memoryqos.Container{Limit: 8 * mi, Results: results(4 * mi)}.Headroom())
	require.Equal(t, 1.5, memoryqos.Container{Ceiling: 16 * mi, Results: results(6 * mi)}.Headroom())
	require.True(t, math.IsInf(memoryqos.Container{Ceiling: 16 * mi, Results: results(contract.Max)}.Headroom(), 1))
}
