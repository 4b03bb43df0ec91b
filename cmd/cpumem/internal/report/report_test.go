// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
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
	foreign := clustertest.Claim("foreign-" + secret)
	foreign.Spec.Devices.Requests[0].Exactly.DeviceClassName = "gpu"
	other := clustertest.OtherDriver(clustertest.Slice("gpus", clustertest.Zone("gpu-0", "cpu", "1")))
	other.Annotations = annotated.Annotations
	return report.Input{
		Server: doctor.Server{Version: "v1.36.0", Objects: cluster.Objects{
			Slices: []*resourceapi.ResourceSlice{clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "4")), other},
			Claims: []*resourceapi.ResourceClaim{claim, foreign},
			Nodes: []*corev1.Node{{ObjectMeta: annotated, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Address: secret}}, NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.12.9"},
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
		Logs:   map[string][]byte{"pod/frontend": []byte("log\n")},
		Config: "groupBy: numanode\n",
	}
}

// The report has what concerns the driver, and nothing that may hold a secret.
func TestFiles(t *testing.T) {
	files, err := report.Files(input())
	require.NoError(t, err)
	for name, want := range map[string]string{
		"nodes.txt": "numa-0   3/4", "claims.txt": "default/one", "doctor.txt": "v1.36.0", "resourceslices.yaml": "name: numa-0",
		"resourceclaims.yaml": "token: ours", "deviceclasses.yaml": `device.driver == "dra.cpumem"`, "nodes.yaml": "kernelVersion: 6.12.9",
		"pods.yaml": "name: frontend", "logs/pod_frontend.log": "log\n", "config.yaml": "groupBy: numanode\n",
	} {
		require.Contains(t, string(files[name]), want, name)
	}
	require.Len(t, files, 10)
	require.Contains(t, string(files["resourceclaims.yaml"]), resourceapi.PodResourceClaimAnnotation+": cpus")
	for name, data := range files {
		require.NotContains(t, string(data), secret, name)
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
