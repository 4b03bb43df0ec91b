// SPDX-License-Identifier: Apache-2.0

package forecast_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/forecast"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
)

func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

// present is a cluster of three nodes. A claim has most CPUs of the first, and no pod
// tolerates the second.
func present() cluster.Objects {
	return cluster.Objects{
		Slices: []*resourceapi.ResourceSlice{
			clustertest.Slice("node-1", clustertest.Zone("numa-0", "cpu", "4", "memory", "8Gi")),
			clustertest.Slice("node-2", clustertest.Zone("numa-0", "cpu", "8", "memory", "8Gi")),
			clustertest.Slice("node-10", clustertest.Zone("numa-0", "cpu", "4"), clustertest.Zone("numa-1", "cpu", "4", "memory", "8Gi")),
		},
		Claims: []*resourceapi.ResourceClaim{clustertest.Allocated("there", "node-1", "numa-0", "", "cpu", "3")},
		Nodes: []*corev1.Node{
			node("node-10"), node("node-2", corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}), node("node-1"),
		},
	}
}

const template = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: zone}
spec: {spec: {devices: {requests: [{name: zone, exactly: {deviceClassName: dra.cpumem, capacity: {requests: {cpu: "CPUS"}}}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: work}
spec:
  replicas: REPLICAS
  template:
    spec:
      resourceClaims: [{name: zone, resourceClaimTemplateName: zone}]
      containers: [{name: main, image: x, resources: {claims: [{name: zone}]}}]
---
apiVersion: v1
kind: Service
metadata: {name: work}
`

func run(t *testing.T, cpus, replicas string) forecast.Result {
	objects, err := simulation.Read(strings.NewReader(strings.NewReplacer("CPUS", cpus, "REPLICAS", replicas).Replace(template)),
		simulation.ChartClasses())
	require.NoError(t, err)
	require.Equal(t, []string{"1 of kind Service (v1)"}, objects.Skipped())
	now := present()
	first, err := forecast.Run(t.Context(), now, objects)
	require.NoError(t, err)
	// I8: neither the cluster's objects nor the file's are changed.
	again, err := forecast.Run(t.Context(), now, objects)
	require.NoError(t, err)
	require.Equal(t, places(first), places(again))
	return first
}

func places(r forecast.Result) (out []string) {
	for _, c := range r.Claims {
		out = append(out, c.Node+" "+c.Zone)
	}
	return out
}

// Each pod takes from what the cluster and the pods before it have left. Nodes that do
// not take the pod are left out.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		cpus, replicas string
		want           []string
		pending        int
		reason         string
	}{
		"the rest of a node": {"1", "1", []string{"node-1 numa-0"}, 0, ""},
		"the next node":      {"2", "1", []string{"node-10 numa-0"}, 0, ""},
		"all that is left":   {"3", "3", []string{"node-10 numa-0", "node-10 numa-1"}, 1, "cpu: 3 wanted, 1 of 4 free"},
		"more than a zone":   {"5", "1", nil, 1, "cpu: 5 wanted, the whole zone has 4"},
		"one after the other": {
			"2", "5", []string{"node-10 numa-0", "node-10 numa-0", "node-10 numa-1", "node-10 numa-1"}, 1, "does not tolerate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := run(t, c.cpus, c.replicas)
			require.Equal(t, c.want, places(result))
			require.Len(t, result.Pending, c.pending)
			var out strings.Builder
			require.NoError(t, result.Text(&out))
			require.Contains(t, out.String(), c.reason)
			if c.pending > 0 {
				require.Contains(t, out.String(), "pod default/work-")
			}
		})
	}
}

// A class that the cluster lacks is a problem, not a class of the chart.
func TestClassesOfTheCluster(t *testing.T) {
	objects, err := simulation.Read(strings.NewReader(strings.NewReplacer("CPUS", "1", "REPLICAS", "1").Replace(template)), nil)
	require.NoError(t, err)
	result, err := forecast.Run(t.Context(), present(), objects)
	require.NoError(t, err)
	require.Len(t, result.Pending, 1)
	require.Contains(t, result.Pending[0].Answer.Problem, "dra.cpumem")
}

const shared = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: there}
spec: {devices: {requests: [{name: zone, exactly: {deviceClassName: CLASS, capacity: {requests: {cpu: "1"}}}}], CONFIG}}
---
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  resourceClaims: [{name: zone, resourceClaimName: there}]
  containers: [{name: main, image: x, resources: {claims: [{name: zone}]}}]
---
apiVersion: v1
kind: Pod
metadata: {name: second}
spec:
  nodeSelector: {kubernetes.io/hostname: node-10}
  resourceClaims: [{name: zone, resourceClaimName: there}]
  containers: [{name: main, image: x, resources: {claims: [{name: zone}]}}]
`

func sharing(t *testing.T, class, config string) simulation.Objects {
	classes := simulation.ChartClasses()
	classes["gpu"] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}},
	}}
	objects, err := simulation.Read(strings.NewReader(strings.NewReplacer("CLASS", class, "CONFIG", config).Replace(shared)), classes)
	require.NoError(t, err)
	return objects
}

// A pod can run only where its allocated claims are.
func TestSharedClaim(t *testing.T) {
	now := present()
	now.Claims = nil
	result, err := forecast.Run(t.Context(), now, sharing(t, "dra.cpumem", ""))
	require.NoError(t, err)
	require.Equal(t, []string{"node-1 numa-0"}, places(result))
	require.Equal(t, []string{"first"}, result.Claims[0].Pods)
	require.Len(t, result.Pending, 1)
	require.Equal(t, "default/second", result.Pending[0].Pod)
	require.Empty(t, result.Pending[0].Answer.Claims, "the claim has an allocation")
	var out strings.Builder
	require.NoError(t, result.Text(&out))
	require.Contains(t, out.String(), "\npod default/second: no node\nNODE")
	require.Contains(t, out.String(), "the pod's claim default/there is allocated on another node")
}

// A claim that the cluster has would be counted twice.
func TestExisting(t *testing.T) {
	require.Equal(t, []string{"default/there"}, forecast.Existing(present(), sharing(t, "dra.cpumem", "")))
	require.Empty(t, forecast.Existing(cluster.Objects{}, sharing(t, "dra.cpumem", "")))
}

// What the frontend would refuse gets nothing.
func TestWrongParameters(t *testing.T) {
	result, err := forecast.Run(t.Context(), present(), sharing(t, "dra.cpumem", "config: [{opaque: {driver: dra.cpumem, parameters: "+
		"{apiVersion: dra.cpumem/v1alpha1, kind: ClaimParameters, nonsense: 1}}}]"))
	require.NoError(t, err)
	require.Len(t, result.Pending, 2)
	require.Contains(t, result.Pending[0].Answer.Problem, `claim default/there: unknown field "nonsense"`)
	require.Equal(t, []string{"default/there"}, result.Pending[0].Answer.Claims)
}

// Pods with claims for other drivers alone are not this driver's to judge.
func TestOtherDriversAlone(t *testing.T) {
	result, err := forecast.Run(t.Context(), present(), sharing(t, "gpu", ""))
	require.NoError(t, err)
	require.Empty(t, result.Pending)
	require.Empty(t, result.Claims)
}
