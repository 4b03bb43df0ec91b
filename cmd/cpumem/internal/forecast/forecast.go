// SPDX-License-Identifier: Apache-2.0

// Package forecast answers whether pods that do not exist yet would get their
// claims in a cluster as it is now, and from which zones. The scheduler's own
// allocator decides, one pod after the other. The package is pure: package cluster
// reads the cluster, package simulation the pods.
package forecast

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/why"
)

// Result is what the pods would get.
type Result struct {
	// Claims are the requests that would have an allocation.
	Claims []cluster.Claim `json:"claims"`
	// Pending are the pods that would have no node.
	Pending []Pending `json:"pending,omitempty"`
}

// Pending is a pod without a node.
type Pending struct {
	// Pod is the pod's namespace/name.
	Pod    string     `json:"pod"`
	Answer why.Answer `json:"answer"`
}

// Run takes the pods in their order. A pod gets the first node, by name, that fits;
// the scheduler may choose another that fits. Pods' requests for CPUs and memory
// without claims are not counted.
func Run(ctx context.Context, o cluster.Objects, planned simulation.Objects) (Result, error) {
	planned = planned.Clone()
	o.Claims, o.Classes = slices.Clone(o.Claims), planned.Classes()
	o.Nodes = slices.SortedFunc(slices.Values(o.Nodes), func(a, b *corev1.Node) int { return cluster.CompareNames(a.Name, b.Name) })
	var result Result
	var done []*resourceapi.ResourceClaim
	for _, pod := range planned.Pods() {
		claims := planned.ClaimsOf(pod)
		var todo, allocated []*resourceapi.ResourceClaim
		for _, c := range claims {
			if c.Status.Allocation == nil {
				todo = append(todo, c)
			} else {
				allocated = append(allocated, c)
			}
		}
		if len(todo) > 0 {
			answer, err := why.Explain(ctx, o, pod, todo, allocated)
			if err != nil {
				return Result{}, err
			}
			node := firstFit(o.Nodes, answer)
			if node == nil {
				result.Pending = append(result.Pending, Pending{Pod: pod.Namespace + "/" + pod.Name, Answer: answer})
				continue
			}
			if err := why.Allocate(ctx, o, node, todo); err != nil {
				return Result{}, fmt.Errorf("pod %s/%s on node %s: %w", pod.Namespace, pod.Name, node.Name, err)
			}
			o.Claims, done = append(o.Claims, todo...), append(done, todo...)
		}
		for _, c := range claims {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
				Resource: "pods", Name: pod.Name, UID: pod.UID,
			})
		}
	}
	result.Claims = cluster.Claims(o, done)
	return result, ctx.Err()
}

func firstFit(nodes []*corev1.Node, a why.Answer) *corev1.Node {
	for _, n := range a.Nodes {
		if n.Fits {
			return nodes[slices.IndexFunc(nodes, func(node *corev1.Node) bool { return node.Name == n.Name })]
		}
	}
	return nil
}

// Text writes the result for people.
func (r Result) Text(w io.Writer) error {
	if len(r.Claims) > 0 {
		if err := cluster.ClaimTable(w, r.Claims); err != nil {
			return err
		}
	}
	for _, p := range r.Pending {
		fmt.Fprintf(w, "\npod %s: no node\n", p.Pod)
		if err := p.Answer.Text(w); err != nil {
			return err
		}
	}
	return nil
}
