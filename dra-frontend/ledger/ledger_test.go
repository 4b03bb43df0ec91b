// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

// I4: a claim file that was replaced is read again, also if its size and its time are
// the former file's: the clock of a file system has coarse ticks.
func TestReplacedClaimFileIsRead(t *testing.T) {
	dir, err := cdidir.Open(t.TempDir())
	require.NoError(t, err)
	l := ledger.New(dir, boot)
	const uid = "00000000-0000-0000-0000-000000000001"
	tick := time.Unix(1_700_000_000, 0)
	write := func(cpu string) {
		data, err := contract.EncodeClaim(contract.ClaimRecord{
			V: contract.Version, Namespace: "default", Name: "claim", UID: uid, BootID: boot,
			Results: []contract.ResultRecord{{Request: "zone", Pool: "node", Device: "numa-0", Decision: contract.Decision{
				V: contract.Version, CPUs: contracttest.CPUs(cpu), Mems: contracttest.NUMANodes("0"),
			}}},
		})
		require.NoError(t, err)
		require.NoError(t, dir.Write(contract.ClaimFile(uid), data))
		require.NoError(t, os.Chtimes(dir.Path(contract.ClaimFile(uid)), tick, tick))
	}
	for _, cpu := range []string{"4", "5"} {
		write(cpu)
		claims, err := l.Load()
		require.NoError(t, err)
		require.NoError(t, claims.Blocked())
		require.Equal(t, cpu, claims.Prepared[0].CPUs().String())
	}
}

// Without a readable claim the list is empty, and not unknown, also while another claim cannot be read.
func TestLoadWithoutReadableClaims(t *testing.T) {
	dir, err := cdidir.Open(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, dir.Write(contract.ClaimFile("00000000-0000-0000-0000-000000000001"), []byte("no JSON")))
	claims, err := ledger.New(dir, boot).Load()
	require.NoError(t, err)
	require.Error(t, claims.Blocked())
	require.NotNil(t, claims.Prepared)
	require.Empty(t, claims.Prepared)
}

// The generation rises also if the node file is lost after a start that had nothing to write.
func TestGenerationAfterALostNodeFile(t *testing.T) {
	dir, err := cdidir.Open(t.TempDir())
	require.NoError(t, err)
	state := contract.NodeState{V: contract.Version, BootID: boot, Shared: contract.Shared{
		CPUs: contracttest.CPUs("0-3"), Mems: contracttest.NUMANodes("0"),
	}}
	require.NoError(t, ledger.New(dir, boot).WriteNode(state))
	state.Shared.CPUs = contracttest.CPUs("0-2")
	require.NoError(t, ledger.New(dir, boot).WriteNode(state)) // generation 2
	l := ledger.New(dir, boot)
	require.NoError(t, l.WriteNode(state))
	require.NoError(t, os.Remove(dir.Path(contract.NodeFile)))
	require.NoError(t, l.WriteNode(state))
	require.EqualValues(t, 3, l.Generation())
}
