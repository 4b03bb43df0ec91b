// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// A05: the nodes lose power and come back with 2 MiB less memory in each NUMA node and an
// empty CDI directory. Kubelet asks for the claims again. Allocations and devices are the
// same, except for the devices' memory, and the pods run on CPUs of their zones.
func TestA05_Reboot(t *testing.T) {
	longOnly(t)
	s := theSuite
	zones := map[string]struct{ name, mems, cpus string }{
		node: {"numa-1", "1", "4-7"},
		wide: {"numa-2", "2", "8-11"},
	}
	allocations, slices := map[string]any{}, map[string]resourceapi.ResourceSlice{}
	allocated := func(node string) any {
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "a05-"+node, getOptions)
		require.NoError(t, err)
		return c.Status.Allocation
	}
	for node, zone := range zones {
		s.claim(t, "a05-"+node, zone.name, capacity{"cpu": "2", "memory": "64Mi"})
		s.on(node).create(t, pod("a05-"+node, []string{"view", "sleep"}, "a05-"+node))
	}
	for node := range zones {
		s.running(t, "a05-"+node)
		allocations[node], slices[node] = allocated(node), s.on(node).slice(t)
	}

	var all sync.WaitGroup
	errs := make(chan error, len(zones))
	for node := range zones {
		machine := s.Machine(node)
		machine.MemoryMiB -= 2
		all.Go(func() {
			if err := s.StopNode(t.Context(), node); err != nil {
				errs <- err
				return
			}
			errs <- s.StartNode(t.Context(), node, machine)
		})
	}
	all.Wait()
	for range zones {
		require.NoError(t, <-errs)
	}
	eventually(t, "driver ready after the reboot", s.ready)
	for node, zone := range zones {
		s := s.on(node)
		eventually(t, "container on "+node+" restarted", func(ctx context.Context) error {
			p, err := s.client.CoreV1().Pods("default").Get(ctx, "a05-"+node, getOptions)
			if err != nil {
				return err
			}
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 ||
				p.Status.ContainerStatuses[0].State.Running == nil {
				return fmt.Errorf("container %+v; events: %s", p.Status.ContainerStatuses, s.events(ctx, p.UID))
			}
			return nil
		})
		view := s.lines(t, "a05-"+node, "view")["view"]
		require.Equal(t, 2, cpus(t, view.CPUs).Size())
		require.True(t, cpus(t, view.CPUs).IsSubsetOf(cpus(t, zone.cpus)), "CPUs %s are not of the allocated zone", view.CPUs)
		require.Equal(t, zone.mems, view.Mems)
		require.Equal(t, allocations[node], allocated(node))
	}

	eventually(t, "devices untainted", func(context.Context) error { return s.tainted(t, false) })
	for node := range zones {
		before, after := slices[node].Spec.Devices, s.on(node).slice(t).Spec.Devices
		require.Len(t, after, len(before), node)
		for i := range before {
			was, is := before[i].Capacity["memory"], after[i].Capacity["memory"]
			require.Positive(t, was.Value.Cmp(is.Value),
				"%s: %s has memory %s, had %s", node, after[i].Name, is.Value.String(), was.Value.String())
			before[i].Capacity["memory"] = after[i].Capacity["memory"]
			require.Equal(t, before[i], after[i], "%s: more than the amount of memory has changed", node)
		}
	}
}
