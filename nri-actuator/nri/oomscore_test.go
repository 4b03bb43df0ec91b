// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func scored(score int) contract.Decision {
	return contract.Decision{Mems: contracttest.NUMANodes("0"), OOMScoreAdj: &score, Requires: []string{contract.FeatureOOMScore}}
}

// A81: the container has the lowest of its own score and its decisions' scores.
func TestOOMScore(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, scored(750), scored(-997), scored(kubeletScore+1), contract.Decision{CPUs: contracttest.CPUs("4")})
	for name, c := range map[string]struct {
		env  []string
		want int64
	}{
		"one":                    {env[:1], 750},
		"the lower of two":       {env[:2], -997},
		"a higher one":           {env[2:3], kubeletScore},
		"none":                   {env[3:], kubeletScore},
		"with one that has none": {[]string{env[0], env[3]}, 750},
		"no claim":               {nil, kubeletScore},
	} {
		created := r.run(name, podA, c.env...)
		require.Equal(t, c.want, created.api.Linux.OomScoreAdj.Value, name)
		require.NoError(t, r.update(created))
		require.NoError(t, r.remove(created))
	}
}

// TestOOMScoreNeverKnown covers I5: a container that was created without
// actuator and guard does not start with a higher score than decided.
func TestOOMScoreNeverKnown(t *testing.T) {
	for name, c := range map[string]struct {
		own     *int
		guarded bool
		starts  bool
	}{
		"as kubelet asked":  {new(kubeletScore), false, false},
		"not given":         {nil, false, false},
		"but a guard ran":   {new(kubeletScore), true, true},
		"with the decision": {new(750), false, true},
		"with a lower one":  {new(-997), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			created, err := r.create("c", podA, r.node.Prepare(podA, claimA, scored(750))...)
			require.NoError(t, err)
			created.api.Linux.OomScoreAdj = api.Int(c.own)
			if c.guarded {
				created.api.Hooks = &api.Hooks{CreateRuntime: []*api.Hook{
					{Path: "/opt/nri-actuator", Args: []string{"nri-actuator", "guard"}},
				}}
			}
			r.connect()
			if err = r.start(created); c.starts {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "nothing shows whether it was created with its claim's OOM score")
		})
	}
}

// TestOOMScoreUnavailable checks that the container waits if the runtime is
// older than when the claim was prepared (I5).
func TestOOMScoreUnavailable(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, scored(750))
	r.nri, r.version = "v0.6.1", "v1.7.28"
	r.connect()
	require.NotContains(t, r.announced.Features, contract.FeatureOOMScore)
	_, err := r.create("c", podA, env...)
	require.ErrorContains(t, err,
		`requires "oomScoreAdj", which this node cannot do any more: the runtime is containerd v1.7.28 with NRI v0.6.1`)
}
