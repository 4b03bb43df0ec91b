// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
)

// A81, I5: no container runs with a higher oom_score_adj than decided. The test
// uses a real process.
func TestOOMScore(t *testing.T) {
	const decided = 500
	for name, c := range map[string]struct {
		configured *int
		// process is the process's score before the check, want the score after.
		process, want int
	}{
		"as decided":              {new(decided), 900, 900}, // the OCI runtime sets it
		"came with a lower one":   {new(-997), 900, 900},
		"not adjusted":            {new(1000), 900, decided},
		"just above":              {new(decided + 1), 900, decided},
		"not configured at all":   {nil, 900, decided},
		"process has a lower one": {new(1000), 300, 300},
	} {
		t.Run(name, func(t *testing.T) {
			process := exec.Command("sleep", "infinity")
			require.NoError(t, process.Start())
			t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
			file := fmt.Sprintf("/proc/%d/oom_score_adj", process.Process.Pid)
			require.NoError(t, os.WriteFile(file, fmt.Append(nil, c.process), 0))
			require.NoError(t, check(t, c.configured, decided, process.Process.Pid))
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintln(c.want), string(got))
		})
	}
}

func TestOOMScoreThatCannotBeLowered(t *testing.T) {
	require.NoError(t, check(t, new(-997), -997, 0))
	require.ErrorContains(t, check(t, new(1000), -997, 0),
		"oom_score_adj is 1000, the claim's decision is -997: nri-actuator did not adjust this container")
	require.ErrorContains(t, check(t, nil, -997, 0), "oom_score_adj is unset")
	require.ErrorContains(t, check(t, new(1000), -997, 1<<30), "no such file")
	require.ErrorContains(t, check(t, new(1000), -997, 0), "the container's state names no process")
	proc := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(proc, "7"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "7", "oom_score_adj"), []byte("high\n"), 0o644))
	require.ErrorContains(t, checkIn(t, proc, new(1000), -997, 7), `oom_score_adj: strconv.Atoi: parsing "high"`)
}

// I6: while no actuator is there, a container came with a second variable, which no
// device of the frontend brought: each device also brings a guard. The process keeps its
// score, because only the frontend's word counts.
func TestForgedOOMScore(t *testing.T) {
	process := exec.Command("sleep", "infinity")
	require.NoError(t, process.Start())
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	file := fmt.Sprintf("/proc/%d/oom_score_adj", process.Process.Pid)
	require.NoError(t, os.WriteFile(file, []byte("900"), 0))

	spec := valid(t)
	forged := contract.Decision{OOMScoreAdj: new(300), Requires: []string{contract.FeatureOOMScore}}
	spec.Hooks, spec.Process.Env = hooks(30, 30), append(spec.Process.Env, entry(t, 2, forged))
	h := hook(spec)
	h.ProcRoot, h.Features = "/proc", []string{contract.FeatureOOMScore}
	state := fmt.Sprintf(`{"id":"c","bundle":"/b","pid":%d}`, process.Process.Pid)
	err := h.Check(t.Context(), strings.NewReader(state))
	got, errRead := os.ReadFile(file)
	require.NoError(t, errRead)
	require.Equal(t, "900\n", string(got))
	require.ErrorContains(t, err, "3 variables DRA_CPUMEM_... and 2 guards")
}

func check(t *testing.T, configured *int, decided, pid int) error {
	return checkIn(t, "/proc", configured, decided, pid)
}

func checkIn(t *testing.T, proc string, configured *int, decided, pid int) error {
	d := contract.Decision{OOMScoreAdj: &decided, Requires: []string{contract.FeatureOOMScore}}
	spec := &specs.Spec{Process: &specs.Process{Env: []string{entry(t, 0, d)}, OOMScoreAdj: configured}, Hooks: hooks(30)}
	state := fmt.Sprintf(`{"id":"c","bundle":"/b","pid":%d}`, pid)
	h := guard.Hook{
		Config:      func(string) ([]byte, error) { return json.Marshal(spec) },
		PolicyModes: noModes, OpenMount: cgroups.Open, CgroupRoot: "/nonexistent", ProcRoot: proc, Features: []string{contract.FeatureOOMScore},
	}
	return h.Check(t.Context(), strings.NewReader(state))
}
