// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

// Reasons of findings about quiet CPUs.
const (
	ReasonQuiet    = "Quiet"
	ReasonFixed    = "InterruptsFixed"
	ReasonFault    = "NotWritten"
	ReasonNoQuota  = "NoQuota"
	ReasonCPULimit = "CPULimit"
	// ReasonIrqbalance is of results whose interrupts may come back for a while.
	ReasonIrqbalance = "Irqbalance"
	// Reasons of what was measured.
	ReasonInterrupted = "Interrupted"
	ReasonThrottled   = "Throttled"
	ReasonLost        = "PartitionLost"
)

// Condition is the state of one promise to a result. The zero value is no condition.
type Condition struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// Quiet has what is known about the quietness of a result's CPUs.
type Quiet struct {
	// Interrupts is about a result without interrupts, Quota about a result whose
	// container has a CPU limit or whose limit is lifted.
	Interrupts, Quota Condition
	// Measured is about a result that is measured. Magnitudes has the sizes of its numbers.
	Measured   Condition
	Magnitudes string
}

// QuietFacts are what CheckQuiet looks at beside the claims.
type QuietFacts struct {
	// Fixed are the interrupts that the actuator could not move, with their CPUs.
	Fixed map[string]string
	// Faults are the kernel's words about values that it could not write, by feature.
	Faults map[string]string
	// Irqbalance reports whether irqbalance is running, which moves interrupts too.
	Irqbalance bool
	// Receipts are what was measured.
	Receipts map[contract.Key]receipt.Receipt
}

const (
	// maxInterrupts bounds the names in a message.
	maxInterrupts = 8
	// maxName and maxFault bound the name of an interrupt and the words about a fault, in bytes.
	maxName, maxFault = 60, 300
)

// CheckQuiet returns what is known about the results that have a promise or a limit.
func CheckQuiet(claims []contract.ClaimRecord, facts QuietFacts) map[contract.Key]Quiet {
	all := make(map[contract.Key]Quiet)
	for _, c := range claims {
		for i, r := range c.Results {
			key := contract.Key{ClaimUID: c.UID, Index: i}
			var q Quiet
			if r.Quiet.NoInterrupts {
				q.Interrupts = facts.interrupts(r.Decision.CPUs)
			}
			switch limit := r.Quiet.LimitMilli; {
			case r.Decision.Quota == contract.QuotaNone && slices.ContainsFunc(c.Pods, hasOpenLimit):
				q.Quota = Condition{metav1.ConditionTrue, ReasonNoQuota, "the container has no CPU limit; the limit of its pod grows by " +
					"the claim's CPUs, and stops the container only if the pod's other containers use all that is left"}
			case r.Decision.Quota == contract.QuotaNone:
				q.Quota = Condition{metav1.ConditionTrue, ReasonNoQuota, "no CPU limit throttles the container"}
			case limit > 0:
				q.Quota = Condition{metav1.ConditionFalse, ReasonCPULimit, fmt.Sprintf(
					"a CPU limit of %dm throttles a container that has CPUs %s alone: leave the limit out, or set the claim parameter cpu.quota to none",
					limit, r.Decision.CPUs)}
			}
			if measured, is := facts.Receipts[key]; is {
				q.Measured, q.Magnitudes = judge(r, measured, facts.Faults), measured.Magnitudes()
			}
			if q != (Quiet{}) {
				all[key] = q
			}
		}
	}
	return all
}

// hasOpenLimit reports whether the pod keeps a CPU limit beside a container without one.
func hasOpenLimit(p contract.PodRecord) bool { return p.CPULimit != nil && p.CPULimit.Open }

// judge compares what was measured with what the result asks for. faults are values of the
// machine that could not be written, by feature.
func judge(r contract.ResultRecord, measured receipt.Receipt, faults map[string]string) Condition {
	var reason string
	var found []string
	against := func(why, text string) {
		reason = cmp.Or(reason, why)
		found = append(found, text)
	}
	if measured.PartitionLosses > 0 {
		against(ReasonLost, "its partition was lost, and other programs may have run on its CPUs")
	}
	if r.Decision.Quota == contract.QuotaNone && measured.Throttling.Times > 0 {
		against(ReasonThrottled, "a CPU limit has stopped the container")
	}
	if r.Quiet.NoInterrupts && len(measured.Disturbers) > 0 {
		against(ReasonInterrupted, "interrupts came to its CPUs from "+strings.Join(measured.Disturbers, ", "))
	}
	for _, feature := range r.Quiet.Features() {
		// The condition of interrupts has their fault.
		if fault := faults[feature]; fault != "" && feature != contract.FeatureInterrupts {
			against(ReasonFault, fmt.Sprintf("nri-actuator could not write a value of %s: %s", feature, contract.Excerpt(fault, maxFault)))
		}
	}
	if reason == "" {
		return Condition{metav1.ConditionTrue, ReasonQuiet, measured.String()}
	}
	return Condition{metav1.ConditionFalse, reason, strings.Join(found, "; ") + "; " + measured.String()}
}

func (f QuietFacts) interrupts(cpus contract.CPUSet) Condition {
	fixed, fault := f.Fixed, f.Faults[contract.FeatureInterrupts]
	var names []string
	for _, name := range slices.Sorted(maps.Keys(fixed)) {
		if on, err := contract.ParseCPUs(fixed[name]); err == nil && on.Overlaps(cpus) {
			// A pod may have named a network device, and so its interrupt.
			names = append(names, fmt.Sprintf("%s (CPUs %s)", contract.Excerpt(name, maxName), on.Intersection(cpus)))
		}
	}
	switch {
	case len(names) > 0:
		return Condition{metav1.ConditionFalse, ReasonFixed,
			"the kernel keeps these interrupts on the claim's CPUs: " + contract.Few(names, maxInterrupts)}
	case fault != "":
		return Condition{metav1.ConditionFalse, ReasonFault,
			"nri-actuator could not write the CPUs of interrupts: " + contract.Excerpt(fault, maxFault)}
	}
	if f.Irqbalance {
		return Condition{metav1.ConditionTrue, ReasonIrqbalance, "irqbalance is running on this node: it may bring interrupts back " +
			"until nri-actuator looks again; give it the claimable CPUs as IRQBALANCE_BANNED_CPULIST, or stop it"}
	}
	return Condition{
		metav1.ConditionTrue, ReasonQuiet,
		"no interrupt of a device comes to the claim's CPUs, except those of the device that the claim asks for",
	}
}
