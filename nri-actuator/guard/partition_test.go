// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
)

// I5: a container whose partition the kernel refuses does not come to run, and
// the kernel's reason stands in the error.
func TestCheckPartition(t *testing.T) {
	isolated := contract.Decision{V: contract.Version, CPUs: "4-7", Partition: contract.PartitionIsolated, Requires: []string{contract.FeaturePartition}}
	files := map[string]string{contract.FileExclusive: "4-7", contract.FilePartition: "isolated"}
	const running = `{"id":"c1","bundle":"/run/c1","pid":42}`
	for name, c := range map[string]struct {
		state   string
		unified map[string]string
		got     string
		readErr error
		err     string
	}{
		"granted":          {running, files, "isolated", nil, ""},
		"refused":          {running, files, "isolated invalid (Cpu list in cpuset.cpus not exclusive)", nil, "(Cpu list in cpuset.cpus not exclusive)"},
		"of another kind":  {running, files, "root", nil, "the claim's decision is isolated for CPUs 4-7"},
		"nobody made it":   {running, files, "member", nil, `"member"`},
		"not to be read":   {running, files, "", errors.New("gone"), "gone"},
		"not asked for":    {running, map[string]string{contract.FileExclusive: "4-7"}, "isolated", nil, "did not adjust"},
		"with other CPUs":  {running, map[string]string{contract.FileExclusive: "4", contract.FilePartition: "isolated"}, "isolated", nil, "did not adjust"},
		"no process to go": {`{"id":"c1","bundle":"/run/c1"}`, files, "member", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &specs.Spec{
				Process: &specs.Process{Env: []string{entry(t, 0, isolated)}},
				Linux:   &specs.Linux{Resources: &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4-7"}, Unified: c.unified}},
			}
			err := guard.Check(strings.NewReader(c.state), func(string) ([]byte, error) { return json.Marshal(spec) }, noModes,
				func(pid int) (string, error) {
					require.Equal(t, 42, pid)
					return c.got, c.readErr
				}, []string{contract.FeaturePartition})
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

// ReadPartition finds the cgroup of a real process, where there is cgroup v2.
func TestReadPartition(t *testing.T) {
	got, err := guard.ReadPartition(os.Getpid())
	if err != nil {
		require.Regexp(t, "no cgroup v2 in it|cpuset.cpus.partition: no such file", err.Error())
		return
	}
	require.NotEmpty(t, got)
}
