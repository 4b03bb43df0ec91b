// SPDX-License-Identifier: Apache-2.0

// Package oomscore computes the oom_score_adj of a container from requests and
// limits as kubelet does (pkg/kubelet/qos of Kubernetes 1.36). The caller adds
// the amounts of claims. The package neither reads nor writes files.
package oomscore

// Values of oom_score_adj that do not depend on amounts.
const (
	Guaranteed = -997
	BestEffort = 1000
	// CPUsOnly is the value of a container without a memory request.
	CPUsOnly = BestEffort - 1

	// lowest is the lowest value that depends on amounts.
	lowest = BestEffort + Guaranteed
)

// Amount is the request and the limit of one resource, 0 for none.
type Amount struct{ Request, Limit int64 }

func (a Amount) none() bool { return a == Amount{} }

func (a Amount) guaranteed() bool { return a.Limit > 0 && a.Request == a.Limit }

// Resources are the amounts that decide the QoS class: thousandths of CPUs and
// bytes of memory.
type Resources struct{ CPU, Memory Amount }

func (r Resources) guaranteed() bool { return r.CPU.guaranteed() && r.Memory.guaranteed() }

func (r Resources) none() bool { return r.CPU.none() && r.Memory.none() }

// Container is one container of a pod.
type Container struct {
	Resources
	// Init is true for an init container, BesideMain for a container that runs beside
	// the main containers. A sidecar has both.
	Init, BesideMain bool
}

// Pod is the input of Score: a container's value depends on the whole pod.
type Pod struct {
	// Resources are the pod's own, nil for none. If set, only they decide the QoS
	// class.
	Resources *Resources
	// Containers are in the pod's order, init containers first.
	Containers []Container
}

// Score returns the oom_score_adj of container number i on a node with capacity
// bytes of memory, more than 0.
func (p Pod) Score(i int, capacity int64) int {
	switch {
	case p.guaranteed():
		return Guaranteed
	case p.bestEffort():
		return BestEffort
	}
	request := p.Containers[i].Memory.Request
	if p.Containers[i].Init && p.Containers[i].BesideMain {
		// The kernel must not kill a sidecar before the containers that it serves.
		request = max(request, p.least())
	}
	// The capacity is the maximum, so that the product cannot overflow.
	request = min(request+p.unassigned(), capacity)
	return int(min(max(BestEffort-BestEffort*request/capacity, lowest), CPUsOnly))
}

func (p Pod) guaranteed() bool {
	if p.Resources != nil {
		return p.Resources.guaranteed()
	}
	for _, c := range p.Containers {
		if !c.guaranteed() {
			return false
		}
	}
	return true
}

func (p Pod) bestEffort() bool {
	if p.Resources != nil {
		return p.Resources.none()
	}
	for _, c := range p.Containers {
		if !c.none() {
			return false
		}
	}
	return true
}

// least is the smallest memory request of a main container.
func (p Pod) least() int64 {
	least := int64(-1)
	for _, c := range p.Containers {
		if !c.Init && (least < 0 || c.Memory.Request < least) {
			least = c.Memory.Request
		}
	}
	return max(least, 0)
}

// unassigned is each container's share, in bytes, of the pod's own memory
// request beyond the requests of its containers.
func (p Pod) unassigned() int64 {
	if p.Resources == nil {
		return 0
	}
	// An init container runs beside the sidecars before it and alone otherwise.
	running, most := int64(0), int64(0)
	for _, c := range p.Containers {
		most = max(most, running+c.Memory.Request)
		if c.BesideMain {
			running += c.Memory.Request
		}
	}
	return max(p.Resources.Memory.Request-max(most, running), 0) / int64(len(p.Containers))
}
