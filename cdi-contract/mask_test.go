// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

func TestCPUMask(t *testing.T) {
	for text, list := range map[string]string{
		"0": "", "f": "0-3", "00000001": "0", "3,00000001": "0,32-33", "80000000,00000000,00000000": "95",
	} {
		cpus, err := contract.ParseCPUMask(text)
		require.NoError(t, err, text)
		require.Equal(t, list, cpus.String(), text)
		require.Equal(t, strings.TrimLeft(text, "0"), strings.TrimLeft(contract.CPUMask(cpus), "0"))
	}
	for _, rubbish := range []string{"", "x", "1,,2", "123456789", "0,123", "-1", strings.Repeat("00000000,", 2100) + "1"} {
		_, err := contract.ParseCPUMask(rubbish)
		require.ErrorContains(t, err, "CPU mask ", rubbish)
		require.Less(t, len(err.Error()), 300)
	}
}

func FuzzParseCPUMask(f *testing.F) {
	f.Add("3,00000001")
	f.Add("ff")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := contract.ParseCPUMask(text)
		if err != nil {
			return
		}
		again, err := contract.ParseCPUMask(contract.CPUMask(cpus))
		require.NoError(t, err)
		require.Equal(t, cpus, again)
	})
}
