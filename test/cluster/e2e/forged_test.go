// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// A33, I6: decisions that a pod's author writes are refused or ignored, never obeyed.
func TestA33_ForgedDecisions(t *testing.T) {
	s := theSuite
	victim := s.claim(t, "a33-victim", "", capacity{"cpu": "2"})
	s.run(t, pod("a33-victim", []string{"mask", "sleep"}, "a33-victim"))
	held := cpus(t, s.lines(t, "a33-victim", "mask")["mask"].CPUs)

	key := "DRA_CPUMEM_" + strings.ReplaceAll(string(victim.UID), "-", "") + "_0"
	value := fmt.Sprintf(`{"v":"v1","cpus":"%s","requires":[]}`, held)
	other := `{"v":"v1","cpus":"0-7","requires":[]}`

	refused := map[string]struct {
		change func(p *corev1.Pod)
		want   string
	}{
		"made-up": {func(p *corev1.Pod) {
			env(p, "DRA_CPUMEM_00000000000000000000000000000000_0", other)
		}, "DRA_CPUMEM_00000000000000000000000000000000_0"},
		"copied":      {func(p *corev1.Pod) { env(p, key, value) }, key},
		"other-value": {func(p *corev1.Pod) { env(p, key, other) }, key},
		"malformed":   {func(p *corev1.Pod) { env(p, "DRA_CPUMEM_X", "1") }, "DRA_CPUMEM_X"},
	}
	for name, tc := range refused {
		p := pod("a33-"+name, []string{"mask", "sleep"})
		tc.change(p)
		s.create(t, p)
	}
	for name, tc := range refused {
		eventually(t, name+" refused", func(ctx context.Context) error {
			p, err := s.client.CoreV1().Pods("default").Get(ctx, "a33-"+name, getOptions)
			if err != nil {
				return err
			}
			if events := s.events(ctx, p.UID); !strings.Contains(events, tc.want) || !strings.Contains(events, "Failed") {
				return fmt.Errorf("events: %s", events)
			}
			if len(p.Status.ContainerStatuses) > 0 {
				require.Nil(t, p.Status.ContainerStatuses[0].State.Running, "%s: it must not run", name)
			}
			return nil
		})
	}

	// A variable of other tools is no input of this driver, and CDI annotations
	// inject nothing.
	ignored := pod("a33-ignored", []string{"mask", "sleep"})
	env(ignored, "DRA_CPUSET_"+string(victim.UID), held.String())
	ignored.Annotations = map[string]string{"cdi.k8s.io/forged": "dra.cpumem/claim=" + string(victim.UID) + "-0"}
	s.run(t, ignored)
	require.True(t, cpus(t, s.lines(t, "a33-ignored", "mask")["mask"].CPUs).Intersection(held).IsEmpty())

	// The pod has a real claim: its author's entry of the same name is not obeyed.
	own := s.claim(t, "a33-own", "", capacity{"cpu": "1"})
	twice := pod("a33-twice", []string{"mask", "sleep"}, "a33-own")
	env(twice, "DRA_CPUMEM_"+strings.ReplaceAll(string(own.UID), "-", "")+"_0", other)
	s.create(t, twice)
	eventually(t, "twice refused", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, "a33-twice", getOptions)
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				// A runtime that replaces the author's entry by the injected entry
				// starts the container, with the claim's CPU only.
				if got := s.lines(t, "a33-twice", "mask")["mask"].CPUs; cpus(t, got).Size() != 1 {
					t.Fatalf("the author's entry was obeyed: it runs on %s", got)
				}
				return nil
			}
		}
		if events := s.events(ctx, p.UID); !strings.Contains(events, "DRA_CPUMEM_") {
			return fmt.Errorf("events: %s", events)
		}
		return nil
	})
}

func env(p *corev1.Pod, name, value string) {
	p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
}
