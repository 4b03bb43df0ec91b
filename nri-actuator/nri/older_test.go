// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// A54: an actuator that is older than the frontend refuses the containers of a pod that
// requires a feature which the actuator does not know, and no more: running containers
// keep what they have (I4), and all other containers get what they would get.
func TestOlderActuator(t *testing.T) {
	const later = contract.FeatureOOMScore
	older := slices.DeleteFunc(contract.Features(), func(f string) bool { return f == later })
	for name, demand := range map[string]func(*contract.Decision, *contract.PodState){
		"a decision requires more": func(d *contract.Decision, _ *contract.PodState) { d.Requires = []string{later} },
		"the pod requires more":    func(_ *contract.Decision, p *contract.PodState) { p.Requires = []string{later} },
	} {
		for _, kind := range []string{"", contract.PartitionRoot} {
			t.Run(name+" "+kind, func(t *testing.T) {
				r := newRuntime(t, t.TempDir())
				d, pod := quad(), contract.PodState{}
				demand(&d, &pod)
				if d.Partition = kind; kind != "" {
					d.Requires = append(d.Requires, contract.FeaturePartition)
				}
				env := r.node.Prepare(podA, claimA, d)
				r.node.Change(func(s *contract.NodeState) {
					entry := s.Pods[podA]
					entry.Requires = pod.Requires
					s.Pods[podA] = entry
				})
				c, pool := r.run("c", podA, env...), r.run("pool", podB)
				has := func() map[string]string {
					files := map[string]string{}
					for file := range c.spec {
						files[file] = r.node.File(c.dir, file)
					}
					return files
				}
				before := has()
				require.Equal(t, "4-7", before["cpuset.cpus"])

				r.features = older
				r.connect()
				require.NoError(t, r.plugin.Apply(t.Context()))
				require.Equal(t, before, has(), "a running container stays")
				require.EqualValues(t, 1, r.metric("cpumem_actuator_refused_total", "feature"))

				_, err := r.create("again", podA, env...)
				require.ErrorContains(t, err, `requires feature "oomScoreAdj"`)
				require.ErrorContains(t, err, "upgrade nri-actuator")
				require.NoError(t, r.start(must(r.create("plain", podA))), "a container of the pod without the claim (I7)")

				other := r.run("other", podC, r.node.Prepare(podC, claimB, contract.Decision{CPUs: contracttest.CPUs("9")})...)
				require.Equal(t, "9", r.cpus(other))
				require.False(t, testnode.Overlap(r.cpus(pool), "9"), "the pool gives CPUs up")
				require.Equal(t, before, has())
			})
		}
	}
}

func must(c *container, err error) *container {
	if err != nil {
		panic(err)
	}
	return c
}

// I1: only a container on its pod's CPUs stays. One that another program has widened
// leaves the other claims' CPUs.
func TestOlderActuatorAndAWidenedContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	d := quad()
	d.Requires = []string{contract.FeatureOOMScore}
	c := r.run("c", podA, r.node.Prepare(podA, claimA, d)...)
	other := r.run("other", podC, r.node.Prepare(podC, claimB, contract.Decision{CPUs: contracttest.CPUs("9")})...)
	r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
	r.features = nil
	r.connect()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8,10-15", r.cpus(c))
	require.Equal(t, "9", r.cpus(other))
}

// An actuator that runs while its frontend is upgraded keeps the decisions that it knows.
func TestFrontendBecomesNewer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.Change(func(s *contract.NodeState) {
		entry := s.Pods[podA]
		entry.Requires = []string{"later"}
		s.Pods[podA] = entry
	})
	r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
	require.Zero(t, r.metric("cpumem_actuator_refused_total", "feature"))
}
