// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ofPod returns the network policies that select a pod of the DaemonSet.
func ofPod(t *testing.T, all objects, name string) []networkingv1.NetworkPolicySpec {
	t.Helper()
	var found []networkingv1.NetworkPolicySpec
	labels := daemonSet(t, all, name).Spec.Template.Labels
	for _, p := range of[*networkingv1.NetworkPolicy](all) {
		matches := true
		for k, v := range p.Spec.PodSelector.MatchLabels {
			matches = matches && labels[k] == v
		}
		if matches {
			found = append(found, p.Spec)
		}
	}
	return found
}

// A62: without metrics, no pod reaches the daemons over the network, and the actuator
// reaches no pod. Kubelet reaches them: all traffic from a pod's own node is let in.
func TestNetworkIsClosed(t *testing.T) {
	t.Parallel()
	from := "metrics: {enabled: true, from: [{podSelector: {matchLabels: {app: prometheus}}}]}\n"
	for layout, daemonSets := range layouts {
		closed, open := render(t, "layout: "+layout), render(t, from+"layout: "+layout)
		for _, name := range daemonSets.names {
			policies := ofPod(t, closed, name)
			require.Len(t, policies, 1)
			require.Contains(t, policies[0].PolicyTypes, networkingv1.PolicyTypeIngress)
			require.Empty(t, policies[0].Ingress)
			require.Empty(t, policies[0].Egress)
			require.Equal(t, name == "actuator", len(policies[0].PolicyTypes) == 2, "the frontend needs the API server")

			var ports []int
			for _, c := range daemonSet(t, open, name).Spec.Template.Spec.Containers {
				ports = append(ports, int(c.Ports[0].ContainerPort))
				require.Contains(t, c.Args, "--metrics")
			}
			policies = ofPod(t, open, name)
			require.Len(t, policies, 1)
			require.Len(t, policies[0].Ingress, 1)
			require.Equal(t, "prometheus", policies[0].Ingress[0].From[0].PodSelector.MatchLabels["app"])
			var allowed []int
			for _, p := range policies[0].Ingress[0].Ports {
				require.Equal(t, corev1.ProtocolTCP, *p.Protocol)
				allowed = append(allowed, p.Port.IntValue())
			}
			require.ElementsMatch(t, ports, allowed)
		}
	}
	require.Empty(t, of[*networkingv1.NetworkPolicy](render(t, "networkPolicy: {enabled: false}\nmetrics: {enabled: true}")))
}

// An empty list of peers would let all peers in, and a monitor needs metrics.
func TestMetricsAreAskedForWhole(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"metrics: {enabled: true}":                                                 "metrics.from",
		"podMonitor: {enabled: true}":                                              "podMonitor.enabled needs metrics.enabled",
		"serviceMonitor: {enabled: true}":                                          "serviceMonitor.enabled needs metrics.enabled",
		"prometheusRule: {enabled: true}":                                          "prometheusRule.enabled needs metrics.enabled",
		monitored + "podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}": "Prometheus would have each series twice",
	} {
		_, err := helm(t, values, "template", "r", chartDir)
		require.ErrorContains(t, err, want)
	}
}

// The CPU request is the actuator's share of a busy shared pool. With a smaller share
// the actuator may not answer within the runtime's 2 s.
func TestActuatorsShareOfABusyCPU(t *testing.T) {
	t.Parallel()
	for layout, daemonSets := range layouts {
		pod := daemonSet(t, render(t, "layout: "+layout), daemonSets.actuator).Spec.Template.Spec
		request := container(t, pod, "actuator").Resources.Requests[corev1.ResourceCPU]
		require.GreaterOrEqual(t, request.Cmp(resource.MustParse("100m")), 0, request.String())
	}
}

// A runtime that requires the plugin creates the actuator's container without the
// plugin, and no other container of the driver.
func TestRuntimeThatRequiresTheActuator(t *testing.T) {
	t.Parallel()
	const key = "tolerate-missing-plugins.noderesource.dev"
	for layout, daemonSets := range layouts {
		all := render(t, "actuator: {missingPluginAnnotation: "+key+", podAnnotations: {a: b}}\n"+
			"frontend: {podAnnotations: {a: b}}\nlayout: "+layout)
		for _, name := range daemonSets.names {
			annotations := daemonSet(t, all, name).Spec.Template.Annotations
			require.Equal(t, "b", annotations["a"])
			require.NotContains(t, annotations, key)
			if name == daemonSets.actuator {
				require.Equal(t, "true", annotations[key+"/container.actuator"])
			} else {
				require.NotContains(t, annotations, key+"/container.actuator")
			}
		}
		// The Job runs when the actuators are gone.
		require.Equal(t, map[string]string{key + "/container.cleanup": "true"}, of[*batchv1.Job](all)[0].Spec.Template.Annotations)
		without := render(t, "layout: "+layout)
		require.Empty(t, daemonSet(t, without, daemonSets.actuator).Spec.Template.Annotations[key+"/container.actuator"])
		require.Empty(t, of[*batchv1.Job](without)[0].Spec.Template.Annotations)
	}
}
