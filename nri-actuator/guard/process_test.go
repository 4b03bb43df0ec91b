// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// processFiles makes the files of a process in proc. A file without content is not made.
func processFiles(t *testing.T, proc, pid, cgroup, status string) {
	t.Helper()
	dir := filepath.Join(proc, pid)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for file, content := range map[string]string{"cgroup": cgroup, "status": status} {
		if content != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
		}
	}
}

// A37, I1, I5: the kernel may let a container use other CPUs than its cpuset names. The guard
// refuses the container then, also if its configuration has the decision.
func TestProcess(t *testing.T) {
	const in = "0::/" + container + "\n"
	status := func(list string) string {
		return "Name:\trunc:[2:INIT]\nCpus_allowed:\tff\nCpus_allowed_list:\t" + list + "\nMems_allowed:\t3\n"
	}
	for name, c := range map[string]struct {
		cgroup, status string
		err            string
	}{
		"as decided":             {in, status("4-5,8"), ""},
		"one CPU is offline":     {in, status("4,8"), ""},
		"all CPUs":               {in, status("0-15"), "the kernel lets the container use CPUs 0-15, the claim's decision is 4-5,8"},
		"one CPU more":           {in, status("4-6,8"), "the kernel lets the container use CPUs 4-6,8"},
		"below":                  {"0::/" + container + "/init\n", status("0-15"), "use CPUs 0-15"},
		"beside older mounts":    {"1:name=x:/" + container + "\n" + in, status("0-15"), "use CPUs 0-15"},
		"in another cgroup":      {"0::/vm\n", status("0-15"), ""},
		"in a cgroup named like": {"0::/" + container + "1\n", status("0-15"), ""},
		"in no unified cgroup":   {"1:cpuset:/" + container + "\n", status("0-15"), ""},
		"it has ended":           {"", status("0-15"), ""},
		"it ends just now":       {in, "", ""},
		"no list":                {in, "Name:\tinit\n", "status has no field Cpus_allowed_list"},
		"odd list":               {in, status("x"), "it is not known which CPUs the container may use"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hook(valid(t))
			h.ProcRoot = t.TempDir()
			processFiles(t, h.ProcRoot, "7", c.cgroup, c.status)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := h.Check(ctx, strings.NewReader(state))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "container c1: after 0s: ")
			require.ErrorContains(t, err, c.err)
		})
	}
}

// A container of the shared pool's CPUs, and a state without a process, have nothing to
// compare.
func TestProcessThatIsNotCompared(t *testing.T) {
	proc := t.TempDir()
	processFiles(t, proc, "7", "0::/"+container+"\n", "Cpus_allowed_list:\t0-15\n")
	spec := valid(t)
	spec.Process.Env = []string{entry(t, 0, contract.Decision{Mems: contracttest.NUMANodes("0")})}
	spec.Linux.Resources = &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0-3", Mems: "0"}}
	h := hook(spec)
	h.ProcRoot = proc
	require.NoError(t, h.Check(t.Context(), strings.NewReader(state)))

	processFiles(t, proc, "0", "0::/"+container+"\n", "Cpus_allowed_list:\t0-15\n")
	h = hook(valid(t))
	h.ProcRoot = proc
	require.NoError(t, h.Check(t.Context(), strings.NewReader(`{"id":"c1","bundle":"/run/c1"}`)))
}

// The guard waits for the CPUs of the process as it waits for the cgroup.
func TestProcessGetsItsCPUs(t *testing.T) {
	proc := t.TempDir()
	processFiles(t, proc, "7", "0::/"+container+"\n", "Cpus_allowed_list:\t0-15\n")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			processFiles(t, proc, "7", "", "Cpus_allowed_list:\t4-5\n")
		}()
		h := hook(valid(t))
		h.ProcRoot = proc
		require.NoError(t, h.Check(t.Context(), strings.NewReader(state)))
		require.InDelta(t, 3, time.Since(start).Seconds(), 0.2)
	})
}
