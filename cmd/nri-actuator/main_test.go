// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// program builds the program as a release does: static.
func program(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "nri-actuator")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v1.2.3", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// TestProgram covers A37 and A57: version, wrong flags, the guard's exit codes
// and the end by a signal.
func TestProgram(t *testing.T) {
	path := program(t)
	run := func(stdin string, args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	code, out, _ := run("", "--version")
	require.Zero(t, code)
	require.Contains(t, out, "v1.2.3")
	code, out, _ = run("", "--help")
	require.Zero(t, code)
	require.Contains(t, out, "--guard-dir")
	for _, args := range [][]string{{"--nonsense"}, {"argument"}, {"--log-level=loud"}, {"--plugin-index=9"}, {"--refresh-interval=0s"}} {
		code, _, errs := run("", args...)
		require.Equal(t, 1, code, args)
		require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %q", errs)
	}

	bundle := t.TempDir()
	state, err := json.Marshal(map[string]string{"id": "c", "bundle": bundle})
	require.NoError(t, err)
	entry, err := contract.Decision{V: contract.Version,
		CPUs: contracttest.CPUs("4")}.Env(contract.Key{ClaimUID: "00000000-0000-4000-8000-000000000001"})
	require.NoError(t, err)
	for cpus, want := range map[string]int{"4": 0, "0-15": 1} {
		config, err := json.Marshal(map[string]any{"process": map[string]any{"env": []string{entry}},
			"linux": map[string]any{"resources": map[string]any{"cpu": map[string]string{"cpus": cpus}}}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600))
		code, _, errs := run(string(state), "guard")
		require.Equal(t, want, code, errs)
		if want != 0 {
			require.Contains(t, errs, "nri-actuator: guard: container c: it has not all that was decided for its claim")
			require.Equal(t, 1, strings.Count(errs, "\n"))
		}
	}

	testWait(t, path, string(state), bundle, entry)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.controllers"), nil, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--cdi-dir="+filepath.Join(dir, "cdi"), "--nri-socket="+filepath.Join(dir, "nri.sock"),
		"--cgroup-root="+dir, "--guard-dir="+filepath.Join(dir, "guard"), "--metrics-address=127.0.0.1:0")
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(logs)
	var line struct{ Address string }
	for lines.Scan() && !strings.Contains(lines.Text(), "not connected to the runtime") {
		if line.Address == "" {
			_ = json.Unmarshal(lines.Bytes(), &line)
		}
	}
	for page, want := range map[string]struct {
		status int
		body   string
	}{
		"/healthz": {http.StatusOK, "ok\n"},
		// A rollout must not wait for a node without a runtime.
		"/readyz":  {http.StatusOK, "ok\nnew claims are not served: not connected to the container runtime"},
		"/metrics": {http.StatusNotFound, "404"},
	} {
		reply, err := http.Get("http://" + line.Address + page)
		require.NoError(t, err)
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, want.status, reply.StatusCode, page)
		require.True(t, strings.HasPrefix(string(body), want.body), "%s: %s", page, body)
	}
	a, err := contract.ReadAnnouncement(filepath.Join(dir, "cdi"))
	require.NoError(t, err)
	require.Equal(t, cmd.Process.Pid, a.PID)
	require.FileExists(t, a.Guard)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	require.NoError(t, cmd.Wait())
	require.NoFileExists(t, filepath.Join(dir, "cdi", contract.ActuatorFile))
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
		own := map[string]any{"path": path, "args": []string{"nri-actuator", "guard"}, "timeout": timeout}
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
	require.NoError(t, os.WriteFile(cpus, []byte("4\n"), 0o600))
	require.NoError(t, waiting.Wait(), errs.String())

	late, errs := hook(11)
	require.Error(t, late.Wait())
	require.Equal(t, 1, late.ProcessState.ExitCode())
	require.Contains(t, errs.String(),
		"kubepods/podx/c lacks what nri-actuator gives it: cpuset.cpus is unset, the claim's decision is 4;")
	require.Equal(t, 1, strings.Count(errs.String(), "\n"))
}
