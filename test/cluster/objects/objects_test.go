// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestPodWithClaim(t *testing.T) {
	o := Objects{Client: fake.NewClientset(), Node: "node0"}
	cpus := Claim{
		NUMA: 1, Class: "other", Amounts: Amounts{"cpu": resource.MustParse("2")},
		Parameters: `"cpu":{"isolation":"isolated"}`,
	}
	require.NoError(t, o.Create(t.Context(), "pod",
		Container{Name: "main", Claim: &cpus, Args: []string{"sleep"}}, Container{Name: "other"}))

	claim, err := o.Client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), "pod-main", metav1.GetOptions{})
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters","cpu":{"isolation":"isolated"}}`,
		string(claim.Spec.Devices.Config[0].Opaque.Parameters.Raw))
	require.Equal(t, "other", claim.Spec.Devices.Requests[0].Exactly.DeviceClassName)
	require.Contains(t, claim.Spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression, "numaNode == 1")
	pod, err := o.Pod(t.Context(), "pod")
	require.NoError(t, err)
	require.Equal(t, "pod-main", *pod.Spec.ResourceClaims[0].ResourceClaimName)
	require.Equal(t, "main", pod.Spec.Containers[0].Resources.Claims[0].Name)
	require.Empty(t, pod.Spec.Containers[1].Resources.Claims)
	require.Equal(t, "node0", pod.Spec.NodeSelector[corev1.LabelHostname])

	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = o.Client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, o.Ready(t.Context(), "pod", time.Millisecond))

	require.NoError(t, o.Remove(t.Context(), "pod", "never made"))
	left, err := o.Client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Items)
}

// Another driver's pod and claims come from a file.
func TestCreateFrom(t *testing.T) {
	o := Objects{Client: fake.NewClientset(), Node: "node0"}
	file := []byte(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME-cpus}
spec: {devices: {requests: [{name: cpus, exactly: {deviceClassName: other}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  resourceClaims: [{name: cpus, resourceClaimName: NAME-cpus}, {name: more, resourceClaimTemplateName: template}]
  containers: [{name: main, image: i, resources: {claims: [{name: cpus}]}}]
`)
	require.NoError(t, o.CreateFrom(t.Context(), file, "p"))
	pod, err := o.Pod(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, "p-cpus", *pod.Spec.ResourceClaims[0].ResourceClaimName)
	_, err = o.Client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), "p-cpus", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, o.Remove(t.Context(), "p"))

	for say, bad := range map[string]string{
		"only Pod v1":   "apiVersion: v1\nkind: Secret\n",
		"file of pod p": "kind: Pod\n",
	} {
		require.ErrorContains(t, o.CreateFrom(t.Context(), []byte(bad), "p"), say)
	}
}

func TestEventuallyTellsTheLastAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := Eventually(ctx, "a thing", time.Millisecond, func(context.Context) error {
		if asked++; asked == 3 {
			cancel()
		}
		return errors.New("not yet")
	})
	require.ErrorContains(t, err, "a thing")
	require.ErrorContains(t, err, "not yet")
	require.ErrorIs(t, err, context.Canceled)
}
