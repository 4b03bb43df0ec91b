// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// The node's T2 machine has the devices numa-0 and numa-1 with four CPUs each.
func TestAssess(t *testing.T) {
	machine, err := config.Default().Divide(topologytest.T2().Machine())
	require.NoError(t, err)
	key := contract.Key{ClaimUID: claimUID}
	claimed := func(cpus string) []contract.ClaimRecord {
		return []contract.ClaimRecord{{Namespace: "ns", Name: "db", UID: claimUID, Results: []contract.ResultRecord{
			{Pool: "node", Device: "numa-0", Decision: contract.Decision{CPUs: contracttest.CPUs(cpus)}},
		}}}
	}
	for name, tc := range map[string]struct {
		observe func(*observation)
		// taints are "key=value" without the driver's name.
		taints, faults []string
		problems       map[string]string
		unsettled      bool
	}{
		"all is well": {
			observe:  func(*observation) {},
			problems: map[string]string{"numa-0": "", "numa-1": ""},
		},
		"no actuator": {
			observe:  func(o *observation) { o.actuatorFault = errors.New("gone") },
			taints:   []string{"actuator=unavailable"},
			faults:   []string{reasonActuator},
			problems: map[string]string{"numa-0": "gone", "numa-1": "gone"},
		},
		"an unreadable claim file on an unfit node has one taint": {
			observe:  func(o *observation) { o.preflightFault, o.blocked = errors.New("cgroup v1"), errors.New("no JSON") },
			taints:   []string{"node=unfit"},
			faults:   []string{reasonBlocked, reasonNodeUnfit},
			problems: map[string]string{"numa-0": "", "numa-1": ""},
		},
		"an unreadable claim file": {
			observe:  func(o *observation) { o.blocked = errors.New("no JSON") },
			taints:   []string{"node=blocked"},
			faults:   []string{reasonBlocked},
			problems: map[string]string{"numa-0": "", "numa-1": ""},
		},
		"a claim's CPU is offline": {
			observe: func(o *observation) { o.claims = claimed("1,99") },
			problems: map[string]string{
				"numa-0": "CPUs 99 of a claim's CPUs 1,99 are offline", "numa-1": "",
			},
		},
		"a claim's CPU is offline while the actuator is away": {
			observe:  func(o *observation) { o.claims, o.actuatorFault = claimed("1,99"), errors.New("gone") },
			taints:   []string{"actuator=unavailable"},
			faults:   []string{reasonActuator},
			problems: map[string]string{"numa-0": "gone; CPUs 99 of a claim's CPUs 1,99 are offline", "numa-1": "gone"},
		},
		"a claim of a device that is not published": {
			observe: func(o *observation) {
				o.claims = claimed("1")
				o.claims[0].Results[0].Device = "numa-9"
			},
			problems: map[string]string{"numa-0": "", "numa-1": "", "numa-9": ""},
		},
		"slices that are not written": {
			observe:  func(o *observation) { o.slicesFault = errors.New("conflict") },
			faults:   []string{reasonSlices},
			problems: map[string]string{"numa-0": "", "numa-1": ""},
		},
		"a claim without its memory protection": {
			observe: func(o *observation) {
				o.claims = claimed("1")
				o.protection = map[contract.Key]health.Protection{key: {Status: metav1.ConditionFalse}}
			},
			problems:  map[string]string{"numa-0": "", "numa-1": ""},
			unsettled: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{machine: machine.Machine, divided: machine}
			tc.observe(&o)
			got := assess(o, config.Default())
			require.Equal(t, tc.problems, got.problems)
			require.Equal(t, tc.faults, slices.Sorted(maps.Keys(got.faults)))
			require.Equal(t, !tc.unsettled, got.allProtected)
			require.NotEmpty(t, got.devices)
			for _, d := range got.devices {
				var taints []string
				for _, taint := range d.Taints {
					taints = append(taints, taint.Key[len("dra.cpumem/"):]+"="+taint.Value)
				}
				require.Equal(t, tc.taints, taints)
			}
		})
	}
}

// What the actuator announces about the machine reaches the claims that asked for it.
func TestAssessQuiet(t *testing.T) {
	machine, err := config.Default().Divide(topologytest.T2().Machine())
	require.NoError(t, err)
	key := contract.Key{ClaimUID: claimUID}
	o := observation{machine: machine.Machine, divided: machine}
	o.claims = []contract.ClaimRecord{{UID: claimUID, Results: []contract.ResultRecord{{
		Device: "numa-0", Quiet: contract.Quiet{NoInterrupts: true, NoWorkQueues: true},
		Decision: contract.Decision{
			CPUs: contracttest.CPUs("1"), Requires: []string{contract.FeatureHousekeeping, contract.FeatureInterrupts},
		},
	}}}}
	o.receipts = map[contract.Key]receipt.Receipt{key: {}}
	got := assess(o, config.Default()).quiet[key]
	require.Equal(t, metav1.ConditionTrue, got.Interrupts.Status)
	require.Equal(t, metav1.ConditionTrue, got.Measured.Status)
	o.announced.fixedInterrupts = map[string]string{"24 disk": "1"}
	o.announced.machineFaults = map[string]string{contract.FeatureHousekeeping: "input/output error"}
	got = assess(o, config.Default()).quiet[key]
	require.Equal(t, metav1.ConditionFalse, got.Interrupts.Status)
	require.Contains(t, got.Interrupts.Message, "24 disk")
	require.Equal(t, "NotWritten", got.Measured.Reason)
}

// A claim whose pod does not start, because of its image for example, has no protection for long.
func TestLooksSoon(t *testing.T) {
	for name, c := range map[string]struct {
		allProtected bool
		after        time.Duration
		want         bool
	}{
		"a pod is starting":         {after: time.Second, want: true},
		"all have their protection": {allProtected: true, after: time.Second},
		"a pod does not start":      {after: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, looksSoon(c.allProtected, c.after))
		})
	}
}
