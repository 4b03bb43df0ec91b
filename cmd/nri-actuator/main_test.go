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
)

// program builds the program and the guard beside it as a release does: static.
func program(t *testing.T) (path, guard string) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v1.2.3", "-o", dir+"/", ".", "../cpumem-guard")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return filepath.Join(dir, "nri-actuator"), filepath.Join(dir, "cpumem-guard")
}

// TestProgram covers A57: version, wrong flags, the guard that is installed and the
// end by a signal.
func TestProgram(t *testing.T) {
	path, guard := program(t)
	run := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	code, out, _ := run("--version")
	require.Zero(t, code)
	require.Contains(t, out, "v1.2.3")
	code, out, _ = run("--help")
	require.Zero(t, code)
	require.Contains(t, out, "--guard-dir")
	for _, args := range [][]string{
		{"--nonsense"}, {"argument"}, {"--log-level=loud"}, {"--log-level=error", "--plugin-index=9"}, {"--refresh-interval=0s"},
	} {
		code, _, errs := run(args...)
		require.Equal(t, 1, code, args)
		require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %q", errs)
		var line struct{ Level, Msg, Error string }
		require.NoError(t, json.Unmarshal([]byte(errs), &line), errs)
		require.Equal(t, "error ended", line.Level+" "+line.Msg)
		require.NotEmpty(t, line.Error)
	}

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
	installed, err := os.ReadFile(a.Guard)
	require.NoError(t, err)
	want, err := os.ReadFile(guard)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, installed), "the guard is %d bytes, installed are %d", len(want), len(installed))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	require.NoError(t, cmd.Wait())
	require.NoFileExists(t, filepath.Join(dir, "cdi", contract.ActuatorFile))
}
