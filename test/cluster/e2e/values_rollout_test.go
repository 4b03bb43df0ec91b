// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A63: a rolling update of the frontend changes the configuration of the node
// state. However long the old and the new frontend overlap, each update writes the
// node state once, so that no cpuset and no ancestor's file changes twice. A claim
// after the update is prepared.
func TestA63_RollingUpdates(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	s.claim(t, "a63", "numa-1", capacity{"cpu": "1", "memory": "64Mi"})
	held := s.run(t, pod("a63", []string{"mask", "sleep"}, "a63"))
	mine := s.cgroup(t, held, "main", "cpuset.cpus")
	plain := s.run(t, pod("a63-plain", []string{"mask", "sleep"}))
	updates := [][]string{
		{"config.managedCPUs=2-7", "config.sharedPool.mode=fixed"},
		nil,
		{"config.managedCPUs=1-7"},
		{"config.memoryQoS.owner=kubelet"},
		nil,
	}
	for i, values := range updates {
		before := s.nodeState(t).Generation
		s.configure(t, values...)
		eventually(t, "node state of the new configuration", func(context.Context) error {
			if s.nodeState(t).Generation == before {
				return fmt.Errorf("generation %d stands", before)
			}
			return nil
		})
		name := fmt.Sprintf("a63-%d", i)
		s.claim(t, name, "", capacity{"cpu": "1"})
		s.run(t, pod(name, []string{"mask", "sleep"}, name))
		state := s.nodeState(t)
		require.Equal(t, before+2, state.Generation, "values %q: one state for the update, one for the claim", values)
		require.Equal(t, mine, s.cgroup(t, held, "main", "cpuset.cpus"))
		require.Equal(t, state.Shared.CPUs, s.cgroup(t, plain, "main", "cpuset.cpus"))
		require.Equal(t, "1", s.metric(t, "frontend", "cpumem_frontend_active"))
		// Its CPU could be the one that the next configuration takes away.
		s.remove(t, name)
		eventually(t, "claim released", func(context.Context) error {
			if pods := s.nodeState(t).Pods; len(pods) != 1 {
				return fmt.Errorf("%d pods have claims", len(pods))
			}
			return nil
		})
	}
}
