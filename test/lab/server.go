// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// Drop makes the server drop fields of devices without an error, as for fields that
// it does not know or has no feature gate for. drop removes the fields.
func (a *API) Drop(drop func(*resourceapi.Device)) {
	a.Client.PrependReactor("*", "resourceslices", func(action ktesting.Action) (bool, kruntime.Object, error) {
		write, ok := action.(ktesting.CreateAction)
		if !ok || !slices.Contains([]string{"create", "update"}, action.GetVerb()) {
			return false, nil, nil
		}
		// A copy, because the client compares the answer with the original.
		s := write.GetObject().(*resourceapi.ResourceSlice).DeepCopy()
		for i := range s.Spec.Devices {
			drop(&s.Spec.Devices[i])
		}
		a.name(s)
		a.writes.Add(1)
		if action.GetVerb() == "update" {
			return true, s, a.Client.Tracker().Update(action.GetResource(), s, "")
		}
		return true, s, a.Client.Tracker().Create(action.GetResource(), s, "")
	})
}

// RefuseSlices makes the server refuse each slice until the returned function is
// called.
func (a *API) RefuseSlices() (allow func()) {
	a.refusesSlices.Store(true)
	return func() { a.refusesSlices.Store(false) }
}

// DropStatus makes the server drop the status of devices in claims.
func (a *API) DropStatus() {
	a.Client.PrependReactor("patch", "resourceclaims", func(action ktesting.Action) (bool, kruntime.Object, error) {
		claim, err := a.Client.Tracker().Get(action.GetResource(), namespace, action.(ktesting.PatchAction).GetName())
		return true, claim, err
	})
}

// StatusWrites returns the number of the driver's writes of claims' status.
func (a *API) StatusWrites() int {
	count := 0
	for _, action := range a.Client.Actions() {
		if action.Matches("patch", "resourceclaims/status") {
			count++
		}
	}
	return count
}

// WaitStatus waits until the Ready condition of a claim with one device has this
// state and reason, and returns the device's entry.
func (n *Node) WaitStatus(claim, state, reason string) resourceapi.AllocatedDeviceStatus {
	n.t.Helper()
	return n.waitCondition(claim, "Ready", state, reason)
}

// WaitProtection waits until the condition about memory protection has this state
// and reason, and returns its message.
func (n *Node) WaitProtection(claim, state, reason string) string {
	n.t.Helper()
	status := n.waitCondition(claim, "MemoryProtectionEffective", state, reason)
	return meta.FindStatusCondition(status.Conditions, "MemoryProtectionEffective").Message
}

func (n *Node) waitCondition(claim, kind, state, reason string) resourceapi.AllocatedDeviceStatus {
	n.t.Helper()
	var got resourceapi.AllocatedDeviceStatus
	n.eventually(kind+" of claim "+claim, func() error {
		devices := n.API.ReadClaim(claim).Status.Devices
		if len(devices) != 1 {
			return fmt.Errorf("%d entries", len(devices))
		}
		got = devices[0]
		if c := meta.FindStatusCondition(got.Conditions, kind); c == nil || string(c.Status) != state || c.Reason != reason {
			return fmt.Errorf("conditions %+v", got.Conditions)
		}
		return nil
	})
	return got
}

// WaitEvents waits until the node has count events with the reason, and returns
// their notes.
func (n *Node) WaitEvents(reason string, count int) []string {
	n.t.Helper()
	var notes []string
	n.eventually("events "+reason, func() error {
		list, err := n.API.Client.EventsV1().Events("default").List(n.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		notes = nil
		for _, e := range list.Items {
			if e.Reason == reason && e.Regarding.Kind == "Node" && e.Regarding.Name == NodeName {
				notes = append(notes, e.Note)
			}
		}
		if len(notes) != count {
			return fmt.Errorf("%d events, want %d: %q", len(notes), count, notes)
		}
		return nil
	})
	return notes
}

// NotReady waits until the frontend takes no new claims.
func (n *Node) NotReady() {
	n.t.Helper()
	n.eventually("the frontend to take no new claims", func() error {
		if n.frontend.ready() == nil {
			return errors.New("it is ready")
		}
		return nil
	})
}

// WaitMetric waits until a metric of the frontend has the value; labels have the
// form name=value.
func (n *Node) WaitMetric(value float64, name string, labels ...string) {
	n.t.Helper()
	s, ok := n.frontend.(*served)
	require.True(n.t, ok, "the embedded frontend has no metrics")
	n.eventually(name, func() error {
		got, err := metric(s.registry, name, labels)
		if err == nil && got != value {
			err = fmt.Errorf("%s%q is %v, want %v", name, labels, got, value)
		}
		return err
	})
}

func metric(registry *prometheus.Registry, name string, labels []string) (float64, error) {
	families, err := registry.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if family.GetName() == name && slices.Equal(have, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), nil
			}
		}
	}
	return 0, errors.New("no metric " + name + "{" + strings.Join(labels, ",") + "}")
}

// ChangeMachine changes the machine of the running node: CPUs may go offline and
// page pools change their size.
func (n *Node) ChangeMachine(spec topologytest.Spec) {
	n.t.Helper()
	n.spec, n.machine, n.inventory = spec, spec.Machine(), nil
	n.writeMachine()
	n.plug()
	n.published = ""
}
