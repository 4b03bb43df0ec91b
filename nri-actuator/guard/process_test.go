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
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
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

// status returns a process's status file with these lists.
func status(cpus, mems string) string {
	return "Name:\trunc:[2:INIT]\nCpus_allowed:\tff\nCpus_allowed_list:\t" + cpus +
		"\nMems_allowed:\t3\nMems_allowed_list:\t" + mems + "\n"
}

// A37, I1, I5: the kernel may let a container use other CPUs than its cpuset names. The
// guard refuses the container then, whether its configuration or its cgroup has the
// decision.
func TestProcess(t *testing.T) {
	const in, lets = "0::/" + container + "\n", "the kernel lets the container use "
	for name, c := range map[string]struct {
		cgroup, status string
		err            string
	}{
		"as decided":             {in, status("4-5,8", "0-1"), ""},
		"one CPU is offline":     {in, status("4,8", "0-1"), ""},
		"one NUMA node is empty": {in, status("4-5,8", "1"), ""},
		"none of its CPUs":       {in, status("0-3", "0-1"), lets + `CPUs "0-3", the claim's decision is 4-5,8: no CPU of`},
		"all CPUs":               {in, status("0-15", "0-1"), lets + `CPUs "0-15", the claim's decision is 4-5,8: compare cpuset.cpus of`},
		"one CPU more":           {in, status("4-6,8", "0-1"), lets + `CPUs "4-6,8"`},
		"all NUMA nodes":         {in, status("4-5,8", "0-3"), lets + `NUMA nodes "0-3", the claim's decision is 0-1: compare cpuset.mems of`},
		"none of its NUMA nodes": {in, status("4-5,8", "2"), lets + `NUMA nodes "2", the claim's decision is 0-1: no NUMA node of`},
		"below":                  {"0::/" + container + "/init\n", status("0-15", "0"), lets + `CPUs "0-15"`},
		"beside older mounts":    {"1:name=x:/" + container + "\n" + in, status("0-15", "0"), lets + `CPUs "0-15"`},
		"in another cgroup":      {"0::/vm\n", status("0-15", "0-3"), ""},
		"in a cgroup named like": {"0::/" + container + "1\n", status("0-15", "0-3"), ""},
		"in no unified cgroup":   {"1:cpuset:/" + container + "\n", status("0-15", "0-3"), ""},
		"it has ended":           {"", status("0-15", "0-3"), ""},
		"it ends just now":       {in, "", ""},
		"no lists":               {in, "Name:\tinit\n", lets + `CPUs ""`},
		"odd CPUs":               {in, status("x", "0"), "status: Cpus_allowed_list: "},
		"odd NUMA nodes":         {in, status("4", "x"), "status: Mems_allowed_list: "},
	} {
		for by, spec := range map[string]*specs.Spec{"configuration": valid(t), "cgroup": unadjusted(t)} {
			t.Run(name+", "+by, func(t *testing.T) {
				n := testnode.New(t, t.TempDir())
				write(n, container, decided())
				h := hookOn(n, spec)
				h.ProcRoot = t.TempDir()
				processFiles(t, h.ProcRoot, "7", c.cgroup, c.status)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				err := h.Check(ctx, strings.NewReader(state))
				if c.err == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, "container c1: refused after 0s: ")
				require.ErrorContains(t, err, c.err)
			})
		}
	}
}

// CPUs of the shared pool, NUMA nodes of the shared pool, and a state without a process
// have nothing to compare with.
func TestProcessThatIsNotCompared(t *testing.T) {
	for name, c := range map[string]struct {
		decision  contract.Decision
		resources specs.LinuxCPU
		state     string
	}{
		"no CPUs":       {contract.Decision{Mems: contracttest.NUMANodes("0-3")}, specs.LinuxCPU{Cpus: "0-3", Mems: "0-3"}, state},
		"no NUMA nodes": {contract.Decision{CPUs: contracttest.CPUs("0-15")}, specs.LinuxCPU{Cpus: "0-15", Mems: "0"}, state},
		"no process": {
			contract.Decision{CPUs: contracttest.CPUs("4")}, specs.LinuxCPU{Cpus: "4", Mems: "0"}, `{"id":"c1","bundle":"/run/c1"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := valid(t)
			spec.Process.Env = []string{entry(t, 0, c.decision)}
			spec.Linux.Resources = &specs.LinuxResources{CPU: &c.resources}
			h := hook(spec)
			h.ProcRoot = t.TempDir()
			for _, pid := range []string{"0", "7"} {
				processFiles(t, h.ProcRoot, pid, "0::/"+container+"\n", status("0-15", "0-3"))
			}
			require.NoError(t, h.Check(t.Context(), strings.NewReader(c.state)))
		})
	}
}

// The guard waits for the CPUs of the process as it waits for the cgroup.
func TestProcessGetsItsCPUs(t *testing.T) {
	proc := t.TempDir()
	processFiles(t, proc, "7", "0::/"+container+"\n", status("0-15", "0-1"))
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			processFiles(t, proc, "7", "", status("4-5", "0-1"))
		}()
		h := hook(valid(t))
		h.ProcRoot = proc
		require.NoError(t, h.Check(t.Context(), strings.NewReader(state)))
		require.InDelta(t, 3, time.Since(start).Seconds(), 0.2)
	})
}
