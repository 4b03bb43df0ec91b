// SPDX-License-Identifier: Apache-2.0

package selftest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/selftest"
)

func TestCheck(t *testing.T) {
	decision := contract.Decision{
		V: contract.Version, CPUs: contract.CPUs(2, 3), Mems: contract.NUMANodes(1), Partition: contract.PartitionRoot,
		Memory:   &contract.Memory{Low: 64 << 20, High: contract.Max, Max: 128 << 20},
		Requires: []string{contract.FeaturePartition},
	}
	variable, err := decision.Env(contract.Key{ClaimUID: "00000000-0000-4000-9000-000000000001"})
	require.NoError(t, err)
	cgroup := map[string]string{
		"cpuset.cpus.effective": "2-3", "cpuset.mems.effective": "1", "cpuset.cpus.partition": "root", "cpuset.cpus.exclusive": "2-3",
		"memory.min": "0", "memory.low": "67108864", "memory.high": "max", "memory.max": "134217728",
	}
	for name, c := range map[string]struct {
		environ  []string
		file     string
		content  string
		err, out string
	}{
		"right": {[]string{"PATH=/", variable}, "", "", "", "right  memory.low = 67108864\n"},
		"other CPUs": {
			[]string{variable}, "cpuset.cpus.effective", "0-3",
			"promises: cpuset.cpus.effective", "= 0-3, the claim's decision is 2-3\n",
		},
		"no protection": {
			[]string{variable}, "memory.low", "0",
			"promises: memory.low", "wrong  memory.low = 0, the claim's decision is 67108864\n",
		},
		"lost partition":   {[]string{variable}, "cpuset.cpus.partition", "root invalid (why)", "cpuset.cpus.partition", "root invalid (why)"},
		"no such file":     {[]string{variable}, "memory.max", "-", "promises: memory.max", "file does not exist, the claim's"},
		"no decision":      {[]string{"PATH=/"}, "", "", "has not injected the claim's CDI device", ""},
		"a broken one":     {[]string{variable + "}"}, "", "", "decision", ""},
		"an unknown thing": {[]string{strings.Replace(variable, `"partition"]`, `"partition","flying"]`, 1)}, "", "", "flying", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for file, content := range cgroup {
				if file == c.file {
					content = c.content
				}
				if content != "-" {
					files[file] = &fstest.MapFile{Data: []byte(content + "\n")}
				}
			}
			var out strings.Builder
			err := selftest.Check(c.environ, files, &out)
			if c.err == "" {
				require.NoError(t, err)
				require.NotContains(t, out.String(), "wrong")
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Contains(t, out.String(), c.out)
		})
	}
}
