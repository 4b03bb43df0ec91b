// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A19: the API server refuses faulty claims, templates and classes when they are
// written, and takes what is right. Nothing is created (dry run).
func TestA19_ClaimPolicy(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t, "claimPolicy.enabled=true", "podClaims.enabled=true")
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(ctx context.Context, amounts capacity, parameters ...string) error {
		claim := newClaim("dra.cpumem", "a19-policy", "", amounts, parameters...)
		_, err := s.client.ResourceV1().ResourceClaims("default").Create(ctx, claim, dryRun)
		return err
	}
	eventually(t, "the policy", func(ctx context.Context) error {
		if create(ctx, capacity{"cpu": "1500m"}) == nil {
			return errors.New("the API server takes a claim of 1500m of cpu")
		}
		return nil
	})
	for name, c := range map[string]struct {
		amounts    capacity
		parameters string
		want       string
	}{
		"a fraction":        {capacity{"cpu": "1500m"}, "", "want a whole number of CPUs"},
		"misspelt":          {capacity{"hugepages-2Mi": "2Mi"}, "", "no zone has hugepages-2Mi"},
		"unknown field":     {capacity{"cpu": "1"}, parameters(`"cpu":{"placment":"spread"}`), "cpu: unknown field placment, want placement, "},
		"unknown value":     {capacity{"cpu": "1"}, parameters(`"cpu":{"placement":"wide"}`), "cpu.placement: want packed, spread"},
		"limit too low":     {capacity{"memory": "1Gi"}, parameters(`"memory":{"limit":"512Mi"}`), "memory.limit is below the claimed memory"},
		"limit as a number": {capacity{"memory": "1Gi"}, parameters(`"memory":{"limit":0}`), "memory.limit: want a quantity"},
	} {
		t.Run(name, func(t *testing.T) {
			var given []string
			if c.parameters != "" {
				given = append(given, c.parameters)
			}
			require.ErrorContains(t, create(t.Context(), c.amounts, given...), c.want)
			template := &resourceapi.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: "a19-policy"},
				Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: newClaim("dra.cpumem", "", "", c.amounts, given...).Spec},
			}
			_, err := s.client.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), template, dryRun)
			require.ErrorContains(t, err, c.want)
		})
	}
	require.NoError(t, create(t.Context(), capacity{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"},
		parameters(`"cpu":{"placement":"spread","wholeCores":true},"memory":{"limit":"2Gi","throttlingFactor":0.9},"hugepages":{"mount":false}`)))
	require.NoError(t, create(t.Context(), capacity{"memory": "1Gi"}, parameters(`"memory":{"limit":2147483648}`)))
	for text, want := range map[string]string{`"cpu":{"cores":"big"}`: "cpu.cores: want any", `"hugepages":{"limits":"unlimited"}`: ""} {
		class := &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: "a19-policy"},
			Spec: resourceapi.DeviceClassSpec{Config: []resourceapi.DeviceClassConfiguration{{
				DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: "dra.cpumem", Parameters: runtime.RawExtension{Raw: []byte(parameters(text))},
				}},
			}}},
		}
		_, err := s.client.ResourceV1().DeviceClasses().Create(t.Context(), class, dryRun)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// A pod's annotation gives one of its containers a claim from a template, and an annotation
// for a container that the pod does not have is refused.
func TestA19_ClaimByAnnotation(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t, "claimPolicy.enabled=true", "podClaims.enabled=true")
	templates := s.client.ResourceV1().ResourceClaimTemplates("default")
	_, err := templates.Create(t.Context(), &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "a19-annotated"},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: newClaim("dra.cpumem", "", "", capacity{"cpu": "1", "memory": "32Mi"}).Spec},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, templates.Delete(context.Background(), "a19-annotated", metav1.DeleteOptions{}))
	})
	annotated := func(container string) *corev1.Pod {
		p := pod("a19-annotated", []string{"mask", "sleep"})
		p.Annotations = map[string]string{"dra.cpumem/claim-template": "a19-annotated"}
		if container != "" {
			p.Annotations["dra.cpumem/container"] = container
		}
		return p
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	eventually(t, "the policies", func(ctx context.Context) error {
		_, err := s.client.CoreV1().Pods("default").Create(ctx, annotated("other"), dryRun)
		if err == nil || !strings.Contains(err.Error(), "names no container of the pod") {
			return fmt.Errorf("the API server says %v", err)
		}
		p, err := s.client.CoreV1().Pods("default").Create(ctx, annotated("main"), dryRun)
		if err == nil && len(p.Spec.ResourceClaims) != 1 {
			err = errors.New("the pod has no entry in resourceClaims")
		}
		return err
	})
	p := s.run(t, annotated(""))
	require.Equal(t, "a19-annotated", *p.Spec.ResourceClaims[0].ResourceClaimTemplateName)
	require.Equal(t, []corev1.ResourceClaim{{Name: "cpumem"}}, p.Spec.Containers[0].Resources.Claims)
	require.Len(t, cpus(t, s.lines(t, "a19-annotated", "mask")["mask"].CPUs).List(), 1)
	require.Equal(t, "33554432", s.cgroup(t, p, "main", "memory.max"))
	s.remove(t, "a19-annotated")
}
