// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func TestReadRefuses(t *testing.T) {
	const podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: "
	for name, c := range map[string]struct{ documents, want string }{
		"no kind": {
			documents: "# empty\n---\napiVersion: v1\n",
			want:      `document 2: apiVersion "v1", kind "": want both`,
		},
		"another kind with pods": {
			documents: "apiVersion: apps/v1\nkind: StatefulSet",
			want:      "kind StatefulSet is not simulated: write its pods",
		},
		"another version": {
			documents: "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim",
			want:      `apiVersion "resource.k8s.io/v1beta1", kind "ResourceClaim": want apiVersion resource.k8s.io/v1`,
		},
		"no YAML":                 {"{", "document 1: "},
		"no object":               {"- a", "document 1: "},
		"unknown field":           {strings.Replace(claim("c", "", ""), "spec:", "spac:", 1), `unknown field "spac"`},
		"a key twice":             {podHead + "{}\nspec: {}", `key "spec" already set`},
		"no name":                 {"apiVersion: v1\nkind: Pod", `document 1: Pod: metadata.name ""`},
		"a name for the terminal": {"apiVersion: v1\nkind: Pod\nmetadata: {name: \"\\e[2J\"}", `Pod: metadata.name "\x1b[2J"`},
		"a namespace for the terminal": {
			documents: "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: \"\\e[2J\"}",
			want:      `Pod p: metadata.namespace "\x1b[2J"`,
		},
		"a request for the terminal": {
			documents: strings.Replace(claim("c", "", ""), "name: zone", `name: "\e[2J"`, 1),
			want:      `ResourceClaim default/c: spec.devices.requests[0]: name "\x1b[2J"`,
		},
		"an empty request": {
			documents: strings.Replace(claim("c", "", ""), "exactly: {deviceClassName: dra.cpumem, capacity: {requests: {}}}", "", 1),
			want:      "requests[0]: zone: want either exactly or firstAvailable",
		},
		"a negative capacity": {claim("c", "cpu: -1", ""), "requests[0]: zone: capacity cpu of -1, want 0 or more"},
		"a negative count": {
			documents: strings.Replace(claim("c", "", ""), "deviceClassName", "count: -1, deviceClassName", 1),
			want:      "requests[0]: zone: count -1",
		},
		"a request twice": {
			documents: strings.Replace(claim("c", "", ""), "[{name: zone", "[{name: zone, exactly: {}}, {name: zone", 1),
			want:      `requests[1]: name "zone" is there twice`,
		},
		"too many requests": {
			documents: strings.Replace(claim("c", "", ""), "[{", "["+strings.Repeat("{}, ", 32)+"{", 1),
			want:      "33 requests, want at most 32",
		},
		"a wrong subrequest": {
			documents: strings.Replace(claim("c", "", ""), "exactly: {deviceClassName: dra.cpumem, capacity: {requests: {}}}",
				"firstAvailable: [{name: a, count: -1}]", 1),
			want: "requests[0]: zone/a: count -1",
		},
		"a subrequest twice": {
			documents: strings.Replace(claim("c", "", ""), "exactly: {deviceClassName: dra.cpumem, capacity: {requests: {}}}",
				"firstAvailable: [{name: a}, {name: a}]", 1),
			want: `zone: firstAvailable[1]: name "a" is there twice`,
		},
		"too many replicas": {
			documents: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 1001, selector: {}, template: {}}",
			want:      "Deployment default/d: spec.replicas 1001, want 0 to 1000",
		},
		"twice":         {claim("c", "", "") + claim("c", "", ""), "document 2: ResourceClaim default/c is there twice"},
		"unknown claim": {pod("p", "c", ""), "Pod default/p: resourceClaims c: ResourceClaim default/c is not in the file"},
		"unknown template": {
			documents: podHead + "{resourceClaims: [{name: c, resourceClaimTemplateName: t}]}",
			want:      "Pod default/p: resourceClaims c: ResourceClaimTemplate default/t is not in the file",
		},
		"neither claim nor template": {podHead + "{resourceClaims: [{name: c}]}", "Pod default/p: resourceClaims[0] c: want either"},
		"an entry without name": {
			documents: podHead + "{resourceClaims: [{resourceClaimName: c}]}",
			want:      `Pod default/p: resourceClaims[0].name ""`,
		},
		"an entry twice": {
			documents: podHead + "{resourceClaims: [{name: c, resourceClaimName: c}, {name: c, resourceClaimName: d}]}",
			want:      `resourceClaims[1].name "c" is there twice`,
		},
		"a container's unknown entry": {
			documents: podHead + "{containers: [{name: app, resources: {claims: [{name: c}]}}]}",
			want:      `container app: resources.claims names "c"`,
		},
		"a pod of a Deployment's name": {
			documents: podHead + "{}\n" +
				"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {selector: {}, template: {}}\n" +
				"---\napiVersion: v1\nkind: Pod\nmetadata: {name: d-0}\nspec: {}",
			want: "Pod default/d-0: is there twice",
		},
		"a claim of a made one's name": {
			documents: claim("p-c", "", "") + podHead + "{resourceClaims: [{name: c, resourceClaimTemplateName: t}]}\n" +
				"---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\nspec: {}",
			want: "Pod default/p: ResourceClaim default/p-c is there twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := simulation.Read(strings.NewReader(c.documents), simulation.ChartClasses())
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The level of a pod's cgroup follows from its resources, as in the cluster.
func TestQOS(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"best effort":      {"containers: [{name: a}]", "besteffort"},
		"guaranteed":       {"containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]", ""},
		"request as limit": {"containers: [{name: a, resources: {requests: {cpu: 1}, limits: {cpu: 1, memory: 1Gi}}}]", ""},
		"no memory":        {"containers: [{name: a, resources: {limits: {cpu: 1}}}]", "burstable"},
		"less than limit":  {"containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}}]", "burstable"},
		"one of two":       {"containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: b}]", "burstable"},
		"an init container": {
			spec: "initContainers: [{name: b}], containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]",
			want: "burstable",
		},
		"the pod's own": {"resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: a}]", ""},
		"zero":          {"containers: [{name: a, resources: {limits: {cpu: 0, memory: 0}}}]", "besteffort"},
	} {
		t.Run(name, func(t *testing.T) {
			// Burstable and besteffort pods have their claim's protection added
			// to their level.
			result := run(t, topologytest.T2().Machine(), config.Default(), claim("c", "memory: 1Gi", ""),
				"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {resourceClaims: [{name: c, resourceClaimName: c}], "+c.spec+"}")
			require.Equal(t, simulation.Allocated, result.Claims[0].Result, result.Claims[0].Reason)
			for _, level := range []string{"burstable", "besteffort"} {
				want := ""
				if level == c.want {
					want = "1073741824"
				}
				require.Equal(t, want, result.NodeState.Ancestors[level]["memory.min"], level)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(claim("c", "cpu: 1", "") + pod("p", "c", "")))
	for _, file := range []string{"latency-critical.yaml", "simulate/node.yaml", "simulate/hybrid.yaml"} {
		data, err := os.ReadFile("../../../../examples/" + file)
		require.NoError(f, err)
		f.Add(data)
	}
	m := topologytest.T1().Machine()
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := simulation.Read(strings.NewReader(string(data)), simulation.ChartClasses())
		if err != nil || len(data) > 10000 {
			return
		}
		result, err := simulation.Run(t.Context(), m, config.Default(), objects, simulation.OtherDrivers{})
		if err != nil {
			return
		}
		require.NoError(t, result.Picture(&strings.Builder{}, simulation.View{Width: 80, Colour: true}))
	})
}
