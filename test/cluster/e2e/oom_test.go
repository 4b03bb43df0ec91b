// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// meminfo returns a number of a meminfo file, in bytes if it has a unit. id is the
// NUMA node's, -1 for the machine.
func (s suite) meminfo(t *testing.T, id int, name string) int64 {
	t.Helper()
	path := "/proc/meminfo"
	if id >= 0 {
		path = fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", id)
	}
	for line := range strings.Lines(s.file(t, path)) {
		_, value, found := strings.Cut(line, name+":")
		if !found {
			continue
		}
		value, kB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		n, err := strconv.ParseInt(value, 10, 64)
		require.NoError(t, err, line)
		if kB {
			n <<= 10
		}
		return n
	}
	t.Fatalf("%s has no line of %s", path, name)
	return 0
}

// oomScore returns the oom_score_adj of the first process of the pod's container.
func (s suite) oomScore(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	pid, _, _ := strings.Cut(s.cgroup(t, p, "main", "cgroup.procs"), "\n")
	return s.file(t, "/proc/"+pid+"/oom_score_adj")
}

// A81: the node runs out of memory, and no pod requests any in its spec. The kernel
// kills pods without a claim, although each of them is smaller than the pod that
// uses nearly all of its claim. Kubelet's eviction, which looks at the spec, would
// come first: it is switched off. The limit is kubelet's, on all pods together: a
// node without any memory drops the pages of all running programs first, and an
// emulated node then does nothing but read them again.
func TestA81_TheNodeTakesWhoClaimedNothing(t *testing.T) {
	longOnly(t)
	const mib = 1 << 20
	s := theSuite
	s.kubelet(t, map[string]any{
		"evictionHard":   map[string]any{"memory.available": "0%"},
		"systemReserved": map[string]any{"memory": "1400Mi"}, // 512Mi of it are hugepages
	})
	pages := s.meminfo(t, 1, "HugePages_Total") * 2 * mib
	claimed := (s.meminfo(t, 1, "MemTotal") - pages) / 2 / mib
	used, each := claimed*9/10, claimed/2
	s.claim(t, "a81", "numa-1", capacity{"memory": fmt.Sprintf("%dMi", claimed)})
	never := func(p *corev1.Pod) *corev1.Pod { p.Spec.RestartPolicy = corev1.RestartPolicyNever; return p }
	p := s.run(t, never(pod("a81", []string{"fill", fmt.Sprintf("%dMi", used), "sleep"}, "a81")))
	require.Equal(t, corev1.PodQOSBestEffort, p.Status.QOSClass)
	s.lines(t, "a81", "fill")
	require.Equal(t, strconv.FormatInt(1000-1000*claimed*mib/s.meminfo(t, -1, "MemTotal"), 10), s.oomScore(t, p))

	// One pod more than fits.
	var others []string
	for range s.meminfo(t, -1, "MemAvailable")/(each*mib) + 1 {
		name := fmt.Sprintf("a81-other-%d", len(others))
		s.create(t, never(pod(name, []string{"grow", fmt.Sprintf("%dMi", each), "64Mi", "100ms", "sleep"})))
		others = append(others, name)
		eventually(t, name+" starts", func(ctx context.Context) error {
			other, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions)
			if err != nil {
				return err
			}
			for _, c := range other.Status.ContainerStatuses {
				if c.State.Running != nil || c.State.Terminated != nil {
					return nil
				}
			}
			return fmt.Errorf("its containers are %+v", other.Status.ContainerStatuses)
		})
	}
	eventually(t, "one of "+strings.Join(others, ", ")+" ends", func(ctx context.Context) error {
		for _, name := range others {
			other, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions)
			if err != nil {
				return err
			}
			for _, c := range other.Status.ContainerStatuses {
				if c.State.Terminated != nil {
					t.Logf("%s: %s, exit code %d", name, c.State.Terminated.Reason, c.State.Terminated.ExitCode)
					require.EqualValues(t, 137, c.State.Terminated.ExitCode)
					return nil
				}
			}
		}
		return errors.New("all run")
	})
	p, err := s.client.CoreV1().Pods("default").Get(t.Context(), "a81", getOptions)
	require.NoError(t, err)
	require.Equal(t, corev1.PodRunning, p.Status.Phase, "%+v", p.Status)
	require.Equal(t, "0", s.kills(t, p), "of the container with the claim")
}

// kills returns how many processes of the pod's container the kernel has killed for
// lack of memory.
func (s suite) kills(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	for line := range strings.Lines(s.cgroup(t, p, "main", "memory.events")) {
		if count, found := strings.CutPrefix(line, "oom_kill "); found {
			return strings.TrimSpace(count)
		}
	}
	t.Fatal("memory.events has no oom_kill")
	return ""
}
