// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

// A83, A84: interrupts that stay, and CPU limits that throttle, are found.
func TestCheckQuiet(t *testing.T) {
	many := make(map[string]string)
	for n := range 20 {
		many[fmt.Sprintf("%d nvme0q%d", 100+n, n)] = "5"
	}
	for name, c := range map[string]struct {
		quiet         contract.Quiet
		quota         string
		fixed, faults map[string]string
		interrupts    string
		throttling    string
		irqbalance    bool
		limit         *contract.CPULimit
	}{
		"nothing asked, no limit": {fixed: map[string]string{"24 disk": "4"}},
		"quiet": {
			quiet: contract.Quiet{NoInterrupts: true}, fixed: map[string]string{"24 disk": "3"},
			interrupts: "True Quiet no interrupt of a device comes to the claim's CPUs, except those of the device that the claim asks for",
		},
		"a fixed interrupt": {
			quiet: contract.Quiet{NoInterrupts: true}, fixed: map[string]string{"24 disk": "3-4", "25 usb": "1"},
			interrupts: "False InterruptsFixed the kernel keeps these interrupts on the claim's CPUs: 24 disk (CPUs 4)",
		},
		"bytes for a terminal in a name": {
			quiet: contract.Quiet{NoInterrupts: true}, fixed: map[string]string{"24 eth\x1b[2J": "4"},
			interrupts: "False InterruptsFixed the kernel keeps these interrupts on the claim's CPUs: 24 eth?[2J (CPUs 4)",
		},
		"many of them": {
			quiet: contract.Quiet{NoInterrupts: true}, fixed: many,
			interrupts: "False InterruptsFixed the kernel keeps these interrupts on the claim's CPUs: 100 nvme0q0 (CPUs 5), 101 nvme0q1 (CPUs 5), " +
				"102 nvme0q2 (CPUs 5), 103 nvme0q3 (CPUs 5), 104 nvme0q4 (CPUs 5), 105 nvme0q5 (CPUs 5), 106 nvme0q6 (CPUs 5), " +
				"107 nvme0q7 (CPUs 5) and 12 more",
		},
		"irqbalance": {
			quiet: contract.Quiet{NoInterrupts: true}, irqbalance: true,
			interrupts: "True Irqbalance irqbalance is running on this node: it may bring interrupts back until nri-actuator looks again; " +
				"give it the claimable CPUs as IRQBALANCE_BANNED_CPULIST, or stop it",
		},
		"a fault": {
			quiet: contract.Quiet{NoInterrupts: true}, faults: map[string]string{contract.FeatureInterrupts: "permission denied"},
			interrupts: "False NotWritten nri-actuator could not write the CPUs of interrupts: permission denied",
		},
		"bytes for a terminal in a fault": {
			quiet: contract.Quiet{NoInterrupts: true}, faults: map[string]string{contract.FeatureInterrupts: "eth\x1b[2J"},
			interrupts: "False NotWritten nri-actuator could not write the CPUs of interrupts: eth?[2J",
		},
		"a limit": {
			quiet: contract.Quiet{LimitMilli: 1500},
			throttling: "False CPULimit a CPU limit of 1500m throttles a container that has CPUs 4-5 alone: " +
				"leave the limit out, or set the claim parameter cpu.quota to none",
		},
		"a lifted limit": {quota: contract.QuotaNone, throttling: "True NoQuota no CPU limit throttles the container"},
		"a pod whose containers have limits": {
			quota: contract.QuotaNone, limit: &contract.CPULimit{Milli: 2000},
			throttling: "True NoQuota no CPU limit throttles the container",
		},
		"a pod that keeps its limit": {
			quota: contract.QuotaNone, limit: &contract.CPULimit{Milli: 2000, Open: true},
			throttling: "True NoQuota the container has no CPU limit; the limit of its pod grows by the claim's CPUs, " +
				"and stops the container only if the pod's other containers use all that is left",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims := []contract.ClaimRecord{{UID: "c", Pods: []contract.PodRecord{{UID: "p", CPULimit: c.limit}}, Results: []contract.ResultRecord{
				{Quiet: c.quiet, Decision: contract.Decision{CPUs: contracttest.CPUs("4-5"), Quota: c.quota}},
			}}}
			got := health.CheckQuiet(claims, health.QuietFacts{Fixed: c.fixed, Faults: c.faults, Irqbalance: c.irqbalance})
			key := contract.Key{ClaimUID: "c"}
			require.Equal(t, c.interrupts, text(got[key].Interrupts))
			require.Equal(t, c.throttling, text(got[key].Quota))
			_, known := got[key]
			require.Equal(t, c.interrupts+c.throttling != "", known)
		})
	}
}

// What was measured is compared with what the result asks for, worst first.
func TestCheckQuiet_Measured(t *testing.T) {
	disturbed := receipt.Receipt{
		Interrupts: 7, Disturbers: []string{"disk (6)"}, Throttling: receipt.Throttling{Times: 1}, PartitionLosses: 1,
	}
	for name, c := range map[string]struct {
		quiet    contract.Quiet
		quota    string
		measured receipt.Receipt
		faults   map[string]string
		want     string
	}{
		"a value that could not be written": {
			quiet: contract.Quiet{NoWorkQueues: true}, faults: map[string]string{contract.FeatureHousekeeping: "permission denied"},
			want: "False NotWritten nri-actuator could not write a value of housekeeping: permission denied; since",
		},
		"bytes for a terminal": {
			quiet: contract.Quiet{NoWorkQueues: true}, faults: map[string]string{contract.FeatureHousekeeping: "eth\x1b[2J"},
			want: "False NotWritten nri-actuator could not write a value of housekeeping: eth?[2J; since",
		},
		"a value that the claim does not ask for": {
			quiet: contract.Quiet{NoWorkQueues: true}, faults: map[string]string{contract.FeatureInterrupts: "permission denied"},
			want: "True Quiet since",
		},
		"nothing happened": {quiet: contract.Quiet{NoInterrupts: true}, want: "True Quiet since 0001-01-01T00:00:00Z: 0 interrupts of devices, " +
			"threads waited 0s and were switched to 0 times, throttled 0 times (0s), partition lost 0 times"},
		"moved interrupts": {quiet: contract.Quiet{NoInterrupts: true}, measured: receipt.Receipt{Interrupts: 2}, want: "True Quiet since"},
		"asked for neither": {
			quiet: contract.Quiet{NoWorkQueues: true}, measured: receipt.Receipt{Interrupts: 6, Disturbers: []string{"disk (6)"},
				Throttling: receipt.Throttling{Times: 1}}, want: "True Quiet since",
		},
		"interrupts": {
			quiet: contract.Quiet{NoInterrupts: true}, measured: receipt.Receipt{Interrupts: 6, Disturbers: []string{"disk (6)"}},
			want: "False Interrupted interrupts came to its CPUs from disk (6); since",
		},
		"throttled": {
			quota: contract.QuotaNone, measured: receipt.Receipt{Throttling: receipt.Throttling{Times: 1}},
			want: "False Throttled a CPU limit has stopped the container; since",
		},
		"all": {
			quiet: contract.Quiet{NoInterrupts: true}, quota: contract.QuotaNone, measured: disturbed,
			want: "False PartitionLost its partition was lost, and other programs may have run on its CPUs; " +
				"a CPU limit has stopped the container; interrupts came to its CPUs from disk (6); since",
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := contract.Key{ClaimUID: "c"}
			claims := []contract.ClaimRecord{{UID: "c", Results: []contract.ResultRecord{
				{Quiet: c.quiet, Decision: contract.Decision{CPUs: contracttest.CPUs("4-5"), Quota: c.quota}},
			}}}
			got := health.CheckQuiet(claims, health.QuietFacts{
				Faults: c.faults, Receipts: map[contract.Key]receipt.Receipt{key: c.measured},
			})
			require.Contains(t, text(got[key].Measured), c.want)
			require.Equal(t, c.measured.Magnitudes(), got[key].Magnitudes)
		})
	}
}

func text(c health.Condition) string {
	if c.Status == metav1.ConditionStatus("") {
		return ""
	}
	return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
}
