// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// happened adds a step of the whole node to its history.
func (n *Node) happened(action protocol.Action) { n.o.History.Add(protocol.Event{Action: action}) }

// claims adds a step of each of the claims, in the order in which the frontend takes them.
func (n *Node) claims(action protocol.Action, claims []*resourceapi.ResourceClaim) {
	for _, c := range slices.SortedFunc(slices.Values(claims), func(a, b *resourceapi.ResourceClaim) int {
		return strings.Compare(string(a.UID), string(b.UID))
	}) {
		n.o.History.Add(protocol.Event{Action: action, Subject: string(c.UID)})
	}
}

// scheduled adds the containers of a pod when kubelet first sees the pod.
func (n *Node) scheduled(p *Pod) {
	if n.o.History == nil || p.scheduled {
		return
	}
	p.scheduled = true
	for _, spec := range p.Containers {
		var claims []string
		for _, name := range spec.Claims {
			claims = append(claims, string(n.API.ReadClaim(name).UID))
		}
		n.o.History.Add(protocol.Event{Action: protocol.Scheduled, Subject: stepName(p, spec.Name), Claims: claims})
	}
}

// removed adds the end of a pod. Kubelet may try several times to release its claims.
func (n *Node) removed(p *Pod) {
	if n.o.History == nil || !p.scheduled || p.removed {
		return
	}
	p.removed = true
	for _, spec := range p.Containers {
		n.o.History.Add(protocol.Event{Action: protocol.Removed, Subject: stepName(p, spec.Name)})
	}
}

func stepName(p *Pod, container string) string { return p.UID + "/" + container }

// step adds a step of a container, with its cpuset.
func (c *Container) step(action protocol.Action) {
	if c.n.o.History == nil {
		return
	}
	e := protocol.Event{Action: action, Subject: stepName(c.Pod, c.Name)}
	if action != protocol.Stopped {
		cpus := c.CPUs()
		e.AllCPUs = cpus == "" && len(c.devices) == 0
		if cpus != "" {
			var err error
			e.CPUs, err = contract.ParseCPUs(cpus)
			require.NoError(c.n.t, err)
		}
	}
	c.n.o.History.Add(e)
}

// seenContainers adds what the running containers have after the node state was applied.
func (n *Node) seenContainers() {
	if !n.acting() {
		return
	}
	for _, c := range n.runtime.list() {
		if c.started {
			c.step(protocol.ContainerSeen)
		}
	}
}

// written adds a file of the frontend.
func (n *Node) written(name string, data []byte) {
	if n.o.History == nil {
		return
	}
	if name == contract.NodeFile {
		state, err := contract.DecodeNode(data)
		require.NoError(n.t, err)
		n.o.History.Add(protocol.Event{Action: protocol.NodeWritten, CPUs: state.Shared.CPUs})
		return
	}
	record, err := contract.DecodeClaim(name, data)
	require.NoError(n.t, err)
	n.o.History.Add(protocol.Event{Action: protocol.ClaimWritten, Subject: record.UID, CPUs: record.CPUs()})
}
