// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	podresource "k8s.io/component-helpers/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
)

// Report is all that is known about a pod's claims, or about one claim.
type Report struct {
	// Subject is the pod or the claim: pod default/x.
	Subject string `json:"subject"`
	// State is a sentence about it.
	State string `json:"state"`
	// Ended reports whether the pod has ended: its claims may be gone, or have other pods.
	Ended bool `json:"ended,omitempty"`
	// Problems are claims that the pod names and that do not exist.
	Problems []string `json:"problems,omitempty"`
	// Pending explains the claims that have no allocation.
	Pending *Answer `json:"pending,omitempty"`
	// Allocated are the requests that have an allocation.
	Allocated []cluster.AllocatedRequest `json:"allocated,omitempty"`
	// Notes are what other pods may take of the claims' amounts.
	Notes []string `json:"notes,omitempty"`
	// Terminations are the last terminations of the pod's containers that do not run.
	Terminations []string `json:"terminations,omitempty"`
	// Warnings are the last different warnings among the events of a pod that does not
	// run, newest first.
	Warnings []string `json:"warnings,omitempty"`
}

// Pod reports about a pod. events are the pod's warnings.
func Pod(ctx context.Context, o cluster.Objects, pod *corev1.Pod, events []corev1.Event) (Report, error) {
	claims, problems := claimsOf(o, pod)
	r := Report{Subject: fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name), State: stateOf(pod), Ended: ended(pod)}
	r.Terminations = terminations(pod)
	if !runs(pod) {
		r.Warnings = warnings(events)
	}
	if r.Ended {
		r.Allocated = cluster.AllocatedRequests(o, claims)
		return r, nil
	}
	for _, p := range problems {
		r.Problems = append(r.Problems, p.Error())
	}
	if err := r.add(ctx, o, pod, claims); err != nil {
		return r, err
	}
	r.Notes = notRepeated(pod, r.Allocated)
	return r, nil
}

// notRepeated names the claimed amounts that the pod's requests do not repeat: the
// scheduler counts them as free for pods without claims.
func notRepeated(pod *corev1.Pod, claims []cluster.AllocatedRequest) (notes []string) {
	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	sums := make(map[corev1.ResourceName]int64)
	for _, c := range claims {
		// The amounts of a claim that pods share are repeated by one of them, which has the claim before this pod has a node.
		shared := slices.ContainsFunc(c.Pods, func(name string) bool { return name != pod.Name })
		if c.CountedByScheduler || shared {
			continue
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			sums[name] += c.Amounts[string(name)]
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if has := requests[name]; has.CmpInt64(sums[name]) < 0 {
			notes = append(notes, fmt.Sprintf("the pod's claims have %s %s, its spec requests %s: the scheduler may give the difference "+
				"to pods without claims; repeat the claimed amounts in resources.requests",
				exact(resourceapi.QualifiedName(name), sums[name]), name, has.String()))
		}
	}
	return notes
}

// Claim reports about a claim.
func Claim(ctx context.Context, o cluster.Objects, claim *resourceapi.ResourceClaim) (Report, error) {
	r := Report{Subject: fmt.Sprintf("claim %s/%s", claim.Namespace, claim.Name), State: "it is allocated"}
	if claim.Status.Allocation == nil {
		r.State = "it has no allocation: the scheduler makes one when a pod with the claim fits on a node"
	}
	return r, r.add(ctx, o, nil, []*resourceapi.ResourceClaim{claim})
}

// add adds what is known about the claims.
func (r *Report) add(ctx context.Context, o cluster.Objects, pod *corev1.Pod, claims []*resourceapi.ResourceClaim) error {
	unallocated := slices.DeleteFunc(slices.Clone(claims), func(c *resourceapi.ResourceClaim) bool { return c.Status.Allocation != nil })
	allocated := slices.DeleteFunc(slices.Clone(claims), func(c *resourceapi.ResourceClaim) bool { return c.Status.Allocation == nil })
	r.Allocated = cluster.AllocatedRequests(o, allocated)
	if len(unallocated) == 0 {
		return nil
	}
	answer, err := Explain(ctx, o, pod, unallocated, allocated)
	r.Pending = &answer
	return err
}

// ended reports whether no container of the pod starts again.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// stateOf returns a sentence about the pod.
func stateOf(pod *corev1.Pod) string {
	if ended(pod) {
		on := ""
		if pod.Spec.NodeName != "" {
			on = " on node " + pod.Spec.NodeName
		}
		return fmt.Sprintf("it has ended%s, phase %s; claims that were made for it are deleted", on, pod.Status.Phase)
	}
	if pod.Spec.NodeName == "" {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
				return fmt.Sprintf("it has no node; the scheduler says: %s", contract.Excerpt(cmp.Or(c.Message, c.Reason), maxQuote))
			}
		}
		return "it has no node; the scheduler has not looked at it"
	}
	return fmt.Sprintf("it is on node %s, phase %s", pod.Spec.NodeName, pod.Status.Phase)
}

// runs reports whether the pod runs with all of its containers, or has succeeded. The phase
// alone does not show it: it is Running while a container waits for its next start.
func runs(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return true
	case corev1.PodRunning:
		return !slices.ContainsFunc(containersOf(pod), stopped)
	}
	return false
}

func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// stopped reports whether the container waits or has failed.
func stopped(c corev1.ContainerStatus) bool {
	return c.State.Running == nil && (c.State.Terminated == nil || c.State.Terminated.ExitCode != 0)
}

// maxTermination bounds the message of a termination, in bytes. The runtime's own words
// come before the words of the guard that refuses a container.
const maxTermination = 1000

func terminations(pod *corev1.Pod) (out []string) {
	for _, c := range containersOf(pod) {
		last := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		if last == nil || !stopped(c) {
			continue
		}
		text := fmt.Sprintf("container %s: %s, exit code %d", c.Name, contract.Excerpt(last.Reason, maxQuote), last.ExitCode)
		if last.Message != "" {
			text += ": " + contract.Excerpt(last.Message, maxTermination)
		}
		out = append(out, text)
	}
	return out
}

// maxWarnings is how many different warnings are shown.
const maxWarnings = 3

func warnings(events []corev1.Event) (out []string) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return seen(b).Compare(seen(a)) })
	for _, e := range events {
		w := contract.Excerpt(e.Reason+": "+e.Message, maxQuote)
		if !slices.Contains(out, w) && len(out) < maxWarnings {
			out = append(out, w)
		}
	}
	return out
}

// seen returns when an event was seen last. The two APIs for events have different
// fields for the time.
func seen(e corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// Text writes the report for people.
func (r Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n", r.Subject, r.State)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	if r.Pending == nil && len(r.Allocated) == 0 && len(r.Problems) == 0 && !r.Ended {
		fmt.Fprintln(w, "it has no claim for zones of this driver")
	}
	if r.Pending != nil {
		if err := r.Pending.Text(w); err != nil {
			return err
		}
	}
	for _, c := range r.Allocated {
		fmt.Fprintln(w)
		if err := c.Details(w); err != nil {
			return err
		}
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	if len(r.Terminations) > 0 {
		fmt.Fprintln(w, "\nlast terminations of containers that do not run:")
	}
	for _, termination := range r.Terminations {
		fmt.Fprintf(w, "  %s\n", termination)
	}
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w, "\nwarnings in the pod's events, newest first:")
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "  %s\n", warning)
	}
	return nil
}

// Text writes the answer for people.
func (a Answer) Text(w io.Writer) error {
	if len(a.Claims) > 0 {
		fmt.Fprintf(w, "\nnot allocated: %s\n", strings.Join(a.Claims, ", "))
	}
	if a.Problem != "" {
		fmt.Fprintf(w, "problem: %s\n", a.Problem)
	}
	if len(a.Nodes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tZONE\tREASON")
	for _, n := range a.Nodes {
		switch {
		case n.Fits:
			fmt.Fprintf(t, "%s\t%s\t%s\n", n.Name, "-", "the claims fit here now; if the pod stays pending, the scheduler's message has the reason")
		case len(n.Zones) == 0:
			fmt.Fprintf(t, "%s\t%s\t%s\n", n.Name, "-", n.Reason)
		}
		for _, z := range n.Zones {
			reason := z.Reason
			if reason == "" {
				reason = "fits"
			}
			if len(a.Claims) > 1 || a.severalRequests() {
				reason = z.Request + ": " + reason
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", n.Name, z.Name, reason)
		}
	}
	return t.Flush()
}

func (a Answer) severalRequests() bool {
	requests := make(map[string]bool)
	for _, n := range a.Nodes {
		for _, z := range n.Zones {
			requests[z.Request] = true
		}
	}
	return len(requests) > 1
}
