// SPDX-License-Identifier: Apache-2.0

// Package oomscore computes the oom_score_adj of a container from requests and
// limits as kubelet does (pkg/kubelet/qos of Kubernetes 1.36). The caller says
// which amounts stand for these: those of claims, too. Pure.
package oomscore

// Values that do not depend on amounts, and the lowest of those that do.
const (
	Guaranteed = -997
	BestEffort = 1000
	// CPUsOnly is that of a container without a memory request.
	CPUsOnly = BestEffort - 1

	lowest = BestEffort + Guaranteed
)

// Amount is the request and the limit of one resource, 0 for none.
type Amount struct{ Request, Limit int64 }

func (a Amount) none() bool { return a == Amount{} }

func (a Amount) guaranteed() bool { return a.Limit > 0 && a.Request == a.Limit }

// Resources are those that a QoS class depends on, CPU in thousandths, memory
// in bytes.
type Resources struct{ CPU, Memory Amount }

func (r Resources) guaranteed() bool { return r.CPU.guaranteed() && r.Memory.guaranteed() }

func (r Resources) none() bool { return r.CPU.none() && r.Memory.none() }

// Container is one container of a pod.
type Container struct {
	Resources
	// Init: it is among the pod's init containers, a sidecar if it also Runs
	// beside the main containers.
	Init, Runs bool
}

// Pod is all that the value of a container depends on.
type Pod struct {
	// Resources are those of the whole pod, nil without; the QoS class follows
	// them then.
	Resources *Resources
	// Containers are in the pod's order, init containers first.
	Containers []Container
}

// Score returns the oom_score_adj of container number i on a node with the
// memory capacity in bytes, which is above 0.
func (p Pod) Score(i int, capacity int64) int {
	switch {
	case p.guaranteed():
		return Guaranteed
	case p.bestEffort():
		return BestEffort
	}
	request := p.Containers[i].Memory.Request
	if p.Containers[i].Init && p.Containers[i].Runs {
		// A sidecar does not go before the containers that it serves.
		request = max(request, p.least())
	}
	// More than all memory is as good as all, and does not overflow.
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

// unassigned is each container's share of what the whole pod requests of
// memory beyond its containers.
func (p Pod) unassigned() int64 {
	if p.Resources == nil {
		return 0
	}
	// Init containers run one after the other, beside the sidecars before them.
	running, most := int64(0), int64(0)
	for _, c := range p.Containers {
		most = max(most, running+c.Memory.Request)
		if c.Runs {
			running += c.Memory.Request
		}
	}
	return max(p.Resources.Memory.Request-max(most, running), 0) / int64(len(p.Containers))
}
