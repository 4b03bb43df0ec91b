// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
)

// The test program is the OCI runtime, too: see [TestPolicyModes].
const (
	answer = "GUARD_TEST_ANSWER"
	ask    = "GUARD_TEST_ASK"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "features":
		if os.Getenv(answer) == "" {
			os.Exit(1)
		}
		fmt.Println(os.Getenv(answer))
		os.Exit(0)
	case os.Getenv(ask) != "":
		modes, err := guard.PolicyModes()
		fmt.Print(strings.Join(modes, " "), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestPolicy covers I5: the guard stops a container if the runtime dropped its
// memory policy, or the OCI runtime would ignore it.
func TestPolicy(t *testing.T) {
	policed := func(mode, nodes string) contract.Decision {
		d := contract.Decision{Mems: contracttest.NUMANodes("0-1"),
			MemoryPolicy: &contract.MemoryPolicy{Mode: mode, Nodes: contracttest.NUMANodes(nodes)}}
		d.Requires = d.MemoryPolicy.Features()
		return d
	}
	known := []string{contract.FeatureMemoryPolicy, contract.FeatureWeightedInterleave}
	static := []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes}
	modes := func(names ...string) func() ([]string, error) { return func() ([]string, error) { return names, nil } }
	bound := &specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "1", Flags: static}
	for name, c := range map[string]struct {
		decision contract.Decision
		policy   *specs.LinuxMemoryPolicy
		modes    func() ([]string, error)
		features []string
		err      string
	}{
		"as decided": {policed("bind", "1"), bound, modes("MPOL_BIND"), known, ""},
		"preferred many": {policed("preferred", "0-1"),
			&specs.LinuxMemoryPolicy{Mode: specs.MpolPreferredMany, Nodes: "0-1", Flags: static}, modes("MPOL_PREFERRED_MANY"), known, ""},
		"dropped by the container runtime": {policed("bind", "1"), nil, modes("MPOL_BIND"), known,
			"memory policy is unset, the claim's decision is MPOL_BIND 1 MPOL_F_STATIC_NODES"},
		"other mode": {policed("interleave", "1"), bound, modes("MPOL_INTERLEAVE"), known,
			"memory policy is MPOL_BIND 1 MPOL_F_STATIC_NODES, the claim's decision is MPOL_INTERLEAVE 1"},
		"other nodes": {policed("bind", "0-1"), bound, modes("MPOL_BIND"), known, "the claim's decision is MPOL_BIND 0-1"},
		"other flags": {policed("bind", "1"), &specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "1"}, modes("MPOL_BIND"), known,
			"memory policy is MPOL_BIND 1, the claim's decision is MPOL_BIND 1 MPOL_F_STATIC_NODES"},
		"old OCI runtime": {policed("bind", "1"), bound, modes(), known, "the OCI runtime knows the modes [] only"},
		"mode is newer": {
			decision: policed("bind", "1"),
			policy:   bound,
			modes:    modes("MPOL_DEFAULT", "MPOL_LOCAL"),
			features: known,
			err:      "knows the modes [MPOL_DEFAULT MPOL_LOCAL] only",
		},
		"silent OCI runtime": {
			decision: policed("bind", "1"),
			policy:   bound,
			modes:    func() ([]string, error) { return nil, errors.New("no such command") },
			features: known,
			err:      "no such command",
		},
		"guard is older":       {policed("bind", "1"), bound, noModes, nil, `requires feature "memoryPolicy"`},
		"not of the decision":  {contract.Decision{Mems: contracttest.NUMANodes("0-1")}, bound, noModes, nil, ""},
		"no policy, not asked": {contract.Decision{Mems: contracttest.NUMANodes("0-1")}, nil, noModes, known, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &specs.Spec{
				Process: &specs.Process{Env: []string{entry(t, 0, c.decision)}},
				Linux:   &specs.Linux{Resources: &specs.LinuxResources{CPU: &specs.LinuxCPU{Mems: "0-1"}}, MemoryPolicy: c.policy},
			}
			h := hook(spec)
			h.PolicyModes, h.Features = c.modes, c.features
			// A wait would outlast the test: no program can set a policy later (A80).
			spec.Hooks = hooks(3600)
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

// A configuration without a Linux part has no policy.
func TestPolicyWithoutLinux(t *testing.T) {
	d := contract.Decision{Mems: contracttest.NUMANodes("0"),
		MemoryPolicy: &contract.MemoryPolicy{Mode: contract.ModeBind, Nodes: contracttest.NUMANodes("0")}}
	d.Requires = d.MemoryPolicy.Features()
	h := hook(&specs.Spec{Process: &specs.Process{Env: []string{entry(t, 0, d)}}})
	h.Features = d.Requires
	require.ErrorContains(t, h.Check(t.Context(), strings.NewReader(state)), "memory policy is unset")
}

// TestPolicyModes: PolicyModes asks the process that runs the hook.
func TestPolicyModes(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for name, c := range map[string]struct{ answer, want string }{
		"knows policies": {
			answer: `{"ociVersionMin":"1.0.0","linux":{"memoryPolicy":{"modes":["MPOL_BIND","MPOL_INTERLEAVE"]}}}`,
			want:   "MPOL_BIND MPOL_INTERLEAVE<nil>",
		},
		"knows none": {`{"linux":{"cgroup":{"v2":true}}}`, "<nil>"},
		"no Linux":   {`{}`, "<nil>"},
		"no JSON":    {`Incorrect Usage`, filepath.Base(self) + " features: invalid character"},
		"no command": {``, filepath.Base(self) + " features: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), ask+"=1", answer+"="+c.answer)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err)
			require.Contains(t, string(out), c.want)
		})
	}
}
