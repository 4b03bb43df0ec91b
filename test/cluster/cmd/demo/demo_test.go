// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const root = "../../../../"

func TestParseExample(t *testing.T) {
	data, err := os.ReadFile(root + example)
	require.NoError(t, err)
	template, pod, err := parseExample(string(data))
	require.NoError(t, err)
	// The promises are about these amounts.
	require.Equal(t, map[string]string{"cpu": "2", "memory": "512Mi", "hugepages_2Mi": "64Mi"}, asked(template))
	require.Equal(t, template.Name, *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName)

	pod = probed(pod, "mask", "sleep")
	c := pod.Spec.Containers[0]
	require.Equal(t, cluster.ProbeImage, c.Image)
	require.Equal(t, []string{"mask", "sleep"}, c.Args)
	require.Empty(t, c.Command)
	require.Equal(t, "zone", c.Resources.Claims[0].Name)

	for name, text := range map[string]string{
		"no objects": "", "claim template only": strings.Split(string(data), "\n---\n")[0], "not YAML": "{",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := parseExample(text)
			require.Error(t, err)
		})
	}
}

// The README shows the requests of the example that the demo applies.
func TestReadmeShowsTheExample(t *testing.T) {
	data, err := os.ReadFile(root + example)
	require.NoError(t, err)
	template, _, err := parseExample(string(data))
	require.NoError(t, err)
	readme, err := os.ReadFile(root + "README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "```yaml\n")
	require.True(t, found, "the README shows no YAML")
	block, _, _ = strings.Cut(block, "```")

	var shown resourceapi.DeviceClaim
	require.NoError(t, yaml.UnmarshalStrict([]byte(block), &shown))
	require.Equal(t, template.Spec.Spec.Devices, shown)
}

func TestCgroupDirectories(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: "containerd://c"}}
	for class, want := range map[corev1.PodQOSClass]string{
		corev1.PodQOSGuaranteed: "/sys/fs/cgroup/kubepods/podu/c",
		corev1.PodQOSBurstable:  "/sys/fs/cgroup/kubepods/burstable/podu/c",
		corev1.PodQOSBestEffort: "/sys/fs/cgroup/kubepods/besteffort/podu/c",
	} {
		pod.Status.QOSClass = class
		require.Equal(t, want, containerDir(pod))
	}
}

// On a kernel that makes partitions, their CPUs stay in the written pool.
func TestPool(t *testing.T) {
	for text, want := range map[string]string{
		`{"shared":{"cpus":"2-7"}}`:                                              "2-7",
		`{"shared":{"cpus":"0-7"},"exclusive":{"":"0-1","kubepods":"0-1"}}`:      "2-7",
		`{"shared":{"cpus":"0-1,4-7"},"exclusive":{"":"0-1","burstable":"0-1"}}`: "4-7",
	} {
		var s state
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		got, err := s.pool()
		require.NoError(t, err)
		require.Equal(t, want, got.String(), text)
	}
	_, err := state{Exclusive: map[string]string{"": "x"}}.pool()
	require.Error(t, err)
}

func TestReport(t *testing.T) {
	var out, progress bytes.Buffer
	r := &report{out: &out, progress: &progress}
	r.heading("What %s", "is")
	r.promise("it holds", []string{"1"}, []string{"1"})
	r.promise("it does not", "0-7", "0-3")
	require.Equal(t, 1, r.kept)
	require.Equal(t, "\n1. What is\n----------\n  [kept]   it holds\n  [BROKEN] it does not: want 0-7, got 0-3\n", out.String())

	_, err := r.clusterLog().Write([]byte("cluster   1.5 s: node0 Ready\n"))
	require.NoError(t, err)
	require.Contains(t, progress.String(), "s]   node0 Ready\n")
}

func TestForms(t *testing.T) {
	require.Equal(t, "536870912 = 512Mi", size("536870912"))
	require.Equal(t, "max", size("max"))
	require.Equal(t, "0", size("0"))
	require.Equal(t, "{\n  \"v\": \"v1\"\n}", pretty(`{"v":"v1"}`))
	require.Equal(t, "no JSON", pretty("no JSON"))

	var s spec
	s.Devices = append(s.Devices, struct {
		Name           string
		ContainerEdits struct{ Env []string }
	}{})
	_, _, err := s.env()
	require.Error(t, err)
	s.Devices[0].ContainerEdits.Env = []string{"OTHER=1", envPrefix + "x_0={}"}
	name, value, err := s.env()
	require.NoError(t, err)
	require.Equal(t, []string{envPrefix + "x_0", "{}"}, []string{name, value})
}
