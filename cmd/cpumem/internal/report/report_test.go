// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/doctor"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/report"
)

// secret stands wherever an administrator or another driver may have put a secret.
const secret = "hunter2"

func opaque(driver string) resourceapi.DeviceConfiguration {
	token := secret
	if driver == "dra.cpumem" {
		token = "ours"
	}
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
		Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(`{"token":"` + token + `"}`)},
	}}
}

// pending returns a claim of the class, without an allocation.
func pending(name, class string) *resourceapi.ResourceClaim {
	c := clustertest.Claim(name)
	c.Spec.Devices.Requests[0].Exactly.DeviceClassName = class
	return c
}

func input() report.Input {
	env := []corev1.EnvVar{{Name: "TOKEN", Value: secret}}
	annotated := metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"x": secret}}
	claim := clustertest.Allocated("one", "a", "numa-0", `{"cpus":"1"}`, "cpu", "1")
	claim.Annotations = map[string]string{"x": secret, resourceapi.PodResourceClaimAnnotation: "cpus"}
	claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
		{DeviceConfiguration: opaque("dra.cpumem")}, {DeviceConfiguration: opaque("gpu.example.com")},
	}
	claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{DeviceConfiguration: opaque("gpu.example.com")}}
	claim.Status.Devices = append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{
		Driver: "gpu.example.com", Data: &runtime.RawExtension{Raw: []byte(`"` + secret + `"`)},
	})
	foreign := pending("foreign-"+secret, "gpu")
	other := clustertest.OtherDriver(clustertest.Slice("gpus", clustertest.Zone("gpu-0", "cpu", "1")))
	other.Annotations = annotated.Annotations
	return report.Input{
		Server: doctor.Server{Version: "v1.36.0", Objects: cluster.Objects{
			Slices: []*resourceapi.ResourceSlice{clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "4")), other},
			Claims: []*resourceapi.ResourceClaim{claim, foreign},
			Nodes: []*corev1.Node{{ObjectMeta: annotated, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Address: secret}}, NodeInfo: corev1.NodeSystemInfo{
					KernelVersion: "6.12.9", MachineID: secret, SystemUUID: secret, BootID: secret,
				},
			}}},
			Classes: []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: secret}}, {
				ObjectMeta: annotated,
				Spec: resourceapi.DeviceClassSpec{
					Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "dra.cpumem"`}}},
					Config:    []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: opaque("gpu.example.com")}},
				},
			}},
		}},
		Pods: []corev1.Pod{{
			ObjectMeta: annotated,
			Spec: corev1.PodSpec{
				Containers:     []corev1.Container{{Name: "frontend", Env: env}},
				InitContainers: []corev1.Container{{Name: "init", Env: env}},
				EphemeralContainers: []corev1.EphemeralContainer{
					{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Env: env}},
				},
			},
			Status: corev1.PodStatus{
				HostIP: secret, HostIPs: []corev1.HostIP{{IP: secret}}, PodIP: secret, PodIPs: []corev1.PodIP{{IP: secret}},
			},
		}},
		Logs:    map[string][]byte{"pod/frontend": []byte("log\n")},
		Configs: map[string]string{"first": "groupBy: numanode\n", "second": "groupBy: socket\n"},
	}
}

// The report has what concerns the driver, and nothing that may hold a secret.
func TestFiles(t *testing.T) {
	files, err := report.Files(input())
	require.NoError(t, err)
	for name, want := range map[string]string{
		"nodes.txt": "numa-0   3/4", "claims.txt": "default/one", "doctor.txt": "v1.36.0", "resourceslices.yaml": "name: numa-0",
		"resourceclaims.yaml": "token: ours", "deviceclasses.yaml": `device.driver == "dra.cpumem"`, "nodes.yaml": "kernelVersion: 6.12.9",
		"pods.yaml": "name: frontend", "logs/pod_frontend.log": "log\n", "config/first.yaml": "groupBy: numanode\n",
		"config/second.yaml": "groupBy: socket\n",
	} {
		require.Contains(t, string(files[name]), want, name)
	}
	require.Len(t, files, 11)
	require.Contains(t, string(files["resourceclaims.yaml"]), resourceapi.PodResourceClaimAnnotation+": cpus")
	for name, data := range files {
		require.NotContains(t, string(data), secret, name)
	}
}

// A pending claim is in the report if it may get a zone.
func TestPendingClaims(t *testing.T) {
	zones := []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "dra.cpumem"`}}}
	selects := pending("c", "all")
	selects.Spec.Devices.Requests[0].Exactly.Selectors = zones
	alternative := clustertest.Claim("c")
	alternative.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "zone", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "gpu", DeviceClassName: "gpu"}, {Name: "zone", DeviceClassName: "fast-cpus"},
	}}}
	alternatives := alternative.DeepCopy()
	alternatives.Spec.Devices.Requests[0].FirstAvailable[1].DeviceClassName = "gpu"
	for name, c := range map[string]struct {
		claim *resourceapi.ResourceClaim
		kept  bool
	}{
		"the chart's class":                      {pending("c", "dra.cpumem"), true},
		"a class of the chart that is missing":   {pending("c", "dra.cpumem-hbm"), true},
		"a class of your own":                    {pending("c", "fast-cpus"), true},
		"a selector of the claim":                {selects, true},
		"an alternative":                         {alternative, true},
		"another driver's class":                 {pending("c", "gpu"), false},
		"alternatives of another driver's class": {alternatives, false},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := report.Files(report.Input{Server: doctor.Server{Objects: cluster.Objects{
				Claims: []*resourceapi.ResourceClaim{c.claim},
				Classes: []*resourceapi.DeviceClass{
					{ObjectMeta: metav1.ObjectMeta{Name: "fast-cpus"}, Spec: resourceapi.DeviceClassSpec{Selectors: zones}},
					{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, {ObjectMeta: metav1.ObjectMeta{Name: "all"}},
				},
			}}})
			require.NoError(t, err)
			require.Equal(t, c.kept, len(files["resourceclaims.yaml"]) > 0)
		})
	}
}

// What is missing is in the report. Tables over a part of the objects would be wrong.
func TestIncomplete(t *testing.T) {
	in := input()
	in.Incomplete, in.Missing = true, []string{"list Nodes: forbidden", "logs of 2 of 52 pods"}
	files, err := report.Files(in)
	require.NoError(t, err)
	require.Equal(t, "list Nodes: forbidden\nlogs of 2 of 52 pods\n", string(files["missing.txt"]))
	for _, name := range []string{"doctor.txt", "nodes.txt", "claims.txt"} {
		require.NotContains(t, files, name)
	}
	require.Contains(t, files, "resourceclaims.yaml")
}

// The daemons of a node come together, and nodes with a fault come first.
func TestPodsWithLogs(t *testing.T) {
	daemon := func(kind string, node int, status corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", kind, node)},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node%d", node)},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
		}
	}
	// daemons returns both daemons of nodes, in the order of the API server's list.
	daemons := func(nodes int, unready ...string) (pods []corev1.Pod) {
		for _, kind := range []string{"actuator", "frontend"} {
			for node := range nodes {
				p := daemon(kind, node, corev1.ConditionTrue)
				if slices.Contains(unready, p.Name) {
					p = daemon(kind, node, corev1.ConditionFalse)
				}
				pods = append(pods, p)
			}
		}
		return pods
	}
	unscheduled := daemon("frontend", 9, corev1.ConditionFalse)
	unscheduled.Spec.NodeName = ""
	done := daemon("cleanup", 2, corev1.ConditionFalse)
	done.Status.Phase = corev1.PodSucceeded
	for name, c := range map[string]struct {
		pods    []corev1.Pod
		nodes   []string
		first   []string
		number  int
		leftOut int
	}{
		"few nodes":     {daemons(2), nil, []string{"actuator-0", "frontend-0", "actuator-1", "frontend-1"}, 4, 0},
		"many nodes":    {daemons(60), nil, []string{"actuator-0", "frontend-0", "actuator-1"}, 50, 70},
		"node2, node10": {daemons(11), nil, []string{"actuator-0", "frontend-0", "actuator-1", "frontend-1", "actuator-2"}, 22, 0},
		"daemons that are not ready": {
			daemons(60, "frontend-57", "actuator-3"), nil,
			[]string{"actuator-3", "frontend-3", "actuator-57", "frontend-57", "actuator-0"}, 50, 70,
		},
		"named nodes":                  {daemons(60), []string{"node41", "node7"}, []string{"actuator-7", "frontend-7", "actuator-41"}, 4, 0},
		"a pod without a node":         {append(daemons(1), unscheduled), nil, []string{"actuator-0", "frontend-0"}, 2, 0},
		"a pod that has done its work": {append(daemons(3), done), nil, []string{"actuator-0"}, 7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, leftOut := report.PodsWithLogs(c.pods, c.nodes)
			require.Len(t, chosen, c.number)
			require.Equal(t, c.leftOut, leftOut)
			for i, want := range c.first {
				require.Equal(t, want, chosen[i].Name)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	files, err := report.Files(input())
	require.NoError(t, err)
	var first, second bytes.Buffer
	require.NoError(t, report.Write(&first, files))
	require.NoError(t, report.Write(&second, files))
	require.Equal(t, first.Bytes(), second.Bytes())
	unzipped, err := gzip.NewReader(&first)
	require.NoError(t, err)
	archive, read := tar.NewReader(unzipped), 0
	for {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.Equal(t, files[strings.TrimPrefix(h.Name, "cpumem-report/")], data)
		read++
	}
	require.Equal(t, len(files), read)
}
