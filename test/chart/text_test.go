// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// notes returns the output of an install, with the chart's notes.
func notes(t *testing.T, values string) string {
	t.Helper()
	out, err := helm(t, values, "install", "r", chartDir, "--namespace", "ns", "--dry-run=client", "--hide-secret")
	require.NoError(t, err)
	return out
}

// Images have no default. The message names the missing value.
func TestImagesAreRequired(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"separate", "sidecar"} {
		for _, daemon := range []string{"frontend", "actuator"} {
			_, err := helm(t, "layout: "+layout+"\n"+nested(daemon+".image.repository", `""`), "template", "r", chartDir)
			require.ErrorContains(t, err, daemon+".image.repository is required: there are no published images")
		}
	}
}

// logsCommand matches a command that shows a daemon's log, with or without -c.
var logsCommand = regexp.MustCompile(`(?m)^\s*kubectl -n \S+ logs (?:-c (\S+) )?-l ('[^']+'|\S+)(?: -c (\S+))?`)

// Each command for logs in the notes and in docs/getting-started/install.md selects pods of one daemon, which
// have the named container.
func TestLogCommands(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/getting-started/install.md")
	require.NoError(t, err)
	for layout, daemonSets := range layouts {
		texts := map[string]string{
			"notes":                           notes(t, "layout: "+layout),
			"docs/getting-started/install.md": strings.ReplaceAll(string(page), "cpumem-system", "ns"),
		}
		all := render(t, "layout: "+layout)
		for name, text := range texts {
			commands := logsCommand.FindAllStringSubmatch(text, -1)
			require.NotEmpty(t, commands, name)
			for _, c := range commands {
				selector, err := labels.Parse(strings.Trim(c[2], "'"))
				require.NoError(t, err)
				picked := 0
				for _, ds := range daemonSets.names {
					pod := daemonSet(t, all, ds).Spec.Template
					if !selector.Matches(labels.Set(pod.Labels)) {
						continue
					}
					picked++
					if c := c[1] + c[3]; c != "" {
						container(t, pod.Spec, c)
					} else {
						require.Len(t, pod.Spec.Containers, 1, "%s, %s: kubectl would choose a container", name, layout)
					}
				}
				require.Equal(t, 1, picked, "%s, %s: %s", name, layout, c[0])
			}
		}
	}
}

// The notes have the texts that apply to the settings, and no other texts.
func TestNotes(t *testing.T) {
	t.Parallel()
	all := notes(t, "{}")
	for _, text := range []string{
		"pod-security.kubernetes.io/enforce=privileged", "helm test r -n ns", "A Job then deletes", "/var/run/cdi/dra.cpumem-*",
		"the guard in /var/lib/dra-cpumem/bin", "the feature gate DRAConsumableCapacity",
	} {
		require.Contains(t, all, text)
	}
	require.NotContains(t, all, "WARNING")
	require.Contains(t, notes(t, "admissionPolicy: {enabled: false}"), "WARNING: admissionPolicy.enabled")
	require.Contains(t, notes(t, "config: {guard: false}"), "WARNING: the guard is off")
	noGuard := notes(t, "actuator: {guard: {enabled: false}}")
	require.Contains(t, noGuard, "WARNING: the guard is off")
	require.NotContains(t, noGuard, "the guard in")
	require.Contains(t, all, "from Kubernetes 1.37 on it needs featureGates: {MemoryQoS: false}")
	require.Contains(t, notes(t, "config: {memoryQoS: {owner: kubelet}}"), "memoryReservationPolicy: TieredReservation")
	require.NotContains(t, notes(t, "config: {memoryQoS: {owner: none}}"), "MemoryQoS")
	require.NotContains(t, notes(t, "config: {kubeletConfigFile: /var/lib/kubelet/config.yaml}"), "MemoryQoS")
	require.Contains(t, notes(t, "cleanup: {enabled: false}"), "kubectl delete resourceslices")
	require.NotContains(t, notes(t, "test: {enabled: false}"), "helm test")
	require.NotContains(t, all, "required_plugins")
	require.Contains(t, notes(t, "actuator: {missingPluginAnnotation: tolerate.example.org}"),
		"take cpumem out of\nrequired_plugins on every node")
	for name, c := range map[string]struct {
		values string
		warn   bool
	}{
		"one daemon elsewhere":   {"frontend: {nodeSelector: {pool: a}}", true},
		"other tolerations":      {"actuator: {tolerations: []}", true},
		"both elsewhere":         {"frontend: {nodeSelector: {pool: a}}\nactuator: {nodeSelector: {pool: a}}", false},
		"the frontend's pod":     {"layout: sidecar\nfrontend: {nodeSelector: {pool: a}}", false},
		"nothing but the labels": {"frontend: {podLabels: {a: b}}", false},
	} {
		require.Equal(t, c.warn, strings.Contains(notes(t, c.values), "WARNING: nodeSelector, affinity or tolerations"), name)
	}
}

// The pod of `helm test` has the actuator's image and the claim.
func TestPodOfHelmTest(t *testing.T) {
	t.Parallel()
	all := render(t, "actuator: {image: {pullPolicy: Always}}")
	pods := of[*corev1.Pod](all)
	require.Len(t, pods, 1)
	require.Equal(t, pods[0].Spec.ResourceClaims[0].Name, pods[0].Spec.Containers[0].Resources.Claims[0].Name)
	actuator := container(t, daemonSet(t, all, "actuator").Spec.Template.Spec, "actuator")
	require.Equal(t, actuator.Image, pods[0].Spec.Containers[0].Image)
	require.Equal(t, corev1.PullAlways, pods[0].Spec.Containers[0].ImagePullPolicy)
	require.Equal(t, []string{"selftest"}, pods[0].Spec.Containers[0].Args)
	require.Equal(t, map[string]string{"kubernetes.io/os": "linux"}, pods[0].Spec.NodeSelector)
	elsewhere := of[*corev1.Pod](render(t, "frontend: {nodeSelector: {pool: a}, affinity: "+affinity+"}"))[0].Spec
	require.Equal(t, "a", elsewhere.NodeSelector["pool"], "the release's own nodes are tested")
	require.NotNil(t, elsewhere.Affinity.NodeAffinity)
}
