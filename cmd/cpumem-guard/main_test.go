// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// program builds the program as a release does: static.
func program(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "cpumem-guard")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// container returns the bundle and the state of a container, and the variable with its decision, CPU 4.
func container(t testing.TB) (bundle, state, entry string) {
	bundle = t.TempDir()
	data, err := json.Marshal(map[string]string{"id": "c", "bundle": bundle})
	require.NoError(t, err)
	entry, err = contract.Decision{V: contract.Version,
		CPUs: contracttest.CPUs("4")}.Env(contract.Key{ClaimUID: "00000000-0000-4000-8000-000000000001"})
	require.NoError(t, err)
	return bundle, string(data), entry
}

// configure writes the container's configuration with these CPUs.
func configure(t testing.TB, bundle, entry, cpus string) {
	config, err := json.Marshal(map[string]any{"process": map[string]any{"env": []string{entry}},
		"linux": map[string]any{"resources": map[string]any{"cpu": map[string]string{"cpus": cpus}}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600))
}

// BenchmarkGuard measures what the start of a container with a claim waits for: the whole run of the program. The program
// true shows what the start of any program takes.
func BenchmarkGuard(b *testing.B) {
	path := program(b)
	bundle, state, entry := container(b)
	configure(b, bundle, entry, "4")
	for _, command := range [][]string{{path, "guard"}, {"true"}} {
		b.Run(filepath.Base(command[0]), func(b *testing.B) {
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), command[0], command[1:]...)
				cmd.Stdin = strings.NewReader(state)
				require.NoError(b, cmd.Run())
			}
		})
	}
}

// TestProgram covers A37: wrong arguments, and the exit codes for a container with its decision and for one without.
func TestProgram(t *testing.T) {
	path := program(t)
	run := func(stdin string, args ...string) (code int, stderr string) {
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &errs
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), errs.String()
	}
	for _, args := range [][]string{nil, {"--help"}, {"guard", "--nonsense"}, {"guard", "argument"}, {strings.Repeat("x", 9999)}} {
		code, errs := run("", args...)
		require.Equal(t, 1, code, args)
		require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %q", errs)
		require.Less(t, len(errs), 300)
	}

	bundle, state, entry := container(t)
	for cpus, want := range map[string]int{"4": 0, "0-15": 1} {
		configure(t, bundle, entry, cpus)
		code, errs := run(state, "guard")
		require.Equal(t, want, code, errs)
		if want != 0 {
			require.Contains(t, errs, "nri-actuator: guard: container c: the container lacks values of its claim's decision")
			require.Equal(t, 1, strings.Count(errs, "\n"))
		}
	}

	testWait(t, path, state, bundle, entry)
}

// testWait covers A80 with the built program, as the hook of a container that
// was created while no actuator ran. The program succeeds when the cgroup has
// the decision, and fails with the reason after its timeout.
func testWait(t *testing.T, path, state, bundle, entry string) {
	root := t.TempDir()
	cgroup := filepath.Join(root, "kubepods/podx/c")
	require.NoError(t, os.MkdirAll(cgroup, 0o755))
	cpus := filepath.Join(cgroup, "cpuset.cpus")
	hook := func(timeout int) (*exec.Cmd, *bytes.Buffer) {
		own := map[string]any{"path": "/x/nri-actuator-0123", "args": []string{"nri-actuator-0123", "guard"}, "timeout": timeout}
		config, err := json.Marshal(map[string]any{
			"process": map[string]any{"env": []string{entry}}, "linux": map[string]any{"cgroupsPath": "/kubepods/podx/c"},
			"hooks": map[string]any{"createRuntime": []any{own}},
		})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600))
		require.NoError(t, os.WriteFile(cpus, []byte("\n"), 0o600))
		errs := new(bytes.Buffer)
		cmd := exec.CommandContext(t.Context(), path, "guard", "--cgroup-root", root)
		cmd.Stdin, cmd.Stderr = strings.NewReader(state), errs
		require.NoError(t, cmd.Start())
		return cmd, errs
	}

	waiting, errs := hook(600)
	// The program opens the cgroup root when all but the values is checked.
	require.Eventually(t, func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", waiting.Process.Pid))
		return slices.ContainsFunc(files, func(file string) bool { to, _ := os.Readlink(file); return to == root })
	}, time.Minute, time.Millisecond)
	require.NoError(t, os.WriteFile(cpus, []byte("4\n"), 0o600))
	require.NoError(t, waiting.Wait(), errs.String())

	late, errs := hook(11)
	require.Error(t, late.Wait())
	require.Equal(t, 1, late.ProcessState.ExitCode())
	require.Regexp(t, "refused after [1-9][0-9]*s: cgroup kubepods/podx/c lacks what nri-actuator gives it: "+
		"cpuset.cpus is unset, the claim's decision is 4;", errs.String(), "a timeout of 11 s less the margin of 10 s")
	require.Equal(t, 1, strings.Count(errs.String(), "\n"))
}
