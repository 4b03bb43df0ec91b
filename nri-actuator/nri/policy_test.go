// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

func policed(mode string) contract.Decision {
	d := contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0-1"),
		MemoryPolicy: &contract.MemoryPolicy{Mode: mode, Nodes: contracttest.NUMANodes("1")}}
	d.Requires = d.MemoryPolicy.Features()
	return d
}

// TestMemoryPolicy checks that a created container has the memory policy of all
// its decisions, and that no later call repeats the policy.
func TestMemoryPolicy(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	require.Equal(t, []string{
		contract.FeatureOOMScore, contract.FeatureMemoryPolicy, contract.FeatureWeightedInterleave, contract.FeatureQuota,
	}, r.announced.Features)
	interleaved := policed(contract.ModeInterleave)
	interleaved.CPUs, interleaved.MemoryPolicy.Nodes = contracttest.CPUs("8"), contracttest.NUMANodes("0")
	env := r.node.Prepare(podA, claimA, policed(contract.ModeBind), interleaved)

	one := r.run("one", podA, env[1])
	require.Equal(t, api.MpolMode_MPOL_INTERLEAVE, one.policy.GetMode())
	both := r.run("both", podA, env...)
	require.Equal(t, api.MpolMode_MPOL_BIND, both.policy.GetMode())
	require.Equal(t, "0-1", both.policy.GetNodes())
	require.Equal(t, []api.MpolFlag{api.MpolFlag_MPOL_F_STATIC_NODES}, both.policy.GetFlags())
	require.NoError(t, r.update(both))
	require.Nil(t, r.run("pool", podB).policy)
}

// TestPolicyUnavailable checks that the container waits if the runtime or the
// kernel is older than when the claim was prepared (I5). Other containers
// start.
func TestPolicyUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		nri, kernel, mode string
		announced         []string
		err               string
	}{
		"old NRI": {
			nri:    "v0.11.0",
			kernel: "6.12.0",
			mode:   contract.ModeBind,
			err:    `requires "memoryPolicy", which this node cannot do any more: the runtime is containerd v2.2.7 with NRI v0.11.0`,
		},
		"old kernel": {"v0.12.0", "5.10.0-35", contract.ModePreferred, nil, `requires "memoryPolicy"`},
		"weights too new": {
			nri:       "v0.12.0",
			kernel:    "6.8.0",
			mode:      contract.ModeWeightedInterleave,
			announced: []string{contract.FeatureMemoryPolicy},
			err:       `requires "weightedInterleave"`,
		},
		"weights not used": {"v0.12.0", "6.8.0", contract.ModeInterleave, []string{contract.FeatureMemoryPolicy}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux61)
			r.nri, r.kernel = c.nri, c.kernel
			r.connect()
			require.ElementsMatch(t, append(c.announced, contract.FeatureOOMScore, contract.FeatureQuota), r.announced.Features)
			env := r.node.Prepare(podA, claimA, policed(c.mode))
			created, err := r.create("c", podA, env...)
			if c.err == "" {
				require.NoError(t, err)
				require.NotNil(t, created.policy)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			r.run("pool", podB)
		})
	}
}

// TestPolicyNeverKnown covers I5: a container that was created without actuator
// and guard does not start.
func TestPolicyNeverKnown(t *testing.T) {
	for name, guarded := range map[string]bool{"no guard": false, "guard": true} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			c, err := r.create("c", podA, r.node.Prepare(podA, claimA, policed(contract.ModeBind))...)
			require.NoError(t, err)
			plain, err := r.create("plain", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("9")})...)
			require.NoError(t, err)
			if guarded {
				c.api.Hooks = &api.Hooks{CreateRuntime: []*api.Hook{{Path: "/opt/nri-actuator", Args: []string{"nri-actuator", "guard"}}}}
			}
			r.connect()
			require.NoError(t, r.start(plain))
			if guarded {
				require.NoError(t, r.start(c))
				return
			}
			require.ErrorContains(t, r.start(c), "nothing shows whether it was created with its claim's memory policy")
		})
	}
	t.Run("a running one stays", func(t *testing.T) {
		r := newRuntime(t, t.TempDir())
		c := r.run("c", podA, r.node.Prepare(podA, claimA, policed(contract.ModeBind))...)
		r.connect()
		require.NoError(t, r.plugin.Apply(context.Background()))
		require.NoError(t, r.update(c))
		require.Equal(t, "4-7", r.cpus(c))
	})
}
