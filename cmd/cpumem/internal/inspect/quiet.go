// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

// explainQuiet writes a line for each result whose CPUs are to be quiet, and what is
// known against it.
func (d Directory) explainQuiet(w io.Writer, claim string) {
	var fixed, faults map[string]string
	if d.Actuator != nil {
		fixed, faults = d.Actuator.FixedInterrupts, d.Actuator.MachineFaults
	}
	found := health.CheckQuiet(d.Claims, fixed, faults)
	for _, c := range d.Claims {
		for i, r := range c.Results {
			promises := promisesOf(r)
			state := found[contract.Key{ClaimUID: c.UID, Index: i}]
			if !selects(claim, c) || len(promises) == 0 && state == (health.Quiet{}) {
				continue
			}
			if len(promises) > 0 {
				fmt.Fprintf(w, "quiet: claim %s/%s, CPUs %s: %s\n", c.Namespace, c.Name, r.Decision.CPUs, strings.Join(promises, ", "))
			}
			for _, condition := range []health.Condition{state.Interrupts, state.Quota} {
				if condition.Status == metav1.ConditionFalse {
					fmt.Fprintf(w, "quiet: claim %s/%s, CPUs %s: but %s\n", c.Namespace, c.Name, r.Decision.CPUs, condition.Message)
				}
			}
		}
	}
}

// promisesOf names what a result asks for.
func promisesOf(r contract.ResultRecord) []string {
	var all []string
	q := r.Quiet
	switch {
	case q.Device != "":
		all = append(all, "interrupts of "+q.Device+" only")
	case q.NoInterrupts:
		all = append(all, "no interrupts")
	}
	if q.NoWorkQueues {
		all = append(all, "no unbound work queues")
	}
	if r.Decision.Quota == contract.QuotaNone {
		all = append(all, "no CPU limit")
	}
	for _, file := range slices.Sorted(maps.Keys(q.Files)) {
		all = append(all, file+" = "+q.Files[file])
	}
	return all
}
