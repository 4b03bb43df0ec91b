// SPDX-License-Identifier: Apache-2.0

package memoryqos_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
)

// kubelet returns memory.high by KEP-2570 in kubelet's arithmetic:
//
//	floor[(requests.memory + factor * (limits.memory or node allocatable - requests.memory)) / pageSize] * pageSize
//
// written reports whether kubelet writes the value: request and limit differ and
// the value is above the request.
func kubelet(request, limit, allocatable int64, factor float64, pageSize int64) (high int64, written bool) {
	if request == limit {
		return 0, false
	}
	if limit == 0 {
		limit = allocatable
	}
	sum := float64(request) + factor*(float64(limit)-float64(request))
	high = int64(math.Floor(sum/float64(pageSize))) * pageSize
	return high, high > request
}

// exact returns the same in rational numbers, from the factor that users wrote.
func exact(request, limit int64, factor string, pageSize int64) int64 {
	f, ok := new(big.Rat).SetString(factor)
	if !ok {
		panic(factor)
	}
	r := new(big.Rat).SetInt64(limit - request)
	r.Mul(r, f).Add(r, new(big.Rat).SetInt64(request)).Quo(r, new(big.Rat).SetInt64(pageSize))
	return new(big.Int).Quo(r.Num(), r.Denom()).Int64() * pageSize
}

// A41: the table of KEP-2570, with the claimed amount as the request.
func TestTheTableOfTheKEP(t *testing.T) {
	const allocatable = 16 * gi
	for name, c := range map[string]struct {
		amount, limit int64
		factor        float64
		// high has the value for pages of 4, 16 and 64 KiB, calculated by hand; 0
		// for none.
		high     [3]int64
		min, low int64
	}{
		"guaranteed memory: request is limit": {gi, gi, 0.9, [3]int64{}, gi, 0},
		"burstable with limit": {gi, 2 * gi, 0.9, // 2040109465.6
			[3]int64{498073 * 4 * ki, 124518 * 16 * ki, 31129 * 64 * ki}, 0, gi},
		"burstable without limit": {gi, 0, 0.9, // 15569256448 = 3801088 * 4Ki
			[3]int64{3801088 * 4 * ki, 950272 * 16 * ki, 237568 * 64 * ki}, 0, gi},
		"the factor of 1.22": {gi, 2 * gi, 0.8, // 1932735283.2
			[3]int64{471859 * 4 * ki, 117964 * 16 * ki, 29491 * 64 * ki}, 0, gi},
		"factor one":      {gi, 2 * gi, 1, [3]int64{2 * gi, 2 * gi, 2 * gi}, 0, gi},
		"tiny factor":     {gi, 2 * gi, 1e-6, [3]int64{}, 0, gi},                                    // 1073.7 bytes above
		"one small page":  {gi, 2 * gi, 1e-5, [3]int64{gi + 8*ki, 0, 0}, 0, gi},                     // 10737.4 bytes above
		"one page of 64K": {gi, 2 * gi, 1e-4, [3]int64{gi + 104*ki, gi + 96*ki, gi + 64*ki}, 0, gi}, // 107374.2 bytes above
	} {
		t.Run(name, func(t *testing.T) {
			for i, page := range []int64{4 * ki, 16 * ki, 64 * ki} {
				p := memoryqos.Policy{Protection: memoryqos.Auto, Factor: &c.factor, PageSize: page}
				if c.limit == 0 {
					p.Limit = contract.Max
				}
				got, err := alone(c.amount, c.limit, p)
				require.NoError(t, err)
				want := contract.Memory{
					Min: contract.Limit(c.min), Low: contract.Limit(c.low), High: contract.Limit(c.high[i]), Max: contract.Max,
				}
				high, written := kubelet(c.amount, c.limit, allocatable, c.factor, page)
				require.Equal(t, c.high[i] != 0, written)
				if !written {
					high, want.High = int64(contract.Max), contract.Max
				}
				require.Equal(t, want, got, "pages of %d", page)
				require.Equal(t, high, int64(got.High), "kubelet's")
			}
		})
	}
	t.Run("no factor, the default from 1.37 on", func(t *testing.T) {
		got, err := alone(gi, 2*gi, memoryqos.Policy{Protection: memoryqos.Auto, PageSize: 4 * ki})
		require.NoError(t, err)
		require.Equal(t, contract.Memory{Low: gi, High: contract.Max, Max: contract.Max}, got)
	})
}

// The driver follows kubelet's rounding in float64, which differs from whole
// numbers: 0.57 of 100 pages are 56.99999999999999 in float64.
func TestKubeletsRoundingIsFollowed(t *testing.T) {
	const page, amount, limit = 4 * ki, 4 * ki, 101 * 4 * ki
	got, err := alone(amount, limit, memoryqos.Policy{Protection: memoryqos.None, Factor: new(0.57), PageSize: page})
	require.NoError(t, err)
	high, _ := kubelet(amount, limit, 0, 0.57, page)
	require.Equal(t, int64(57*page), high)
	require.Equal(t, high, int64(got.High))
	require.Equal(t, int64(58*page), exact(amount, limit, "0.57", page), "in whole numbers")
}

// The difference is one page and rare, over all factors of two digits and up to
// 1000 pages between amount and limit.
func TestRoundingDifference(t *testing.T) {
	differ, all := 0, 0
	for hundredths := int64(1); hundredths <= 100; hundredths++ {
		factor := big.NewRat(hundredths, 100)
		f, _ := factor.Float64()
		for pages := int64(1); pages <= 1000; pages++ {
			high, written := kubelet(4*ki, 4*ki+pages*4*ki, 0, f, 4*ki)
			if !written {
				continue
			}
			all++
			if e := exact(4*ki, 4*ki+pages*4*ki, factor.RatString(), 4*ki); e != high {
				require.Equal(t, e-4*ki, high)
				differ++
			}
		}
	}
	t.Logf("kubelet's memory.high is a page below that of whole numbers in %d of %d cases", differ, all)
	require.Positive(t, differ)
	require.Less(t, differ, all/100)
}

// Up to a limit of 4Ei, the difference is at most one page. The driver writes
// kubelet's value.
func TestRoundingLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int64{4 * ki, 16 * ki, 64 * ki}).Draw(t, "page")
		amount := rapid.Int64Range(1, 1<<(rapid.IntRange(1, 44).Draw(t, "bits"))).Draw(t, "pages") * page
		above := rapid.Int64Range(1, 1<<(rapid.IntRange(1, 44).Draw(t, "bits above"))).Draw(t, "pages above") * page
		factor := big.NewRat(rapid.Int64Range(1, 100).Draw(t, "hundredths"), 100)
		f, _ := factor.Float64()
		got, err := alone(amount, amount+above, memoryqos.Policy{Protection: memoryqos.None, Factor: &f, PageSize: page})
		require.NoError(t, err)
		want, written := kubelet(amount, amount+above, 0, f, page)
		if !written {
			want = int64(contract.Max)
		}
		require.Equal(t, want, int64(got.High))
		if written {
			e := exact(amount, amount+above, factor.RatString(), page)
			require.LessOrEqual(t, max(e-want, want-e), page)
		}
	})
}

// The results of a container may have different policies. The merged values satisfy
// protection <= amount <= high <= limit (plus pages for different factors). With one
// policy they do not depend on the order of the results.
func TestContainerLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int64{4 * ki, 16 * ki, 64 * ki}).Draw(t, "page")
		same := rapid.Bool().Draw(t, "one policy")
		c := memoryqos.Container{Ceiling: rapid.Int64Range(0, 1<<45).Draw(t, "ceiling")}
		var policies []memoryqos.Policy
		var amount, limit int64
		unlimited := 0
		for i := range rapid.IntRange(1, 6).Draw(t, "results") {
			p := memoryqos.Policy{
				PageSize: page, Factor: new(rapid.Float64Range(0.001, 1).Draw(t, "factor")),
				Protection: rapid.SampledFrom([]memoryqos.Protection{
					memoryqos.Auto, memoryqos.Min, memoryqos.Low, memoryqos.None,
				}).Draw(t, "protection")}
			if same && i > 0 {
				p = policies[0]
			}
			of := rapid.Int64Range(1, 1<<(rapid.IntRange(1, 24).Draw(t, "bits"))).Draw(t, "pages") * page
			switch rapid.IntRange(0, 3).Draw(t, "limit") {
			case 0:
				p.Limit = contract.Limit(of + rapid.Int64Range(0, 1<<40).Draw(t, "above"))
			case 1:
				p.Limit = contract.Max
			default:
				p.Limit = 0
			}
			use, err := p.Result(of)
			require.NoError(t, err)
			// Uses without a limit come last.
			at := len(c.Results) - unlimited
			if use.Limit == contract.Max {
				at = len(c.Results)
				unlimited++
			} else {
				limit += int64(use.Limit)
			}
			c.Results = append(c.Results[:at], append([]memoryqos.Result{use}, c.Results[at:]...)...)
			policies = append(policies[:at], append([]memoryqos.Policy{p}, policies[at:]...)...)
			amount += of
		}
		if rapid.Bool().Draw(t, "own limit") {
			c.Limit = amount + rapid.Int64Range(0, 1<<40).Draw(t, "own")
			limit = c.Limit
		}
		got := merged(t, c, func(i int) memoryqos.Policy { return policies[i] })

		switch {
		case c.Limit > 0, unlimited > 0:
			require.Equal(t, contract.Max, got.Max)
		default:
			require.Equal(t, contract.Limit(limit), got.Max)
		}
		if c.Limit == 0 && unlimited > 0 {
			limit = max(c.Ceiling, limit+amount)
		}
		if got.High != contract.Max {
			require.Zero(t, int64(got.High)%page)
			require.GreaterOrEqual(t, int64(got.High), amount)
			// With different factors, each part but one may have a page too much.
			require.LessOrEqual(t, int64(got.High), limit+int64(len(c.Results)-1)*page)
		}
		require.LessOrEqual(t, int64(got.Min+got.Low), amount)
		if !same {
			return
		}
		p := policies[0]
		if got.High != contract.Max {
			require.Greater(t, int64(got.High), amount)
			require.LessOrEqual(t, int64(got.High), limit)
		}
		if c.Limit > 0 {
			want, written := kubelet(amount, c.Limit, 0, *p.Factor, page)
			if !written {
				want = int64(contract.Max)
			}
			require.Equal(t, want, int64(got.High), "as from one claim of the sum")
		}
		if p.Protection == memoryqos.None {
			require.Zero(t, got.Min+got.Low)
		} else {
			require.True(t, got.Min == 0 || got.Low == 0, "the protection is the same for all")
			require.Equal(t, contract.Limit(amount), got.Min+got.Low)
		}
		if c.Limit == 0 && unlimited > 0 && unlimited < len(c.Results) {
			return // uses without a limit must stay last
		}
		order := rapid.Permutation(c.Results).Draw(t, "order")
		require.Equal(t, got, merged(t, memoryqos.Container{Limit: c.Limit, Ceiling: c.Ceiling, Results: order},
			func(int) memoryqos.Policy { return p }))
	})
}
