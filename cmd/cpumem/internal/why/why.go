// SPDX-License-Identifier: Apache-2.0

// Package why explains why a pod has no node for its claims: for each node, and for each
// of its zones, the first reason for which the scheduler cannot take it. The
// scheduler's own allocator has the last word. The package is pure.
package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// Answer is what keeps claims from being allocated.
type Answer struct {
	// Claims are the claims without an allocation, as namespace/name. They are empty for a
	// pod whose claims all have an allocation.
	Claims []string `json:"claims"`
	// Problem concerns all nodes: a claim asks for something that is nowhere.
	Problem string `json:"problem,omitempty"`
	// Foreign reports whether no claim is for a zone of this driver.
	Foreign bool   `json:"foreign,omitempty"`
	Nodes   []Node `json:"nodes"`
}

// Node is the answer for one node.
type Node struct {
	Name string `json:"name"`
	// Fits reports whether the claims fit on the node at this moment.
	Fits bool `json:"fits"`
	// Reason concerns the node as a whole, or the claims together.
	Reason string `json:"reason,omitempty"`
	// Zones has each request's first reason against each zone, if a request fits into
	// no zone of the node.
	Zones []Zone `json:"zones,omitempty"`
}

// Zone is the first reason that a zone cannot serve a request.
type Zone struct {
	Name string `json:"name"`
	// Request is the claim and its request, as namespace/name request.
	Request string `json:"request"`
	Reason  string `json:"reason"`
}

// Explain explains why claims, none of which has an allocation, are not allocated.
// Without a pod, as for a claim that no pod refers to, nodes are judged by their zones
// alone. allocated are the pod's other claims: the pod can run only where they are.
func Explain(
	ctx context.Context, o cluster.Objects, pod *corev1.Pod, claims, allocated []*resourceapi.ResourceClaim,
) (Answer, error) {
	return explain(ctx, o, pod, claims, allocated, func(Node) bool { return false })
}

// Place is Explain up to the first node on which the claims fit.
func Place(
	ctx context.Context, o cluster.Objects, pod *corev1.Pod, claims, allocated []*resourceapi.ResourceClaim,
) (Answer, error) {
	return explain(ctx, o, pod, claims, allocated, func(n Node) bool { return n.Fits })
}

// explain explains up to the first node that is enough.
func explain(
	ctx context.Context, o cluster.Objects, pod *corev1.Pod, claims, allocated []*resourceapi.ResourceClaim, enough func(Node) bool,
) (Answer, error) {
	a := Answer{Nodes: []Node{}}
	for _, c := range claims {
		a.Claims = append(a.Claims, c.Namespace+"/"+c.Name)
	}
	wanted, err := requestsOf(o.Classes, claims)
	if err != nil {
		a.Problem = err.Error()
		return a, nil
	}
	if !slices.ContainsFunc(wanted, request.ours) {
		a.Foreign = true
		a.Problem = "the claims are for devices of other drivers"
		return a, nil
	}
	usage := cluster.Usage(o)
	if len(usage) == 0 {
		a.Problem = "no node publishes zones: is the driver installed, and are its frontends ready?"
		return a, nil
	}
	a.Problem = unknownCapacities(usage, wanted)
	free, err := free(ctx, o)
	if err != nil {
		return Answer{}, err
	}
	for _, n := range o.Nodes {
		answer := Node{Name: n.Name}
		i := slices.IndexFunc(usage, func(u cluster.Node) bool { return u.Name == n.Name })
		switch {
		case i < 0:
			answer.Reason = "it publishes no zones: no frontend of this driver runs there"
		case usage[i].Problem != "":
			answer.Reason = usage[i].Problem
		default:
			if answer.Reason = cmp.Or(against(ctx, pod, n), elsewhere(allocated, n)); answer.Reason == "" {
				if answer, err = judge(ctx, free, n, usage[i], wanted, claims); err != nil {
					return Answer{}, err
				}
			}
		}
		a.Nodes = append(a.Nodes, answer)
		if enough(answer) {
			break
		}
	}
	return a, nil
}

// Join returns which nodes take a pod whose claims all have an allocation.
func Join(ctx context.Context, o cluster.Objects, pod *corev1.Pod, allocated []*resourceapi.ResourceClaim) Answer {
	a := Answer{Claims: []string{}, Nodes: []Node{}}
	for _, n := range o.Nodes {
		reason := cmp.Or(against(ctx, pod, n), elsewhere(allocated, n))
		a.Nodes = append(a.Nodes, Node{Name: n.Name, Fits: reason == "", Reason: reason})
	}
	return a
}

// judge returns the answer for a node that the pod may run on.
func judge(
	ctx context.Context, free allocation.Free, n *corev1.Node, usage cluster.Node, wanted []request, claims []*resourceapi.ResourceClaim,
) (Node, error) {
	answer := Node{Name: n.Name}
	requests := make(map[string]bool)
	for _, r := range wanted {
		requests[r.whole] = true
	}
	for _, whole := range slices.Sorted(maps.Keys(requests)) {
		zones, fits := []Zone{}, false
		for _, r := range wanted {
			if r.whole != whole {
				continue
			}
			if !r.ours() {
				fits = true // only the allocator knows other drivers
				continue
			}
			for _, z := range usage.Zones {
				reason := r.against(ctx, z)
				fits = fits || reason == ""
				zones = append(zones, Zone{Name: z.Name, Request: r.name, Reason: reason})
			}
		}
		if !fits {
			answer.Zones = append(answer.Zones, zones...)
		}
	}
	if len(answer.Zones) > 0 {
		answer.Reason = "no zone can serve each request"
		if len(requests) == 1 {
			answer.Reason = "no zone can serve the request"
		}
		return answer, nil
	}
	allocations, err := free.Allocate(ctx, n, claims)
	switch {
	case err != nil:
		answer.Reason = contract.Excerpt(err.Error(), maxQuote)
	case len(allocations) > 0:
		answer.Fits = true
	default:
		answer.Reason = together(wanted)
	}
	return answer, ctx.Err()
}

// together explains why requests that fit one by one do not fit together.
func together(wanted []request) string {
	var reasons []string
	others := make(map[string]bool)
	constraints := false
	for _, r := range wanted {
		constraints = constraints || len(r.claim.Spec.Devices.Constraints) > 0
		if !r.ours() {
			others[r.name] = true
		}
	}
	if constraints {
		reasons = append(reasons, "no devices satisfy the claim's constraints together")
	}
	if len(others) > 0 {
		reasons = append(reasons, "another driver's devices do not satisfy its request")
	}
	if len(reasons) == 0 {
		return "each request fits into a zone, but not all of them at once"
	}
	return "each request of this driver fits into a zone, but " + strings.Join(reasons, ", or ")
}

// against returns why the node takes no such pod, whatever its claims.
func against(ctx context.Context, pod *corev1.Pod, n *corev1.Node) string {
	if pod == nil {
		return ""
	}
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != n.Name {
		return "the pod is bound to node " + pod.Spec.NodeName
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); err != nil || !matches {
		return mismatch(pod, n)
	}
	keepsOff := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	taint, untolerated := v1helper.FindMatchingUntoleratedTaint(klog.FromContext(ctx), n.Spec.Taints, pod.Spec.Tolerations, keepsOff, true)
	if untolerated {
		return fmt.Sprintf("the pod does not tolerate the node's taint %s", taint.ToString())
	}
	return ""
}

// elsewhere returns which of the allocated claims the node cannot serve.
func elsewhere(allocated []*resourceapi.ResourceClaim, n *corev1.Node) string {
	for _, c := range allocated {
		required := c.Status.Allocation.NodeSelector
		if required == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(required)
		if err != nil || !selector.Match(n) {
			return fmt.Sprintf("the pod's claim %s/%s is allocated on another node", c.Namespace, c.Name)
		}
	}
	return ""
}

func mismatch(pod *corev1.Pod, n *corev1.Node) string {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return fmt.Sprintf("the node lacks labels of the pod's nodeSelector %s", labels.Set(pod.Spec.NodeSelector))
	}
	return "the node does not match the pod's node affinity"
}

// unknownCapacities names the capacities that no zone of any node has.
func unknownCapacities(usage []cluster.Node, wanted []request) string {
	known := make(map[string]bool)
	for _, n := range usage {
		for _, z := range n.Zones {
			for _, c := range z.Capacities {
				known[c.Name] = true
			}
		}
	}
	var errs []error
	for _, r := range wanted {
		if r.ours() {
			errs = append(errs, r.unknown(known)...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return ""
}

// claimsOf returns the pod's claims, and the problems of its entries whose claim does
// not exist.
func claimsOf(o cluster.Objects, pod *corev1.Pod) (claims []*resourceapi.ResourceClaim, problems []error) {
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, mustCheckOwner, err := resourceclaim.Name(pod, entry)
		switch {
		case errors.Is(err, resourceclaim.ErrClaimNotFound) && entry.ResourceClaimTemplateName != nil:
			problems = append(problems, fmt.Errorf("entry %s: no claim was made of ResourceClaimTemplate %s: "+
				"is the template there, and does the controller manager run?", entry.Name, *entry.ResourceClaimTemplateName))
			continue
		case err != nil:
			problems = append(problems, fmt.Errorf("entry %s: %w", entry.Name, err))
			continue
		case name == nil:
			continue // the pod needs no claim for the entry
		}
		claim := find(o.Claims, pod.Namespace, *name)
		if claim == nil {
			problems = append(problems, fmt.Errorf("entry %s: there is no ResourceClaim %s/%s", entry.Name, pod.Namespace, *name))
			continue
		}
		if mustCheckOwner {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				problems = append(problems, fmt.Errorf("entry %s: %w", entry.Name, err))
				continue
			}
		}
		claims = append(claims, claim)
	}
	return claims, problems
}

func find(claims []*resourceapi.ResourceClaim, namespace, name string) *resourceapi.ResourceClaim {
	i := slices.IndexFunc(claims, func(c *resourceapi.ResourceClaim) bool { return c.Namespace == namespace && c.Name == name })
	if i < 0 {
		return nil
	}
	return claims[i]
}

// driver is this driver's name.
const driver = kubelet.DriverName
