// SPDX-License-Identifier: Apache-2.0

package values_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/values"
)

func TestHugepages(t *testing.T) {
	amounts := map[string]int64{"2Mi": 4 << 20}
	for limits, want := range map[string]map[string]contract.Limit{
		"claim":     {"2Mi": 4 << 20},
		"unlimited": {"2Mi": contract.Max},
		"unchanged": nil,
	} {
		c := config.Default()
		c.Hugepages.Limits = limits
		require.Equal(t, want, values.New(c, 4096).Hugepages(amounts), limits)
	}
}

func TestMemoryByOwner(t *testing.T) {
	factor := 0.5
	c := config.Default()
	c.MemoryQoS.ThrottlingFactor = &factor
	m, err := values.New(c, 4096).Memory(4096, 3*4096)
	require.NoError(t, err)
	require.Equal(t, contract.Memory{Low: 4096, High: 2 * 4096, Max: contract.Max}, *m)

	// Without an owner the driver limits and neither protects nor throttles.
	c.MemoryQoS.Owner = config.OwnerNone
	m, err = values.New(c, 4096).Memory(4096, 0)
	require.NoError(t, err)
	require.Equal(t, contract.Memory{High: contract.Max, Max: 4096}, *m)
}
