// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A05: the node's plug is pulled and it comes back with 2 MiB less memory. The
// CDI directory is empty then, and kubelet asks again: same devices, same
// allocation, and the pod runs on CPUs of its zone.
func TestA05_Reboot(t *testing.T) {
	s := theSuite
	s.claim(t, "a05", "numa-1", capacity{"cpu": "2", "memory": "64Mi"})
	s.run(t, pod("a05", []string{"view", "sleep"}, "a05"))
	allocated := func() any {
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "a05", metav1.GetOptions{})
		require.NoError(t, err)
		return c.Status.Allocation
	}
	allocation, before := allocated(), s.slices(t)[0].Spec.Devices

	machine := s.Machine(node)
	machine.MemoryMiB -= 2
	require.NoError(t, s.StopNode(t.Context(), node))
	require.NoError(t, s.StartNode(t.Context(), node, machine))
	eventually(t, "driver ready after the reboot", s.ready)
	eventually(t, "container restarted", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, "a05", getOptions)
		if err != nil {
			return err
		}
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("container %+v; events: %s", p.Status.ContainerStatuses, s.events(ctx, p.UID))
		}
		return nil
	})
	view := s.lines(t, "a05", "view")["view"]
	require.Equal(t, 2, cpus(t, view.CPUs).Size())
	require.True(t, cpus(t, view.CPUs).IsSubsetOf(cpus(t, "4-7")), "CPUs %s are not of the allocated zone", view.CPUs)
	require.Equal(t, "1", view.Mems)
	require.Equal(t, allocation, allocated())

	eventually(t, "devices untainted", func(context.Context) error { return s.tainted(t, false) })
	after := s.slices(t)[0].Spec.Devices
	require.Len(t, after, len(before))
	for i := range before {
		require.Equal(t, before[i].Name, after[i].Name)
		wasCPU, isCPU := before[i].Capacity["cpu"].Value, after[i].Capacity["cpu"].Value
		require.Zero(t, wasCPU.Cmp(isCPU))
		was, is := before[i].Capacity["memory"].Value, after[i].Capacity["memory"].Value
		require.Positive(t, was.Cmp(is), "%s has memory %s, had %s", after[i].Name, is.String(), was.String())
	}
}
