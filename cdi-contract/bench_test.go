// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// BenchmarkClaim measures a claim file with several results.
func BenchmarkClaim(b *testing.B) {
	r := goldenClaims()["claim-several"]
	data, err := contract.EncodeClaim(r)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := contract.EncodeClaim(r)
			require.NoError(b, err)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := contract.DecodeClaim(contract.ClaimFile(claimUID), data)
			require.NoError(b, err)
		}
	})
	b.Run("merge", func(b *testing.B) {
		decisions := make(map[contract.Key]contract.Decision)
		for i, result := range r.Results {
			decisions[contract.Key{ClaimUID: claimUID, Index: i}] = result.Decision
		}
		b.ReportAllocs()
		for b.Loop() {
			contract.Merge(decisions)
		}
	})
}

// BenchmarkNode measures the node file of a node whose every pod has a claim.
func BenchmarkNode(b *testing.B) {
	for _, pods := range []int{0, 110, 250} {
		s := goldenNodes()["node"]
		pod := s.Pods[podUID]
		clear(s.Pods)
		for i := range pods {
			pod.Claims = []string{fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}
			s.Pods[fmt.Sprintf("00000000-0000-4000-9000-%012d", i)] = pod
		}
		data, err := contract.EncodeNode(s)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("encode/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := contract.EncodeNode(s)
				require.NoError(b, err)
			}
		})
		b.Run(fmt.Sprintf("decode/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := contract.DecodeNode(data)
				require.NoError(b, err)
			}
		})
	}
}
