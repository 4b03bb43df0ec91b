// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestRecipes runs the commands of the recipes' pages, which apply the files of
// examples/recipes, and checks what the pages promise.
func TestRecipes(t *testing.T) {
	longOnly(t)
	const mi = 1 << 20
	theSuite.configure(t)
	theSuite.alone(t)
	dir := theSuite.workplace(t)
	for file, check := range map[string]func(t *testing.T, s suite, p *corev1.Pod){
		"database.yaml": func(t *testing.T, s suite, p *corev1.Pod) {
			for name, want := range map[string]int{"memory.low": 512 * mi, "memory.max": 768 * mi, "hugetlb.2MB.max": 64 * mi} {
				require.Equal(t, strconv.Itoa(want), s.cgroup(t, p, "database", name), name)
			}
			require.Equal(t, strconv.Itoa(512*mi), s.cgroup(t, p, "", "memory.low"), "of the pod")
			got := s.recipeOutput(t, p.Name, "database")
			require.Equal(t, got["Mems_allowed_list"], s.numaNodeOf(t, got["Cpus_allowed_list"]), "%v", got)
		},
		"packet-processing.yaml": func(t *testing.T, s suite, p *corev1.Pod) {
			got := s.recipeOutput(t, p.Name, "dataplane")
			mounted := false
			for line := range got {
				mounted = mounted || strings.HasPrefix(line, "hugetlbfs /dev/hugepages-2Mi hugetlbfs ")
			}
			require.True(t, mounted, "a hugetlbfs at /dev/hugepages-2Mi: %v", got)
			claimed := cpus(t, got["Cpus_allowed_list"])
			require.Equal(t, 2, claimed.Size(), "%v", got)
			for _, id := range claimed.List() {
				siblings := s.file(t, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", id))
				require.True(t, cpus(t, siblings).IsSubsetOf(claimed), "CPU %d has the siblings %s: %v", id, siblings, got)
			}
		},
		"sidecars.yaml": func(t *testing.T, s suite, p *corev1.Pod) {
			claimed := cpus(t, s.recipeOutput(t, p.Name, "app")["Cpus_allowed_list"])
			require.Equal(t, 2, claimed.Size())
			for _, sidecar := range []string{"proxy", "logs"} {
				pool := cpus(t, s.cgroup(t, p, sidecar, "cpuset.cpus.effective"))
				require.False(t, pool.IsEmpty())
				require.True(t, pool.Intersection(claimed).IsEmpty(), "%s runs on %s, the claim has %s", sidecar, pool, claimed)
			}
		},
		"virtual-machine.yaml": func(t *testing.T, s suite, p *corev1.Pod) {
			got := s.recipeOutput(t, p.Name, "machine")
			for _, name := range []string{"hugetlb.2MB.current", "hugetlb.2MB.max"} {
				require.Equal(t, strconv.Itoa(64*mi), s.cgroup(t, p, "machine", name), name)
			}
			pages := s.cgroup(t, p, "machine", "hugetlb.2MB.numa_stat")
			require.Contains(t, pages, fmt.Sprintf(" N%s=%d", got["Mems_allowed_list"], 64*mi), "%v", got)
			require.Equal(t, got["Mems_allowed_list"], s.numaNodeOf(t, got["Cpus_allowed_list"]), "%v", got)
		},
		"batch.yaml": func(t *testing.T, s suite, p *corev1.Pod) {
			claimed := cpus(t, s.recipeOutput(t, p.Name, "app")["Cpus_allowed_list"])
			require.Equal(t, 2, claimed.Size())
			batch := s.running(t, "batch")
			pool := cpus(t, s.cgroup(t, batch, "batch", "cpuset.cpus.effective"))
			require.False(t, pool.IsEmpty())
			require.True(t, pool.Intersection(claimed).IsEmpty(), "batch runs on %s, the claim has %s", pool, claimed)
			s.remove(t, p.Name)
			eventually(t, "CPUs that batch gets back", func(context.Context) error {
				if now := cpus(t, s.cgroup(t, batch, "batch", "cpuset.cpus.effective")); !claimed.IsSubsetOf(now) {
					return fmt.Errorf("batch runs on %s, the claim had %s", now, claimed)
				}
				return nil
			})
		},
		"two-zones.yaml": func(t *testing.T, s suite, p *corev1.Pod) {
			got := s.recipeOutput(t, p.Name, "app")
			require.Equal(t, "0-1", got["Mems_allowed_list"], "%v", got)
			require.Equal(t, 4, cpus(t, got["Cpus_allowed_list"]).Size(), "%v", got)
			require.Equal(t, "0,1", s.numaNodeOf(t, got["Cpus_allowed_list"]), "%v", got)
		},
	} {
		t.Run(file, func(t *testing.T) {
			template, pods := readRecipe(t, file)
			theSuite.deleteAfter(t, template, pods)
			theSuite.recipePage(t, dir, strings.TrimSuffix(file, ".yaml"))
			check(t, theSuite, theSuite.running(t, pods[0].Name))
		})
	}
	files, err := filepath.Glob(filepath.Join(recipes, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 6+1, "a recipe without a test; alignment.yaml is in TestAlignment")
}

var recipes = filepath.Join("..", "..", "..", "examples", "recipes")

// readRecipe reads a recipe's template and pods.
func readRecipe(t *testing.T, file string) (*resourceapi.ResourceClaimTemplate, []*corev1.Pod) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recipes, file))
	require.NoError(t, err)
	template := &resourceapi.ResourceClaimTemplate{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	require.NoError(t, documents.Decode(template))
	var pods []*corev1.Pod
	for {
		p := &corev1.Pod{}
		if err := documents.Decode(p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		p.Namespace, p.Spec.TerminationGracePeriodSeconds = "default", new(int64)
		pods = append(pods, p)
	}
	require.NotEmpty(t, pods)
	return template, pods
}

// deleteAfter deletes a recipe's objects, which its page creates, at the end of the test.
func (s suite) deleteAfter(t *testing.T, template *resourceapi.ResourceClaimTemplate, pods []*corev1.Pod) {
	t.Cleanup(func() {
		for _, p := range pods {
			s.remove(t, p.Name)
		}
		err := s.client.ResourceV1().ResourceClaimTemplates("default").Delete(context.Background(), template.Name, metav1.DeleteOptions{})
		require.NoError(t, err)
	})
}

// recipeOutput returns the lines "name: value" that the container printed, and other lines
// with an empty value.
func (s suite) recipeOutput(t *testing.T, name, container string) map[string]string {
	t.Helper()
	out := map[string]string{}
	eventually(t, "output of "+name, func(ctx context.Context) error {
		data, err := s.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			out[key] = strings.TrimSpace(value)
		}
		if out["Mems_allowed_list"] == "" {
			return fmt.Errorf("no line of the mems yet: %q", data)
		}
		return nil
	})
	return out
}

// numaNodeOf returns the NUMA nodes of the CPUs, as the kernel lists them.
func (s suite) numaNodeOf(t *testing.T, list string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var nodes []string
	for _, id := range cpus(t, list).List() {
		out, err := s.NodeExec(ctx, s.node, fmt.Sprintf("basename $(ls -d /sys/devices/system/cpu/cpu%d/node*)", id))
		require.NoError(t, err)
		if node := strings.TrimPrefix(strings.TrimSpace(out), "node"); len(nodes) == 0 || nodes[len(nodes)-1] != node {
			nodes = append(nodes, node)
		}
	}
	return strings.Join(nodes, ",")
}
