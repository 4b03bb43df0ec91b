// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// Prepare prepares a pod's claims, as kubelet does before it starts the pod. A
// claim that is prepared for another pod needs no call.
func (n *Node) Prepare(p *Pod) error {
	n.t.Helper()
	return n.again(func() error { return n.prepare(p) })
}

// again calls prepare, and again when the actuator is busy, as kubelet does: on a machine
// with much to do, the actuator's operations on cgroups take longer than it allows.
func (n *Node) again(prepare func() error) error {
	for tries := 0; ; tries++ {
		err := prepare()
		if err == nil || tries == 10 || !strings.Contains(err.Error(), "nri-actuator has been busy for") {
			return err
		}
		n.eventually("the actuator to have time", func() error {
			a, err := n.Announcement()
			if err == nil && !a.Connected {
				err = errors.New(a.Disconnected)
			}
			return err
		})
	}
}

func (n *Node) prepare(p *Pod) error {
	n.scheduled(p)
	var claims []*resourceapi.ResourceClaim
	for _, name := range p.Claims() {
		if devices, known := n.prepared[name]; known {
			p.prepared[name] = devices
			continue
		}
		claims = append(claims, n.API.ReadClaim(name))
	}
	if len(claims) == 0 {
		return nil
	}
	n.claims(protocol.PrepareCalled, claims)
	answers, err := n.frontend.prepare(n.t.Context(), claims)
	if err != nil {
		return err
	}
	n.claims(protocol.Answered, claims)
	return n.take(p, claims, answers)
}

// take stores the answers, as kubelet does.
func (n *Node) take(p *Pod, claims []*resourceapi.ResourceClaim, answers map[string]answer) error {
	var errs []error
	for _, c := range claims {
		a, answered := answers[string(c.UID)]
		if !answered {
			return fmt.Errorf("no answer about claim %s", c.Name)
		}
		if a.err != nil {
			errs = append(errs, fmt.Errorf("claim %s: %w", c.Name, a.err))
			continue
		}
		n.prepared[c.Name], p.prepared[c.Name] = a.devices, a.devices
	}
	return errors.Join(errs...)
}

// PrepareAll prepares the claims of many pods at once, with one call for each pod.
func (n *Node) PrepareAll(pods []*Pod) error {
	n.t.Helper()
	return n.again(func() error { return n.prepareAll(pods) })
}

func (n *Node) prepareAll(pods []*Pod) error {
	claims := make([][]*resourceapi.ResourceClaim, len(pods))
	answers, errs := make([]map[string]answer, len(pods)), make([]error, len(pods))
	var calls sync.WaitGroup
	for i, p := range pods {
		for _, name := range p.Claims() {
			claims[i] = append(claims[i], n.API.ReadClaim(name))
		}
		calls.Go(func() { answers[i], errs[i] = n.frontend.prepare(n.t.Context(), claims[i]) })
	}
	calls.Wait()
	for i, p := range pods {
		if errs[i] == nil {
			errs[i] = n.take(p, claims[i], answers[i])
		}
	}
	return errors.Join(errs...)
}

// RestartKubelet makes kubelet prepare all claims again.
func (n *Node) RestartKubelet() {
	n.prepared = make(map[string][]device)
	n.happened(protocol.KubeletRestarted)
}

// Unprepare releases the claims that no other pod uses.
func (n *Node) Unprepare(p *Pod) error {
	n.t.Helper()
	var claims []*resourceapi.ResourceClaim
	for _, name := range p.Claims() {
		c := n.API.ReadClaim(name)
		if !n.usedByOthers(name, p) {
			claims = append(claims, c)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	answers, err := n.frontend.unprepare(n.t.Context(), claims)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range claims {
		err, answered := answers[string(c.UID)]
		if !answered {
			err = errors.New("no answer")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("claim %s: %w", c.Name, err))
			continue
		}
		delete(n.prepared, c.Name)
	}
	return errors.Join(errs...)
}

func (n *Node) usedByOthers(claim string, p *Pod) bool {
	for _, other := range n.pods {
		if other != p && slices.Contains(other.Claims(), claim) {
			return true
		}
	}
	return false
}

// Remove stops a pod's containers, releases and deletes its claims, and deletes the
// pod.
func (n *Node) Remove(p *Pod) error {
	n.t.Helper()
	for _, c := range n.runtime.list() {
		if c.Pod == p {
			c.Stop()
		}
	}
	n.removed(p)
	if err := n.Unprepare(p); err != nil {
		return err
	}
	n.Withdraw(p)
	return nil
}

// Withdraw deletes a pod and its claims without a call to the frontend.
func (n *Node) Withdraw(p *Pod) {
	n.t.Helper()
	for _, name := range p.Claims() {
		if !n.usedByOthers(name, p) {
			n.API.deleteClaim(name)
		}
	}
	n.removePodCgroup(p)
	n.deletePod(p)
}

// devices returns the CDI devices that kubelet requests for a container.
func (p *Pod) devices(c ContainerSpec) []string {
	var ids []string
	for _, ref := range c.Claims {
		claim, request, _ := strings.Cut(ref, "/")
		for _, d := range p.prepared[claim] {
			if request != "" && len(d.requests) > 0 && !slices.Contains(d.requests, request) {
				continue
			}
			for _, id := range d.cdi {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

// CDIDevices returns the CDI devices of a prepared claim of the pod.
func (p *Pod) CDIDevices(claim string) []string {
	return p.devices(ContainerSpec{Claims: []string{claim}})
}

// Health returns a function that waits for the next health report and returns it:
// a message by device name, empty for a healthy device.
func (n *Node) Health() func() map[string]string {
	n.t.Helper()
	s, ok := n.frontend.(*served)
	require.True(n.t, ok, "health is reported through the socket only")
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	n.t.Cleanup(cancel)
	stream, err := s.health.NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{})
	require.NoError(n.t, err)
	return func() map[string]string {
		reply, err := stream.Recv()
		require.NoError(n.t, err)
		report := make(map[string]string)
		for _, d := range reply.GetDevices() {
			report[d.GetDevice().GetDeviceName()] = ""
			if d.GetHealth() != health.HealthStatus_HEALTHY {
				report[d.GetDevice().GetDeviceName()] = d.GetHealth().String() + ": " + d.GetMessage()
			}
		}
		return report
	}
}

// SetKubeletPolicy writes a manager's state file, as a kubelet with that policy
// does.
func (n *Node) SetKubeletPolicy(file, policy string) {
	n.t.Helper()
	require.NoError(n.t, os.WriteFile(n.path(filepath.Join("kubelet", file)), fmt.Appendf(nil, `{"policyName":%q}`, policy), 0o600))
}
