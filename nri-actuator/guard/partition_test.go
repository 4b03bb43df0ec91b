// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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

// ReadPartition finds the process's cgroup below the mount of the hierarchy.
func TestReadPartition(t *testing.T) {
	const (
		v1    = "30 25 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
		below = "31 25 0:27 /kubepods /other rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct{ cgroup, mounts, want, err string }{
		"there":           {"0::/kubepods/pod1/c1\n", v1 + below + "32 25 0:27 / %s rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n", "root", ""},
		"beside v1":       {"5:cpuset:/x\n0::/kubepods/pod1/c1\n", "32 25 0:27 / %s rw - cgroup2 cgroup2 rw\n", "root", ""},
		"steps out":       {"0::/../../kubepods/pod1/c1\n", "32 25 0:27 / %s rw - cgroup2 cgroup2 rw\n", "root", ""},
		"only v1":         {"5:cpuset:/x\n", "32 25 0:27 / %s rw - cgroup2 cgroup2 rw\n", "", "no cgroup v2"},
		"not mounted":     {"0::/kubepods/pod1/c1\n", v1, "", "no cgroup v2"},
		"mounted in part": {"0::/kubepods/pod1/c1\n", below, "", "no cgroup v2"},
		"broken line":     {"0::/kubepods/pod1/c1\n", "32 -\n\n", "", "no cgroup v2"},
		"no such file":    {"0::/kubepods/pod1\n", "32 25 0:27 / %s rw - cgroup2 cgroup2 rw\n", "", "cpuset.cpus.partition: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			proc, mount := t.TempDir(), t.TempDir()
			for file, content := range map[string]string{
				filepath.Join(proc, "42/cgroup"):                               c.cgroup,
				filepath.Join(proc, "self/mountinfo"):                          strings.ReplaceAll(c.mounts, "%s", mount),
				filepath.Join(mount, "kubepods/pod1/c1/cpuset.cpus.partition"): "root\n",
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
			}
			got, err := guard.ReadPartition(proc, 42)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
