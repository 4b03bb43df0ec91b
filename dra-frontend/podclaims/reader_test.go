// SPDX-License-Identifier: Apache-2.0

package podclaims_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
)

func TestPod(t *testing.T) {
	name, generated, template, class, always := "by-name", "pod-zone-x1", "zone", "kata", corev1.ContainerRestartPolicyAlways
	limits := func(memory, hugepages string) corev1.ResourceList {
		return corev1.ResourceList{
			"memory": resource.MustParse(memory), "hugepages-2Mi": resource.MustParse(hugepages), "hugepages-3Mi": resource.MustParse("3Mi"),
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "00000000-0000-0000-0000-000000000001"},
		Spec: corev1.PodSpec{
			RuntimeClassName: &class, HostUsers: new(false),
			ResourceClaims: []corev1.PodResourceClaim{
				{Name: "a", ResourceClaimName: &name},
				{Name: "b", ResourceClaimTemplateName: &template},
				{Name: "c", ResourceClaimTemplateName: &template},
			},
			InitContainers: []corev1.Container{
				{Name: "init", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "b"}}}},
				{Name: "sidecar", RestartPolicy: &always},
			},
			Containers: []corev1.Container{{
				Name:         "main",
				VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/huge"}},
				Resources: corev1.ResourceRequirements{
					Limits:   limits("1Gi", "4Mi"),
					Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("512Mi")},
					Claims:   []corev1.ResourceClaim{{Name: "a", Request: "zone"}, {Name: "b"}, {Name: "c"}},
				},
			}},
		},
		Status: corev1.PodStatus{
			QOSClass: corev1.PodQOSBurstable,
			// The entry c needed no claim, so it has no object.
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: &generated}, {Name: "c"}},
		},
	}
	got, err := podclaims.NewReader(fake.NewClientset(pod)).Pod(t.Context(), "default", "p")
	require.NoError(t, err)
	require.Equal(t, decision.Pod{
		Name: "p", RuntimeClass: "kata", UserNamespace: true,
		PodRecord: contract.PodRecord{
			UID: "00000000-0000-0000-0000-000000000001", QOS: contract.LevelBurstable,
			Hugepages: map[string]contract.Limit{"2Mi": 4 << 20},
		},
		Containers: []decision.Container{
			{Name: "init", Init: true, Claims: []decision.ClaimReference{{Claim: "pod-zone-x1"}}},
			{Name: "sidecar", Init: true, BesideMain: true},
			{
				Name: "main", BesideMain: true, MemoryLimit: 1 << 30,
				Resources: oomscore.Resources{
					CPU:    oomscore.Amount{Request: 1500},
					Memory: oomscore.Amount{Request: 512 << 20, Limit: 1 << 30},
				},
				MountPaths: []string{"/huge"}, Hugepages: map[string]int64{"2Mi": 4 << 20},
				Claims: []decision.ClaimReference{{Claim: "by-name", Request: "zone"}, {Claim: "pod-zone-x1"}},
			},
		},
	}, got)
}

func TestWholePod(t *testing.T) {
	pod, err := podclaims.Convert(&corev1.Pod{
		Spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}, Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")},
		}},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable},
	})
	require.NoError(t, err)
	require.EqualValues(t, 2<<30, pod.MemoryLimit)
	require.Equal(t, &oomscore.Resources{CPU: oomscore.Amount{Request: 1000}, Memory: oomscore.Amount{Limit: 2 << 30}}, pod.Resources)
}

func TestCPULimit(t *testing.T) {
	limits := func(cpu string) corev1.ResourceRequirements {
		if cpu == "" {
			return corev1.ResourceRequirements{}
		}
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	for name, c := range map[string]struct {
		pod        string
		memory     bool // the pod has a limit of memory
		init       []string
		containers []string
		want       *contract.CPULimit
	}{
		"no limits":                       {containers: []string{"", ""}},
		"a limit of the pod's memory":     {memory: true, containers: []string{"1", ""}},
		"memory of the pod, all CPUs":     {memory: true, containers: []string{"1", "1"}, want: &contract.CPULimit{Milli: 2000}},
		"one container is unlimited":      {containers: []string{"1", ""}},
		"an init container is unlimited":  {init: []string{""}, containers: []string{"1"}},
		"an init container has the most":  {init: []string{"2"}, containers: []string{"1"}, want: &contract.CPULimit{Milli: 2000}},
		"all containers have limits":      {containers: []string{"1", "500m"}, want: &contract.CPULimit{Milli: 1500}},
		"the pod has a limit":             {pod: "2", containers: []string{"1", ""}, want: &contract.CPULimit{Milli: 2000, Open: true}},
		"each container has a limit too":  {pod: "2", containers: []string{"1", "1"}, want: &contract.CPULimit{Milli: 2000}},
		"all containers have more in sum": {pod: "2", containers: []string{"2", "1"}, want: &contract.CPULimit{Milli: 2000, Open: true}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable}}
			if c.pod != "" {
				whole := limits(c.pod)
				pod.Spec.Resources = &whole
			}
			if c.memory {
				pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
			}
			for _, cpu := range c.init {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Resources: limits(cpu)})
			}
			for _, cpu := range c.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: limits(cpu)})
			}
			got, err := podclaims.Convert(pod)
			require.NoError(t, err)
			require.Equal(t, c.want, got.CPULimit)
		})
	}
}

// What is left to its default is not what a pod asks for.
func TestConvert(t *testing.T) {
	onFailure := corev1.ContainerRestartPolicyOnFailure
	for name, c := range map[string]struct {
		qos  corev1.PodQOSClass
		spec corev1.PodSpec
		want func(*decision.Pod)
	}{
		"guaranteed":  {qos: corev1.PodQOSGuaranteed, want: func(p *decision.Pod) { p.QOS = contract.LevelKubepods }},
		"best effort": {qos: corev1.PodQOSBestEffort, want: func(p *decision.Pod) { p.QOS = contract.LevelBestEffort }},
		"users of the host": {
			qos: corev1.PodQOSBurstable, spec: corev1.PodSpec{HostUsers: new(true)}, want: func(*decision.Pod) {},
		},
		"an init container with a restart policy is no sidecar": {
			qos: corev1.PodQOSBurstable, spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init", RestartPolicy: &onFailure}}},
			want: func(p *decision.Pod) { p.Containers = []decision.Container{{Name: "init", Init: true}} },
		},
		"no hugepages": {
			qos: corev1.PodQOSBurstable, spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("0")},
			}}}},
			want: func(p *decision.Pod) { p.Containers = []decision.Container{{Name: "main", BesideMain: true}} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := decision.Pod{PodRecord: contract.PodRecord{QOS: contract.LevelBurstable}}
			c.want(&want)
			got, err := podclaims.Convert(&corev1.Pod{Spec: c.spec, Status: corev1.PodStatus{QOSClass: c.qos}})
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestUnreadable(t *testing.T) {
	_, err := podclaims.NewReader(fake.NewClientset()).Pod(t.Context(), "default", "p")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	template := "zone"
	_, err = podclaims.Convert(&corev1.Pod{
		Spec:   corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimTemplateName: &template}}},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable},
	})
	require.Error(t, err, "the claim of the template is not made yet")
}

func TestPodWithoutQOSClass(t *testing.T) {
	_, err := podclaims.Convert(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}})
	require.ErrorContains(t, err, `QoS class ""`)
}

func TestNode(t *testing.T) {
	node := func(memory string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
			Capacity:    corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Gi")},
		}}
	}
	got, err := podclaims.NewNode(fake.NewClientset(node("24Gi")), "n").AllocatableMemory(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(24<<30), got)
	_, err = podclaims.NewNode(fake.NewClientset(node("0")), "n").AllocatableMemory(t.Context())
	require.ErrorContains(t, err, "node n has no allocatable memory in its status")
	_, err = podclaims.NewNode(fake.NewClientset(), "n").AllocatableMemory(t.Context())
	require.ErrorContains(t, err, "read node n")
}
