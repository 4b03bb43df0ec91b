// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// The frontend takes a simulated claim from a template for one: a node has as many of these as it has room for.
func TestClaimFromATemplateIsItsPods(t *testing.T) {
	objects, err := Read(strings.NewReader(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: zone, exactly: {deviceClassName: dra.cpumem, capacity: {requests: {cpu: 1}}}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: c, resourceClaimTemplateName: t}]
  containers: [{name: app, image: app, resources: {claims: [{name: c}]}}]
`), ChartClasses())
	require.NoError(t, err)
	claim := objects.claims[key{"default", "p-c"}]
	require.NotNil(t, claim)
	require.True(t, decision.Read(claim, nil, parameters.Settings{}).OwnedByPod)
}
