// SPDX-License-Identifier: Apache-2.0

package size_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
)

func TestFormat(t *testing.T) {
	for bytes, want := range map[int64][2]string{
		0: {"0", "0"}, 1023: {"1023", "1023"}, 1024: {"1Ki", "1Ki"}, 1536 << 20: {"1.5Gi", "1.5Gi"}, 1<<30 - 1: {"1Gi", "1023.9Mi"},
		2008 << 20: {"2Gi", "1.9Gi"}, 1 << 62: {"4Ei", "4Ei"},
	} {
		require.Equal(t, want, [2]string{size.Format(bytes), size.Floor(bytes)}, "%d", bytes)
	}
	require.Equal(t, "max", size.Limit(contract.Max))
	require.Equal(t, "4Ki", size.Limit(4096))
}
