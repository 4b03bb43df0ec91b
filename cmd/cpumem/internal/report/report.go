// SPDX-License-Identifier: Apache-2.0

// Package report makes an archive for a bug report from a cluster's objects. It takes
// only what concerns this driver, and no field that may hold a secret.
package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/doctor"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// Input is what a report is made of.
type Input struct {
	Server doctor.Server
	// Pods are the daemons' pods, Logs their logs by "pod/container".
	Pods []corev1.Pod
	Logs map[string][]byte
	// Config is the frontend's configuration file, empty if it was not found.
	Config string
}

// Files returns the files of the report by name.
func Files(in Input) (map[string][]byte, error) {
	files := make(map[string][]byte)
	var doctors, nodes, claims bytes.Buffer
	err := doctor.Table(&doctors, doctor.Cluster(in.Server))
	if err == nil {
		err = cluster.Table(&nodes, cluster.Usage(in.Server.Objects))
	}
	if err == nil {
		err = cluster.RequestTable(&claims, cluster.AllocatedRequests(in.Server.Objects, in.Server.Objects.Claims))
	}
	if err != nil {
		return nil, err
	}
	files["doctor.txt"], files["nodes.txt"], files["claims.txt"] = doctors.Bytes(), nodes.Bytes(), claims.Bytes()
	o := in.Server.Objects
	for name, objects := range map[string][]any{
		"resourceslices.yaml": anys(o.Slices, slice), "resourceclaims.yaml": anys(o.Claims, claim),
		"deviceclasses.yaml": anys(o.Classes, class), "nodes.yaml": anys(o.Nodes, node), "pods.yaml": anys(in.Pods, pod),
	} {
		var out bytes.Buffer
		for _, object := range objects {
			data, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(&out, "---\n%s", data)
		}
		files[name] = out.Bytes()
	}
	for name, log := range in.Logs {
		files["logs/"+strings.ReplaceAll(name, "/", "_")+".log"] = log
	}
	if in.Config != "" {
		files["config.yaml"] = []byte(in.Config)
	}
	return files, nil
}

// anys returns what keep returns for each object, without the objects that it leaves
// out with nil.
func anys[T any](objects []T, keep func(T) any) (out []any) {
	for _, o := range objects {
		if kept := keep(o); kept != nil {
			out = append(out, kept)
		}
	}
	return out
}

// meta returns the names of an object. Managed fields stay behind, and so do annotations, which may repeat the whole object. Two
// annotations are kept: they show that Kubernetes made the claim for a pod.
func meta(m metav1.ObjectMeta) metav1.ObjectMeta {
	annotations := make(map[string]string)
	for _, name := range []string{resourceapi.PodResourceClaimAnnotation, resourceapi.ExtendedResourceClaimAnnotation} {
		if value, has := m.Annotations[name]; has {
			annotations[name] = value
		}
	}
	return metav1.ObjectMeta{
		Annotations: annotations,
		Name:        m.Name, Namespace: m.Namespace, UID: m.UID, Labels: m.Labels, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences,
	}
}

func slice(s *resourceapi.ResourceSlice) any {
	if s.Spec.Driver != kubelet.DriverName {
		return nil
	}
	return resourceapi.ResourceSlice{ObjectMeta: meta(s.ObjectMeta), Spec: s.Spec}
}

// claim returns a claim that has zones, or wants the driver's class, without the
// parameters and the status of other drivers.
func claim(c *resourceapi.ResourceClaim) any {
	out := resourceapi.ResourceClaim{ObjectMeta: meta(c.ObjectMeta), Spec: *c.Spec.DeepCopy(), Status: *c.Status.DeepCopy()}
	concerns := slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return r.Exactly != nil && strings.HasPrefix(r.Exactly.DeviceClassName, kubelet.DriverName)
	})
	if a := out.Status.Allocation; a != nil {
		concerns = concerns || slices.ContainsFunc(a.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == kubelet.DriverName
		})
		a.Devices.Config = slices.DeleteFunc(a.Devices.Config, func(c resourceapi.DeviceAllocationConfiguration) bool {
			return c.Opaque != nil && c.Opaque.Driver != kubelet.DriverName
		})
	}
	if !concerns {
		return nil
	}
	out.Spec.Devices.Config = slices.DeleteFunc(out.Spec.Devices.Config, func(c resourceapi.DeviceClaimConfiguration) bool {
		return c.Opaque != nil && c.Opaque.Driver != kubelet.DriverName
	})
	out.Status.Devices = slices.DeleteFunc(out.Status.Devices, func(s resourceapi.AllocatedDeviceStatus) bool {
		return s.Driver != kubelet.DriverName
	})
	return out
}

func class(c *resourceapi.DeviceClass) any {
	ours := slices.ContainsFunc(c.Spec.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && strings.Contains(s.CEL.Expression, kubelet.DriverName)
	})
	if !ours {
		return nil
	}
	out := resourceapi.DeviceClass{ObjectMeta: meta(c.ObjectMeta), Spec: *c.Spec.DeepCopy()}
	out.Spec.Config = slices.DeleteFunc(out.Spec.Config, func(c resourceapi.DeviceClassConfiguration) bool {
		return c.Opaque != nil && c.Opaque.Driver != kubelet.DriverName
	})
	return out
}

// node returns what a node's scheduling depends on, without its addresses.
func node(n *corev1.Node) any {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions, NodeInfo: n.Status.NodeInfo,
		},
	}
}

// pod returns a daemon's pod without addresses, and without environment variables, to
// which an administrator may have added.
func pod(p corev1.Pod) any {
	out := corev1.Pod{ObjectMeta: meta(p.ObjectMeta), Spec: *p.Spec.DeepCopy(), Status: p.Status}
	for _, containers := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range containers {
			containers[i].Env, containers[i].EnvFrom = nil, nil
		}
	}
	out.Spec.EphemeralContainers = nil
	out.Status.HostIP, out.Status.HostIPs, out.Status.PodIP, out.Status.PodIPs = "", nil, "", nil
	return out
}

// Write writes the files as a .tar.gz archive. The same files give the same bytes.
func Write(w io.Writer, files map[string][]byte) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: "cpumem-report/" + name, Mode: 0o644, Size: int64(len(files[name]))}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
