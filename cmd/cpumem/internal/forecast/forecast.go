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
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// Result is what the pods would get.
type Result struct {
	// Claims are the requests that would have an allocation.
	Claims []cluster.AllocatedRequest `json:"claims"`
	// Pending are the pods that would have no node.
	Pending []Pending `json:"pending,omitempty"`
}

// Pending is a pod without a node.
type Pending struct {
	// Pod is the pod's namespace/name.
	Pod    string     `json:"pod"`
	Answer why.Answer `json:"answer"`
}

// Run takes the pods in their order. A pod gets the first node that fits, node2 before
// node10; the scheduler may choose another. Pods' requests for CPUs and memory
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
		answer, err := ask(ctx, o, pod, todo, allocated)
		switch {
		case err != nil:
			return Result{}, err
		case answer.Foreign:
			continue
		}
		node := firstFit(o.Nodes, answer)
		if node == nil {
			result.Pending = append(result.Pending, Pending{Pod: pod.Namespace + "/" + pod.Name, Answer: answer})
			continue
		}
		if len(todo) > 0 {
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
	result.Claims = cluster.AllocatedRequests(o, done)
	return result, ctx.Err()
}

// ask returns the first node that takes the pod, after those that do not. todo are the pod's claims without an allocation.
func ask(ctx context.Context, o cluster.Objects, pod *corev1.Pod, todo, allocated []*resourceapi.ResourceClaim) (why.Answer, error) {
	if len(todo) == 0 {
		return why.Join(ctx, o, pod, allocated), nil
	}
	if problem := wrongParameters(todo); problem != "" {
		refused := why.Answer{Problem: problem, Nodes: []why.Node{}}
		for _, c := range todo {
			refused.Claims = append(refused.Claims, c.Namespace+"/"+c.Name)
		}
		return refused, nil
	}
	return why.Place(ctx, o, pod, todo, allocated)
}

// wrongParameters returns why the frontend would refuse the claims, empty if it would
// not.
func wrongParameters(claims []*resourceapi.ResourceClaim) string {
	for _, c := range claims {
		for _, config := range c.Spec.Devices.Config {
			if config.Opaque == nil || config.Opaque.Driver != kubelet.DriverName {
				continue
			}
			if _, err := parameters.Decode(config.Opaque.Parameters.Raw); err != nil {
				return fmt.Sprintf("claim %s/%s: %v", c.Namespace, c.Name, err)
			}
		}
	}
	return ""
}

// Existing returns the claims of the file that the cluster has with an allocation: they
// would be counted twice.
func Existing(o cluster.Objects, planned simulation.Objects) []string {
	var out []string
	for _, pod := range planned.Pods() {
		for _, c := range planned.ClaimsOf(pod) {
			same := func(other *resourceapi.ResourceClaim) bool {
				return other.Namespace == c.Namespace && other.Name == c.Name && other.Status.Allocation != nil
			}
			if name := c.Namespace + "/" + c.Name; slices.ContainsFunc(o.Claims, same) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
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
		if err := cluster.RequestTable(w, r.Claims); err != nil {
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
