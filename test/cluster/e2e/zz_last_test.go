// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A52, A77: with its pod's token the frontend can write only slices of its own node,
// pool and driver, and only the status of its own devices. The actuator has no token.
func TestA52_Permissions(t *testing.T) {
	s := theSuite
	pods, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var frontend kubernetes.Interface
	for _, p := range pods.Items {
		if strings.Contains(p.Name, "actuator") {
			require.False(t, *p.Spec.AutomountServiceAccountToken)
			for _, v := range p.Spec.Volumes {
				require.Nil(t, v.Projected, "the actuator's pod has a token volume")
			}
			continue
		}
		if p.Spec.NodeName != node {
			continue
		}
		token, err := s.client.CoreV1().ServiceAccounts(namespace).
			CreateToken(t.Context(), p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
					Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID,
				}},
			}, metav1.CreateOptions{})
		require.NoError(t, err)
		config := rest.AnonymousClientConfig(s.config)
		config.BearerToken = token.Status.Token
		frontend, err = kubernetes.NewForConfig(config)
		require.NoError(t, err)
	}
	require.NotNil(t, frontend)
	slice := func(node, pool, driver string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "forged-"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node,
				Pool: resourceapi.ResourcePool{Name: pool, Generation: 1 << 40, ResourceSliceCount: 1},
			},
		}
	}
	for name, forged := range map[string]*resourceapi.ResourceSlice{
		"another node":        slice("node9", "node9", "dra.cpumem"),
		"another node's pool": slice(node, wide, "dra.cpumem"),
		"a pool of no node":   slice(node, "forged", "dra.cpumem"),
		"another driver":      slice(node, node, "gpu.example.com"),
	} {
		_, err := frontend.ResourceV1().ResourceSlices().Create(t.Context(), forged, metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", name, err)
	}
	for _, on := range []string{node, wide} {
		s, name := s.on(on), "a77-"+on
		s.claim(t, name, "", capacity{"cpu": "1"})
		s.run(t, pod(name, []string{"sleep"}, name))
		patches := map[string]string{
			"allocation": `{"status":{"allocation":{"devices":{"config":[` +
				`{"source":"FromClaim","opaque":{"driver":"dra.cpumem","parameters":{}}}]}}}}`,
			"reservedFor": `{"status":{"reservedFor":null}}`,
		}
		if on == wide {
			patches["another node's devices"] = `{"status":{"devices":[{"driver":"dra.cpumem","pool":"` + wide + `","device":"numa-0"}]}}`
		}
		for what, patch := range patches {
			_, err := frontend.ResourceV1().ResourceClaims("default").
				Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
			require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s of a claim on %s: %v", what, on, err)
		}
	}
	_, err = frontend.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = frontend.CoreV1().Nodes().Patch(t.Context(), node, "application/merge-patch+json", []byte(`{}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// A51, second half: helm test passes. Then the chart is uninstalled, which leaves
// no slice; a running pod with a claim keeps its CPUs.
func TestZ_A51_TestAndUninstall(t *testing.T) {
	s := theSuite
	s.configure(t)
	_, err := s.Helm(t.Context(), "test", release, "--namespace", namespace, "--timeout", "4m")
	require.NoError(t, err)

	// I3: nothing is left of any case's claims.
	for name, all := range map[string]string{node: "0-7", wide: "0-15"} {
		s := s.on(name)
		state := s.nodeState(t)
		require.Equal(t, all, state.Shared.CPUs)
		require.Empty(t, state.Pods)
		files, err := s.NodeExec(t.Context(), name, "ls -A /var/run/cdi")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"dra.cpumem-actuator.json", "dra.cpumem-node.json"}, strings.Fields(files))
		// A83: the machine has its former values. TestQuiet_Interrupts compares those of each
		// interrupt: the kernel changes them too when a CPU goes offline.
		mask := strings.Repeat("f", cpus(t, all).Size()/4)
		require.Equal(t, mask, s.file(t, "/proc/irq/default_smp_affinity"))
		require.Equal(t, mask, s.file(t, "/sys/devices/virtual/workqueue/cpumask"))
		latencies := s.file(t, "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us")
		require.Equal(t, slices.Repeat([]string{"0"}, cpus(t, all).Size()), strings.Fields(latencies))
		files, err = s.NodeExec(t.Context(), name, "ls -A /var/lib/kubelet/plugins/dra.cpumem")
		require.NoError(t, err)
		require.NotContains(t, files, "receipts.json")
	}

	s.claim(t, "a51", "", capacity{"cpu": "1"})
	p := s.run(t, pod("a51", []string{"mask", "sleep"}, "a51"))
	mask := s.lines(t, "a51", "mask")["mask"].CPUs
	_, err = s.Helm(t.Context(), "uninstall", release, "--namespace", namespace, "--wait", "--timeout", "4m")
	require.NoError(t, err)
	eventually(t, "no slices", func(context.Context) error {
		if n := len(s.slices(t)); n > 0 {
			return fmt.Errorf("%d slices", n)
		}
		return nil
	})
	require.Equal(t, mask, s.cgroup(t, p, "main", "cpuset.cpus"))

	// Only an installed driver can release the pod's claim. Install again, with
	// both daemons in one pod, which must serve claims as well.
	require.NoError(t, s.install(t.Context(), "layout=sidecar"))
	s.remove(t, "a51")
	s.claim(t, "a51-sidecar", "", capacity{"cpu": "2", "memory": "32Mi"})
	s.run(t, pod("a51-sidecar", []string{"view", "sleep"}, "a51-sidecar"))
	require.Equal(t, 2, cpus(t, s.lines(t, "a51-sidecar", "view")["view"].CPUs).Size())
}
