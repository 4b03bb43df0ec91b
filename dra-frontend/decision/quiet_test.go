// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// wants changes what the claim asks for beside its amounts.
func wants(c decision.Claim, change func(*parameters.Quiet)) decision.Claim {
	c.Results = slices.Clone(c.Results)
	change(&c.Results[0].Settings.Quiet)
	return c
}

func noQuota(q *parameters.Quiet) { q.Quota = config.None }

func TestQuiet(t *testing.T) {
	node := testNode(t)
	node.Actuator.Features = contract.Features()
	latency := parameters.Latency(0)
	limited := claim(1, "numa-0", 2, 0)
	limited.Pods[0].Containers[0].Resources.CPU = oomscore.Amount{Request: 2000, Limit: 2000}
	limited.Pods[0].CPULimit = &contract.CPULimit{Milli: 2000}
	unused := wants(claim(1, "numa-0", 2, 0), noQuota)
	unused.Pods[0].CPULimit, unused.Pods[0].Containers[0].Claims = &contract.CPULimit{Milli: 2000}, nil
	for name, c := range map[string]struct {
		claim    decision.Claim
		quiet    contract.Quiet
		quota    string
		requires []string
		limit    *contract.CPULimit
	}{
		"nothing": {claim: claim(1, "numa-0", 2, 0)},
		"a CPU limit throttles": {
			claim: limited, quiet: contract.Quiet{LimitMilli: 2000},
		},
		"a CPU limit that is lifted": {
			claim: wants(limited, noQuota), quota: contract.QuotaNone,
			requires: []string{contract.FeatureQuota}, limit: &contract.CPULimit{Milli: 2000},
		},
		"a CPU limit of a pod that does not use the claim": {
			claim: unused, quota: contract.QuotaNone, requires: []string{contract.FeatureQuota},
		},
		"no CPUs, no wish": {
			claim: wants(claim(1, "numa-0", 0, gi), func(q *parameters.Quiet) { q.Quota, q.Interrupts.Mode = config.None, config.None }),
		},
		"interrupts, work queues and latency": {
			claim: wants(claim(1, "numa-0", 1, 0), func(q *parameters.Quiet) {
				q.Interrupts.Mode, q.Housekeeping, q.WakeupLatency = config.None, config.None, &latency
			}),
			quiet: contract.Quiet{
				NoInterrupts: true, NoWorkQueues: true, Files: map[string]string{contract.FileWakeupLatency: contract.NoWakeupLatency},
			},
			requires: []string{contract.FeatureHousekeeping, contract.FeatureInterrupts, contract.FeatureWakeupLatency},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{c.claim}})[0]
			require.NoError(t, out.Err)
			require.NoError(t, out.Record.Validate())
			result := out.Record.Results[0]
			require.Equal(t, c.quiet, result.Quiet)
			require.Equal(t, c.quota, result.Decision.Quota)
			require.ElementsMatch(t, c.requires, result.Decision.Requires)
			require.Equal(t, c.limit, out.Record.Pods[0].CPULimit)
		})
	}
}

// Prepare refuses what the actuator or the machine cannot do, and contradictions with the
// claims of this call.
func TestQuietIsRefused(t *testing.T) {
	node := testNode(t)
	device := func(i int, pattern string) decision.Claim {
		return wants(claim(i, "numa-0", 1, 0), func(q *parameters.Quiet) { q.Interrupts = parameters.Interrupts{Device: pattern} })
	}
	require.False(t, claim(1, "numa-0", 1, 0).NeedsMachine())
	require.True(t, device(1, "eth0").NeedsMachine())
	facts := quiet.Facts{Interrupts: [][]string{{"eth0-rx-0"}}}

	out := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{device(1, "eth0-*")}, Machine: facts})
	require.ErrorContains(t, out[0].Err, `its parameters need "interrupts", which this node cannot do`)
	require.Equal(t, decision.ReasonActuator, decision.ReasonOf(out[0].Err))

	node.Actuator.Features = contract.Features()
	out = decision.Decide(decision.Input{
		Node: node, Claims: []decision.Claim{device(1, "eth1-*"), device(2, "eth0-*"), device(3, "*-rx-0")}, Machine: facts,
	})
	require.ErrorContains(t, out[0].Err, `request "r" on device "numa-0": cpu.interrupts: no interrupt of this machine`)
	require.Equal(t, decision.ReasonClaim, decision.ReasonOf(out[0].Err))
	require.NoError(t, out[1].Err)
	require.ErrorContains(t, out[2].Err, "which another claim on this node, or another request of this claim, has")
}

// Two requests of one claim may get CPUs that share a clock.
func TestQuietOfOneClaimContradicts(t *testing.T) {
	node := testNode(t)
	node.Actuator.Features = contract.Features()
	facts := quiet.Facts{CPUs: make(map[int]quiet.CPU)}
	for id := range 64 {
		facts.CPUs[id] = quiet.CPU{Min: 1e6, Max: 3e6, Core: contracttest.CPUs("0-63")}
	}
	c := claim(1, "numa-0", 1, 0)
	second := c.Results[0]
	second.Request, second.Index = "s", 1
	c.Results = append(c.Results, second)
	frequency := func(i int, kHz parameters.Frequency) { c.Results[i].Settings.Quiet.MaxFrequency = &kHz }
	frequency(0, 1e6)
	frequency(1, 2e6)
	out := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{c}, Machine: facts})
	require.ErrorContains(t, out[0].Err, "cpu.maxFrequency 2000MHz contradicts 1000MHz, which another claim or request has")
	frequency(1, 1e6)
	out = decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{c}, Machine: facts})
	require.NoError(t, out[0].Err)
}
