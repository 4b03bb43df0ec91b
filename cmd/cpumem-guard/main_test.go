// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
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

// BenchmarkGuard measures what the start of a container with a claim waits for: the whole run of the program, for a container whose
// config.json has the decision and is as long as one of containerd's. The container's process is in another cgroup, as that of a virtual
// machine. The program true shows what the start of any program takes.
func BenchmarkGuard(b *testing.B) {
	path := program(b)
	other, err := exec.LookPath("true")
	require.NoError(b, err)
	bundle, _, entry := container(b)
	state, err := json.Marshal(specs.State{ID: "c", Bundle: bundle, Pid: os.Getpid()})
	require.NoError(b, err)
	config, err := json.Marshal(long(entry))
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600))
	for _, command := range [][]string{{path, "guard"}, {other}} {
		b.Run(filepath.Base(command[0]), func(b *testing.B) {
			times := contracttest.NewTimes()
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), command[0], command[1:]...)
				cmd.Stdin = bytes.NewReader(state)
				times.Measure(func() { require.NoError(b, cmd.Run()) })
			}
			times.Report(b)
		})
	}
}

// long returns a configuration as containerd writes it, with CPU 4.
func long(entry string) *specs.Spec {
	spec := &specs.Spec{
		Process: &specs.Process{Args: []string{"/app"}, Env: []string{entry}, Cwd: "/", Capabilities: &specs.LinuxCapabilities{}},
		Root:    &specs.Root{Path: "rootfs"},
		Hooks: &specs.Hooks{CreateRuntime: []specs.Hook{{
			Path: "/opt/nri-actuator-1", Args: []string{"nri-actuator-1", "guard"}, Timeout: new(60),
		}}},
		Linux: &specs.Linux{
			CgroupsPath: "/kubepods/podx/c",
			Resources:   &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4"}},
			Seccomp:     &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{{Action: specs.ActAllow}}},
		},
	}
	for i := range 30 {
		spec.Process.Env = append(spec.Process.Env, fmt.Sprintf("KUBERNETES_SERVICE_%d=10.96.0.1", i))
		spec.Process.Capabilities.Bounding = append(spec.Process.Capabilities.Bounding, fmt.Sprintf("CAP_%d", i))
		spec.Mounts = append(spec.Mounts, specs.Mount{
			Destination: fmt.Sprintf("/mount/%d", i), Source: "/var/lib/kubelet/pods", Type: "bind", Options: []string{"rbind", "rprivate", "rw"},
		})
		spec.Linux.MaskedPaths = append(spec.Linux.MaskedPaths, fmt.Sprintf("/proc/%d", i))
	}
	for i := range 400 {
		spec.Linux.Seccomp.Syscalls[0].Names = append(spec.Linux.Seccomp.Syscalls[0].Names, fmt.Sprintf("syscall%d", i))
	}
	return spec
}

// TestStartOfTheProgram counts the allocations of the program's packages before main: each start of a container with a claim waits for
// these packages.
func TestStartOfTheProgram(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), program(t), "guard")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	require.Error(t, cmd.Run(), "it has no container")
	packages, allocations := 0, 0
	for _, m := range regexp.MustCompile(`(?m)^init .* ([0-9]+) allocs$`).FindAllStringSubmatch(trace.String(), -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		packages, allocations = packages+1, allocations+n
	}
	require.Positive(t, packages, trace.String())
	require.Less(t, allocations, 150, trace.String())
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
