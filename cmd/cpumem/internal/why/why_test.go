// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/why"
)

// class takes each zone.
func class() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "dra.cpumem"},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "dra.cpumem"`},
		}}},
	}
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": name}}}
}

// objects are a node with two zones: one with 4 CPUs, of which a claim has 3, and one with
// 8 CPUs.
func objects() cluster.Objects {
	return cluster.Objects{
		Nodes:   []*corev1.Node{node("a")},
		Classes: []*resourceapi.DeviceClass{class()},
		Slices: []*resourceapi.ResourceSlice{clustertest.Slice("a",
			clustertest.Zone("numa-0", "cpu", "4", "memory", "8Gi"),
			clustertest.Zone("numa-1", "cpu", "8", "memory", "8Gi", "hugepages_2Mi", "64Mi"))},
		Claims: []*resourceapi.ResourceClaim{clustertest.Allocated("taken", "a", "numa-0", "", "cpu", "3", "memory", "1Gi")},
	}
}

func podWith(claims ...*resourceapi.ResourceClaim) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c.Name, ResourceClaimName: &c.Name})
	}
	return pod
}

// A pending pod's report names each node's and each zone's first reason.
func TestPendingPod(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted []string
		change func(*cluster.Objects, *corev1.Pod, *resourceapi.ResourceClaim)
		want   []string
	}{
		"claimed by others": {
			wanted: []string{"cpu", "9"},
			want:   []string{"a      numa-0   cpu: 9 wanted, the whole zone has 4", "a      numa-1   cpu: 9 wanted, the whole zone has 8"},
		},
		"not free": {
			wanted: []string{"cpu", "2", "memory", "7.5Gi", "hugepages_2Mi", "64Mi"},
			want:   []string{"numa-0   cpu: 2 wanted, 1 of 4 free"},
			change: func(o *cluster.Objects, _ *corev1.Pod, _ *resourceapi.ResourceClaim) {
				o.Claims = append(o.Claims, clustertest.Allocated("pages", "a", "numa-1", "", "hugepages_2Mi", "2Mi"))
			},
		},
		"rounded up": {
			wanted: []string{"cpu", "8500m"},
			want:   []string{"numa-1   cpu: 9 (rounded up from 8500m) wanted, the whole zone has 8"},
		},
		"memory rounded up": {
			wanted: []string{"memory", "8589934593"},
			want:   []string{"numa-1   memory: 8193Mi (rounded up from 8589934593) wanted, the whole zone has 8Gi"},
		},
		"the largest amount": {
			wanted: []string{"memory", "9223372036854775807"},
			want:   []string{"numa-1   memory: 9223372036854775807 wanted, the whole zone has 8Gi"},
		},
		"more than an int64": {
			wanted: []string{"memory", "10E"},
			want:   []string{"numa-1   memory: 10E wanted, the whole zone has 8Gi"},
		},
		"misspelt capacity": {
			wanted: []string{"hugepages-2Mi", "2Mi"},
			want: []string{
				"problem: default/claim zone: no zone has a capacity hugepages-2Mi: did you mean hugepages_2Mi?",
				"it has no capacity hugepages-2Mi",
			},
		},
		"capacity of no zone": {
			wanted: []string{"bandwidth", "1"},
			want:   []string{"no zone has a capacity bandwidth: there are cpu, hugepages_2Mi, memory"},
		},
		"attribute that is missing": {
			wanted: []string{"cpu", "1"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{
					CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["dra.cpumem"].sockets == 1`},
				}}
			},
			want: []string{"numa-0   the selector of the request fails: no such key: sockets"},
		},
		"selector": {
			wanted: []string{"cpu", "1"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{
					CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["dra.cpumem"].zone == "socket"`},
				}}
			},
			want: []string{`numa-1   the selector of the request does not take it: device.attributes["dra.cpumem"].zone == "socket"`},
		},
		"broken selector": {
			wanted: []string{"cpu", "1"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{
					CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes[`},
				}}
			},
			want: []string{"problem: default/claim zone: selector of the request: "},
		},
		"class": {
			wanted: []string{"cpu", "1"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				c.Spec.Devices.Requests[0].Exactly.DeviceClassName = "dra.cpumen"
			},
			want: []string{"problem: default/claim zone: there is no DeviceClass dra.cpumen: did you mean dra.cpumem?"},
		},
		"device taint": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, _ *resourceapi.ResourceClaim) {
				for i := range o.Slices[0].Spec.Devices {
					o.Slices[0].Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "dra.cpumem/x", Value: "y", Effect: "NoSchedule"}}
				}
			},
			want: []string{"numa-0   taint dra.cpumem/x=y:NoSchedule, which the request does not tolerate"},
		},
		"node taint": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, _ *resourceapi.ResourceClaim) {
				o.Nodes[0].Spec.Taints = []corev1.Taint{
					{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: "key", Value: "v", Effect: "NoSchedule"},
				}
			},
			want: []string{"a      -      the pod does not tolerate the node's taint key=v:NoSchedule"},
		},
		"node selector": {
			wanted: []string{"cpu", "1"},
			change: func(_ *cluster.Objects, pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
				pod.Spec.NodeSelector = map[string]string{"disk": "b"}
			},
			want: []string{"the node lacks labels of the pod's nodeSelector disk=b"},
		},
		"node without zones": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, _ *resourceapi.ResourceClaim) {
				o.Nodes = append(o.Nodes, node("b"))
			},
			want: []string{"a      -      the claims fit here now", "b      -      it publishes no zones: no frontend of this driver runs there"},
		},
		"no driver": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, _ *resourceapi.ResourceClaim) { o.Slices = nil },
			want:   []string{"problem: no node publishes zones: is the driver installed"},
		},
		"claim that is missing": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, _ *resourceapi.ResourceClaim) { o.Claims = nil },
			want:   []string{"problem: entry claim: there is no ResourceClaim default/claim"},
		},
		"template": {
			change: func(_ *cluster.Objects, pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "zone", ResourceClaimTemplateName: new("template")}}
			},
			want: []string{"problem: entry zone: no claim was made of ResourceClaimTemplate template"},
		},
		"constraint": {
			wanted: []string{"cpu", "1"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				attribute := resourceapi.FullyQualifiedName("dra.cpumem/lost")
				c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
			},
			want: []string{"each request of this driver fits into a zone, but no devices satisfy the claim's constraints together"},
		},
		"together": {
			wanted: []string{"cpu", "5"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				second := *c.Spec.Devices.Requests[0].DeepCopy()
				second.Name = "second"
				c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, second)
			},
			want: []string{"each request fits into a zone, but not all of them at once"},
		},
		"an alternative": {
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				sub := func(name, cpus string) resourceapi.DeviceSubRequest {
					return resourceapi.DeviceSubRequest{
						Name: name, DeviceClassName: "dra.cpumem", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
						Capacity: &resourceapi.CapacityRequirements{
							Requests: map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse(cpus)},
						},
					}
				}
				c.Spec.Devices.Requests = []resourceapi.DeviceRequest{
					{Name: "zone", FirstAvailable: []resourceapi.DeviceSubRequest{sub("large", "64"), sub("small", "2")}},
				}
			},
			want: []string{"a      -      the claims fit here now"},
		},
		"a claim elsewhere": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
				o.Claims[0].Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"b"}}},
				}}}
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "t", ResourceClaimName: new("taken")})
			},
			want: []string{"a      -      the pod's claim default/taken is allocated on another node"},
		},
		"another driver's claim": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				c.Spec.Devices.Requests[0].Exactly.DeviceClassName = "gpu"
				o.Classes = append(o.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
			},
			want: []string{"problem: the claims are for devices of other drivers"},
		},
		"hostile text": {
			wanted: []string{"cpu", "1"},
			change: func(o *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				for i, zone := range []string{"first", "second"} {
					o.Slices[0].Spec.Devices[i].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
						"dra.cpumem/zone": {StringValue: &zone},
					}
				}
				c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
					Expression: `device.attributes["dra.cpumem"].zone == "second" || device.attributes["dra.cpumem"]["\u001b[31mX"] == 1`,
				}}}
			},
			want: []string{"no such key: ?[31mX"},
		},
		"several requests": {
			wanted: []string{"cpu", "9"},
			change: func(_ *cluster.Objects, _ *corev1.Pod, c *resourceapi.ResourceClaim) {
				second := *c.Spec.Devices.Requests[0].DeepCopy()
				second.Name = "second"
				c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, second)
			},
			want: []string{"numa-0   default/claim zone: cpu: 9 wanted", "numa-0   default/claim second: cpu: 9 wanted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := clustertest.Claim("claim", tc.wanted...)
			o, pod := objects(), podWith(claim)
			o.Claims = append(o.Claims, claim)
			if tc.change != nil {
				tc.change(&o, pod, claim)
			}
			report, err := why.Pod(t.Context(), o, pod, nil)
			require.NoError(t, err)
			var out strings.Builder
			require.NoError(t, report.Text(&out))
			for _, want := range tc.want {
				require.Contains(t, out.String(), want)
			}
			require.NotContains(t, out.String(), "\x1b")
		})
	}
}

// A pod that has a node shows what its claims gave it. A pod that does not run shows the
// warnings of its events.
func TestAllocatedPod(t *testing.T) {
	o := objects()
	pod := podWith(o.Claims[0])
	pod.Name, pod.Spec.NodeName = "pod-of-taken", "a"
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"),
	}}}}
	at := func(minute int, reason, message string) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(minute)*60, 0))}
	}
	newest := corev1.Event{Reason: "Newest", Message: "n", EventTime: metav1.NewMicroTime(time.Unix(240, 0))}
	report, err := why.Pod(t.Context(), o, pod, []corev1.Event{at(1, "Old", "m"), newest, at(3, "New\x1b", "\x1b[31m"), at(2, "Old", "m")})
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, report.Text(&out))
	require.Equal(t, `pod default/pod-of-taken: it is on node a, phase Pending

claim default/taken, request zone: zone numa-0 of node a
  cpu         3
  memory      1Gi
  pods        pod-of-taken
  no status   not prepared: see the pod's events, or the frontend's log on that node; before Kubernetes 1.36 no claim has a status

note: the pod's claims have 3 cpu, its spec requests 2: the scheduler may give the difference to pods without claims; `+
		`repeat the claimed amounts in resources.requests

warnings in the pod's events, newest first:
  Newest: n
  New?: ?[31m
  Old: m
`, out.String())

	pod.Status.Phase = corev1.PodRunning
	report, err = why.Pod(t.Context(), o, pod, []corev1.Event{at(1, "Old", "m")})
	require.NoError(t, err)
	require.Empty(t, report.Warnings)
}

// A59: a pod repeats the amounts of its claims, unless the scheduler counts them itself or another pod repeats them.
func TestAmountsToRepeat(t *testing.T) {
	for name, tc := range map[string]struct {
		consumers []string
		counted   bool
		notes     int
	}{
		"a claim of its own":           {consumers: []string{"pod"}, notes: 1},
		"a claim before the pod":       {notes: 1},
		"the scheduler counts it":      {consumers: []string{"pod"}, counted: true},
		"it is the second pod":         {consumers: []string{"first", "pod"}},
		"another pod has it":           {consumers: []string{"first"}},
		"pods have it before this pod": {consumers: []string{"first", "second"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := objects()
			o.Claims[0].Status.ReservedFor = nil
			for _, consumer := range tc.consumers {
				o.Claims[0].Status.ReservedFor = append(o.Claims[0].Status.ReservedFor,
					resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: consumer})
			}
			if tc.counted {
				o.Slices[0].Spec.Devices[0].NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{"cpu": {}}
			}
			pod := podWith(o.Claims[0])
			pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"memory": resource.MustParse("1Gi"),
			}}}}
			report, err := why.Pod(t.Context(), o, pod, nil)
			require.NoError(t, err)
			require.Len(t, report.Notes, tc.notes)
		})
	}
}

// The guard refuses the start of a container. Kubelet's phase of the pod is Running then if
// the container starts again, and Failed if not.
func TestPodThatDoesNotRun(t *testing.T) {
	const guard = "OCI runtime create failed: runc create failed: error running createContainer hook #0: exit status 1, " +
		"stderr: nri-actuator: guard: CPUs 2-3 are not in the partition"
	refused := &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: guard + "\x1b[31m"}
	const shown = "container main: StartError, exit code 128: " + guard + "?[31m"
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	for name, tc := range map[string]struct {
		phase        corev1.PodPhase
		init, status []corev1.ContainerStatus
		terminations []string
		warned       bool
	}{
		"it starts again": {
			phase: corev1.PodRunning,
			status: []corev1.ContainerStatus{
				{Name: "side", State: running},
				{Name: "main", State: waiting, LastTerminationState: corev1.ContainerState{Terminated: refused}},
			},
			terminations: []string{shown}, warned: true,
		},
		"it never starts again": {
			phase:        corev1.PodFailed,
			status:       []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: refused}}},
			terminations: []string{shown}, warned: true,
		},
		"an init container": {
			phase:        corev1.PodPending,
			init:         []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: refused}}},
			status:       []corev1.ContainerStatus{{Name: "later", State: waiting}},
			terminations: []string{shown}, warned: true,
		},
		"a program without a message": {
			phase: corev1.PodFailed,
			status: []corev1.ContainerStatus{{
				Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}},
			}},
			terminations: []string{"container main: Error, exit code 3"}, warned: true,
		},
		"a long message": {
			phase: corev1.PodFailed,
			status: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: strings.Repeat("x", 1001)},
			}}},
			terminations: []string{"container main: Error, exit code 1: " + strings.Repeat("x", 1000) + "... (1 bytes more)"}, warned: true,
		},
		"evicted before it started": {phase: corev1.PodFailed, warned: true},
		"containers are being made": {phase: corev1.PodPending, status: []corev1.ContainerStatus{{Name: "main", State: waiting}}, warned: true},
		"it runs after a termination": {
			phase: corev1.PodRunning,
			init:  []corev1.ContainerStatus{{Name: "init", State: done}},
			status: []corev1.ContainerStatus{
				{Name: "main", State: running, LastTerminationState: corev1.ContainerState{Terminated: refused}},
				{Name: "once", State: done},
			},
		},
		"it has succeeded": {phase: corev1.PodSucceeded, status: []corev1.ContainerStatus{{Name: "main", State: done}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith()
			pod.Spec.NodeName = "a"
			pod.Status = corev1.PodStatus{Phase: tc.phase, InitContainerStatuses: tc.init, ContainerStatuses: tc.status}
			report, err := why.Pod(t.Context(), objects(), pod, []corev1.Event{{Reason: "Failed", Message: "m"}})
			require.NoError(t, err)
			require.Equal(t, tc.terminations, report.Terminations)
			require.Equal(t, tc.warned, len(report.Warnings) == 1)
			var out strings.Builder
			require.NoError(t, report.Text(&out))
			for _, termination := range tc.terminations {
				require.Contains(t, out.String(), "\nlast terminations of containers that do not run:\n  "+termination+"\n")
			}
			require.Equal(t, tc.warned, strings.Contains(out.String(), "\n  Failed: m\n"))
		})
	}
}

// A pod that has ended waits for nothing: its claims may be gone, or be other pods' claims.
func TestEndedPod(t *testing.T) {
	for name, tc := range map[string]struct {
		phase  corev1.PodPhase
		node   string
		change func(*cluster.Objects)
		want   string
	}{
		"its claim is deleted": {
			phase: corev1.PodSucceeded, node: "a",
			change: func(o *cluster.Objects) { o.Claims = nil },
			want:   "pod default/pod: it has ended on node a, phase Succeeded; claims that were made for it are deleted\n",
		},
		"its claim has no allocation": {
			phase: corev1.PodFailed, node: "a",
			change: func(o *cluster.Objects) { o.Claims[0].Status = resourceapi.ResourceClaimStatus{} },
			want:   "pod default/pod: it has ended on node a, phase Failed; claims that were made for it are deleted\n",
		},
		"it never had a node": {
			phase:  corev1.PodFailed,
			change: func(o *cluster.Objects) { o.Claims = nil },
			want:   "pod default/pod: it has ended, phase Failed; claims that were made for it are deleted\n",
		},
		"another pod has its claim": {
			phase: corev1.PodSucceeded, node: "a",
			change: func(*cluster.Objects) {},
			want: `pod default/pod: it has ended on node a, phase Succeeded; claims that were made for it are deleted

claim default/taken, request zone: zone numa-0 of node a
  cpu         3
  memory      1Gi
  pods        pod-of-taken
  no status   not prepared: see the pod's events, or the frontend's log on that node; before Kubernetes 1.36 no claim has a status
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := objects()
			pod := podWith(o.Claims[0])
			pod.Spec.NodeName, pod.Status.Phase = tc.node, tc.phase
			tc.change(&o)
			report, err := why.Pod(t.Context(), o, pod, nil)
			require.NoError(t, err)
			var out strings.Builder
			require.NoError(t, report.Text(&out))
			require.Equal(t, tc.want, out.String())
		})
	}
}

func TestPodWithoutClaims(t *testing.T) {
	pod := podWith()
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"},
	}
	report, err := why.Pod(t.Context(), objects(), pod, nil)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, report.Text(&out))
	require.Equal(t, "pod default/pod: it has no node; the scheduler says: 0/1 nodes are available\n"+
		"it has no claim for zones of this driver\n", out.String())
}

// Explain has each node, Place the nodes up to the first that fits.
func TestPlace(t *testing.T) {
	o := objects()
	o.Nodes = []*corev1.Node{node("without-zones"), node("a"), node("b")}
	o.Slices = append(o.Slices, clustertest.Slice("b", clustertest.Zone("numa-0", "cpu", "64")))
	for name, tc := range map[string]struct {
		cpus               string
		explained, visited int
	}{
		"the second node fits": {"8", 3, 2},
		"the last node fits":   {"9", 3, 3},
		"no node fits":         {"65", 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			claims := []*resourceapi.ResourceClaim{clustertest.Claim("claim", "cpu", tc.cpus)}
			all, err := why.Explain(t.Context(), o, podWith(claims...), claims, nil)
			require.NoError(t, err)
			require.Len(t, all.Nodes, tc.explained)
			first, err := why.Place(t.Context(), o, podWith(claims...), claims, nil)
			require.NoError(t, err)
			require.Equal(t, all.Nodes[:tc.visited], first.Nodes)
		})
	}
}

func TestClaim(t *testing.T) {
	claim := clustertest.Claim("claim", "cpu", "9")
	report, err := why.Claim(t.Context(), objects(), claim)
	require.NoError(t, err)
	require.Contains(t, report.State, "it has no allocation")
	require.Equal(t, "no zone can serve the request", report.Pending.Nodes[0].Reason)
	report, err = why.Claim(t.Context(), objects(), objects().Claims[0])
	require.NoError(t, err)
	require.Nil(t, report.Pending)
	require.Equal(t, "it is allocated", report.State)
}
