// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Reasons of findings about quiet CPUs.
const (
	ReasonQuiet     = "Quiet"
	ReasonFixed     = "InterruptsFixed"
	ReasonFault     = "NotWritten"
	ReasonNoQuota   = "NoQuota"
	ReasonThrottled = "CPULimit"
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
}

// maxInterrupts bounds the names in a message.
const maxInterrupts = 8

// CheckQuiet returns what is known about the results that have a promise or a limit. fixed
// are the interrupts that the actuator could not move, with their CPUs; faults are the
// kernel's words about values that it could not write, by feature.
func CheckQuiet(claims []contract.ClaimRecord, fixed, faults map[string]string) map[contract.Key]Quiet {
	all := make(map[contract.Key]Quiet)
	for _, c := range claims {
		for i, r := range c.Results {
			var q Quiet
			if r.Quiet.NoInterrupts {
				q.Interrupts = interrupts(r.Decision.CPUs, fixed, faults[contract.FeatureInterrupts])
			}
			switch limit := r.Quiet.LimitMilli; {
			case r.Decision.Quota == contract.QuotaNone:
				q.Quota = Condition{metav1.ConditionTrue, ReasonNoQuota, "no CPU limit throttles the container"}
			case limit > 0:
				q.Quota = Condition{metav1.ConditionFalse, ReasonThrottled, fmt.Sprintf(
					"a CPU limit of %dm throttles a container that has CPUs %s alone: leave the limit out, or set the claim parameter cpu.quota to none",
					limit, r.Decision.CPUs)}
			}
			if q != (Quiet{}) {
				all[contract.Key{ClaimUID: c.UID, Index: i}] = q
			}
		}
	}
	return all
}

func interrupts(cpus contract.CPUSet, fixed map[string]string, fault string) Condition {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(fixed)) {
		if on, err := contract.ParseCPUs(fixed[name]); err == nil && on.Overlaps(cpus) {
			names = append(names, fmt.Sprintf("%.60s (CPUs %s)", name, on.Intersection(cpus)))
		}
	}
	switch {
	case len(names) > 0:
		text := strings.Join(names[:min(len(names), maxInterrupts)], ", ")
		if more := len(names) - maxInterrupts; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return Condition{metav1.ConditionFalse, ReasonFixed, "the kernel keeps these interrupts on the claim's CPUs: " + text}
	case fault != "":
		return Condition{metav1.ConditionFalse, ReasonFault, fmt.Sprintf("nri-actuator could not write the CPUs of interrupts: %.300s", fault)}
	}
	return Condition{
		metav1.ConditionTrue, ReasonQuiet, "no interrupt of a device comes to the claim's CPUs, except the device that it asks for",
	}
}
