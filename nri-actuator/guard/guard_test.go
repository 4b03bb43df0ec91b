// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

const state = `{"ociVersion":"1.2.0","id":"c1","status":"creating","pid":7,"bundle":"/run/c1"}`

func entry(t require.TestingT, index int, d contract.Decision) string {
	d.V = contract.Version
	e, err := d.Env(contract.Key{ClaimUID: testnode.UID(1), Index: index})
	require.NoError(t, err)
	return e
}

// hooks returns hooks of other programs, and then guards with these timeouts in
// seconds.
func hooks(timeouts ...int) *specs.Hooks {
	all := []specs.Hook{{Path: "/bin/bare"},
		{Path: "/bin/other", Args: []string{"other", "guard", "dog"}, Timeout: new(1)},
		{Path: "/bin/cat", Args: []string{"cat", "/etc/motd"}, Timeout: new(1)},
		{Path: "/bin/dog", Args: []string{"dog", "guard"}, Timeout: new(1)},
		{Path: "/opt/nri-actuator-0", Args: []string{"nri-actuator-0", "guard"}}}
	for _, timeout := range timeouts {
		all = append(all, specs.Hook{Path: "/opt/nri-actuator-1", Args: []string{"nri-actuator-1", "guard"}, Timeout: &timeout})
	}
	return &specs.Hooks{CreateRuntime: all}
}

func valid(t require.TestingT) *specs.Spec {
	return &specs.Spec{
		Process: &specs.Process{Env: []string{
			"PATH=/bin",
			entry(t, 0, contract.Decision{CPUs: contracttest.CPUs("4-5"), Mems: contracttest.NUMANodes("0"),
				Hugepages: map[string]contract.Limit{"2Mi": 2 << 20},
				Memory:    &contract.Memory{Min: 4096, High: contract.Max, Max: 8192}}),
			entry(t, 1, contract.Decision{CPUs: contracttest.CPUs("8"), Mems: contracttest.NUMANodes("1"),
				Hugepages: map[string]contract.Limit{"2Mi": 2 << 20, "1Gi": contract.Max}}),
		}},
		Hooks: hooks(30),
		Linux: &specs.Linux{CgroupsPath: "/kubepods/pod1/c1", Resources: &specs.LinuxResources{
			CPU: &specs.LinuxCPU{Cpus: "4-5,8", Mems: "0-1"},
			Unified: map[string]string{
				"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192",
				"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304", "hugetlb.1GB.max": "max", "hugetlb.1GB.rsvd.max": "max",
			},
		}},
	}
}

// noModes is an OCI runtime that must not be asked.
func noModes() ([]string, error) { return nil, errors.New("asked without need") }

// hook returns the guard for a container of spec, on a machine without cgroups.
func hook(spec *specs.Spec) guard.Hook {
	return guard.Hook{
		Config:      func(string) ([]byte, error) { return json.Marshal(spec) },
		PolicyModes: noModes, OpenMount: cgroups.Open, CgroupRoot: "/nonexistent", ProcRoot: "/nonexistent",
	}
}

// TestCheck covers A37 and I5: a container with the whole decision in its
// configuration gets past the guard without a look at its cgroup. Invalid
// variables are an error at once.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*specs.Spec)
		err    string
	}{
		"as decided":       {change: func(*specs.Spec) {}},
		"the same twice":   {change: func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, s.Process.Env[1]) }},
		"more than asked":  {change: func(s *specs.Spec) { s.Linux.Resources.Unified["memory.oom.group"] = "1" }},
		"nothing is asked": {change: func(s *specs.Spec) { s.Process.Env = []string{entry(t, 0, contract.Decision{})}; s.Linux = nil }},
		"all lost":         {change: func(s *specs.Spec) { s.Process.Env = nil }, err: "without a variable DRA_CPUMEM_"},
		"no process":       {change: func(s *specs.Spec) { s.Process = nil }, err: "no process"},
		"twice with different values": {change: func(s *specs.Spec) {
			s.Process.Env = append(s.Process.Env, entry(t, 0, contract.Decision{CPUs: contracttest.CPUs("0")}))
		}, err: "occurs with different values"},
		"unknown feature": {change: func(s *specs.Spec) {
			s.Process.Env = append(s.Process.Env, entry(t, 2, contract.Decision{Requires: []string{"teleport"}}))
		}, err: "older guard"},
		"not of the contract": {
			change: func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "DRA_CPUMEM_X=1") },
			err:    "DRA_CPUMEM_X",
		},
		"the pool's CPUs, none of the claim": {change: func(s *specs.Spec) {
			s.Process.Env = []string{entry(t, 0, contract.Decision{Mems: contracttest.NUMANodes("0")})}
			s.Linux.Resources = &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0-3", Mems: "0"}}
		}},
		"the pool's NUMA nodes, none of the claim": {change: func(s *specs.Spec) {
			s.Process.Env = []string{entry(t, 0, contract.Decision{CPUs: contracttest.CPUs("4")})}
			s.Linux.Resources = &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4", Mems: "0-1"}}
		}},
		"other CPUs": {change: func(s *specs.Spec) { s.Linux.Resources.CPU.Cpus = "4-5" }, err: "/nonexistent"},
		"other mems": {change: func(s *specs.Spec) { s.Linux.Resources.CPU.Mems = "0" }, err: "/nonexistent"},
		"no cgroup to look at": {
			change: func(s *specs.Spec) { s.Linux.Resources, s.Linux.CgroupsPath = nil, "" },
			err:    "the container lacks values of its claim's decision",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := valid(t)
			c.change(spec)
			h := hook(spec)
			h.Config = func(bundle string) ([]byte, error) {
				require.Equal(t, "/run/c1", bundle)
				return json.Marshal(spec)
			}
			err := h.Check(t.Context(), strings.NewReader(state))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestCheckUnreadable(t *testing.T) {
	check := func(state, config string, err error) error {
		h := guard.Hook{
			Config:      func(string) ([]byte, error) { return []byte(config), err },
			PolicyModes: noModes, OpenMount: cgroups.Open,
			CgroupRoot: "/nonexistent",
		}
		return h.Check(t.Context(), strings.NewReader(state))
	}
	require.ErrorContains(t, check("", "", nil), "container state")
	err := guard.Hook{}.Check(t.Context(), iotest.ErrReader(errors.New("broken pipe")))
	require.ErrorContains(t, err, "container state: broken pipe")
	require.ErrorContains(t, check("{}", "", nil), "no bundle")
	require.ErrorContains(t, check(state, "{", nil), "configuration")
	require.ErrorContains(t, check(state, `{"linux":{"resources":{"cpu":{"cpus":4}}}}`, nil), "configuration")
	// The last of two members counts, also if it is in capitals, as for the OCI runtimes in Go.
	for _, twice := range []string{`"process"`, `"PROCESS"`} {
		config := `{"process":{"env":["` + contract.EnvPrefix + `"]},` + twice + `:{"env":[]}}`
		require.ErrorContains(t, check(state, config, nil), "without a variable")
	}
	require.ErrorContains(t, check(state, "", errors.New("gone")), "gone")
}

func FuzzCheck(f *testing.F) {
	config, err := json.Marshal(valid(f))
	require.NoError(f, err)
	f.Add([]byte(state), config)
	f.Add([]byte(state), []byte(`{"process":{"env":["DRA_CPUMEM_"]}}`))
	f.Add([]byte(`{"bundle":"/x"}`), []byte(`{"linux":{"resources":null}}`))
	other := valid(f)
	other.Linux.Resources = nil
	config, err = json.Marshal(other)
	require.NoError(f, err)
	f.Add([]byte(state), config)
	// A check that would wait ends at once.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n := testnode.New(f, f.TempDir())
	f.Fuzz(func(t *testing.T, state, config []byte) {
		h := guard.Hook{
			Config:      func(string) ([]byte, error) { return config, nil },
			PolicyModes: noModes, OpenMount: n.OpenMount,
		}
		if err := h.Check(ctx, bytes.NewReader(state)); err != nil {
			return
		}
		var spec struct{ Process struct{ Env []string } }
		require.NoError(t, json.Unmarshal(config, &spec))
		require.Contains(t, strings.Join(spec.Process.Env, "\n"), contract.EnvPrefix)
	})
}

// FuzzEnvironment: a container has any variable beside its decisions. The error about it
// is short and printable, and a container that may run has its decisions.
func FuzzEnvironment(f *testing.F) {
	f.Add("DRA_CPUMEM_")
	f.Add(entry(f, 0, contract.Decision{CPUs: contracttest.CPUs("9")}))
	f.Add(contract.EnvPrefix + strings.Repeat("\x7f", 1000))
	f.Fuzz(func(t *testing.T, variable string) {
		spec := valid(t)
		spec.Process.Env = append(spec.Process.Env, variable)
		if err := hook(spec).Check(t.Context(), strings.NewReader(state)); err != nil {
			require.LessOrEqual(t, len(err.Error()), 1000)
			require.NotRegexp(t, `[^ -~]`, err.Error())
			return
		}
		// The guard does not know the claim files. A variable that asks for no more than
		// the container has passes; the actuator refuses it.
		all := make(map[contract.Key]contract.Decision)
		for _, entry := range spec.Process.Env {
			if key, d, ours, err := contract.ParseEnv(entry, nil); ours {
				require.NoError(t, err)
				all[key] = d
			}
		}
		merged := contract.Merge(all)
		require.Equal(t, "4-5,8", merged.CPUs.String())
		require.Equal(t, "0-1", merged.Mems.String())
		require.Equal(t, spec.Linux.Resources.Unified, merged.Files())
		require.Nil(t, merged.OOMScoreAdj)
	})
}
