// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func parameters(fields string) string {
	return `{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters",` + fields + `}`
}

// A11, A19: a claim's parameters take effect, and errors in them are in the pod's events.
func TestA19_Parameters(t *testing.T) {
	longOnly(t)
	s := theSuite
	wrong := map[string]struct {
		cpu, parameters string
		say             []string
	}{
		"a19-cores":   {"3", parameters(`"cpu":{"wholeCores":true}`), []string{"3", "2 or 4"}},
		"a19-unknown": {"1", parameters(`"cpu":{"placment":"spread"}`), []string{"cpu.placment"}},
	}
	for name, w := range wrong {
		s.claim(t, name, "numa-0", capacity{"cpu": w.cpu}, w.parameters)
		s.create(t, pod(name, []string{"sleep"}, name))
		s.refused(t, name, w.say...)
		s.remove(t, name)
	}

	s.claim(t, "a19-spread", "numa-1", capacity{"cpu": "2", "memory": "32Mi"},
		parameters(`"cpu":{"placement":"spread"},"memory":{"limit":"64Mi"}`))
	p := s.run(t, pod("a19-spread", []string{"mask", "sleep"}, "a19-spread"))
	got := cpus(t, s.lines(t, "a19-spread", "mask")["mask"].CPUs).List()
	require.Len(t, got, 2)
	require.False(t, s.siblings(t, got[0], "topology/thread_siblings_list").Contains(got[1]), "CPUs %v are of one core", got)
	require.Equal(t, "67108864", s.cgroup(t, p, "main", "memory.max"))
	require.Equal(t, "33554432", s.cgroup(t, p, "main", "memory.low"))
}
