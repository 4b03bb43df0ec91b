// SPDX-License-Identifier: Apache-2.0

// Package report makes an archive for a bug report from a cluster's objects. It takes
// only what concerns this driver, and no field that may hold a secret.
package report

import (
	"archive/tar"
	"bytes"
	"cmp"
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
	// Configs are the frontends' configuration files, by the names of their ConfigMaps. Each release has its own.
	Configs map[string]string
	// Missing are the reasons why something is not in the report.
	Missing []string
	// Incomplete reports whether objects of Server could not be listed. The tables, which
	// count over all objects, are left out then.
	Incomplete bool
}

// MaxLogPods is how many pods' logs are in a report.
const MaxLogPods = 50

// PodsWithLogs returns the pods whose logs are read, and how many more there are. A node's
// daemons come together, and nodes with a daemon that is not ready come first. With names of
// nodes, only pods on these nodes count.
func PodsWithLogs(pods []corev1.Pod, nodes []string) (chosen []corev1.Pod, leftOut int) {
	unready := make(map[string]int)
	for _, p := range pods {
		node := p.Spec.NodeName
		if node == "" || len(nodes) > 0 && !slices.Contains(nodes, node) {
			continue // without a node there is no log
		}
		chosen = append(chosen, p)
		if !ready(p) {
			unready[node] = 1
		}
	}
	slices.SortStableFunc(chosen, func(a, b corev1.Pod) int {
		return cmp.Or(
			unready[b.Spec.NodeName]-unready[a.Spec.NodeName],
			cluster.CompareNames(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(a.Name, b.Name),
		)
	})
	kept := min(len(chosen), MaxLogPods)
	return chosen[:kept], len(chosen) - kept
}

// ready reports whether the pod is ready, or has done its work.
func ready(p corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Files returns the files of the report by name.
func Files(in Input) (map[string][]byte, error) {
	files := make(map[string][]byte)
	if !in.Incomplete {
		if err := tables(in.Server, files); err != nil {
			return nil, err
		}
	}
	o := in.Server.Objects
	claims := slices.DeleteFunc(slices.Clone(o.Claims), func(c *resourceapi.ResourceClaim) bool { return !concerns(c, o.Classes) })
	for name, objects := range map[string][]any{
		"resourceslices.yaml": anys(o.Slices, slice), "resourceclaims.yaml": anys(claims, claim),
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
	for name, text := range in.Configs {
		files["config/"+name+".yaml"] = []byte(text)
	}
	if len(in.Missing) > 0 {
		files["missing.txt"] = []byte(strings.Join(in.Missing, "\n") + "\n")
	}
	return files, nil
}

// tables adds what the commands doctor cluster, nodes and claims show.
func tables(s doctor.Server, files map[string][]byte) error {
	for name, write := range map[string]func(io.Writer) error{
		"doctor.txt": func(w io.Writer) error { return doctor.Table(w, doctor.Cluster(s)) },
		"nodes.txt":  func(w io.Writer) error { return cluster.Table(w, cluster.Usage(s.Objects)) },
		"claims.txt": func(w io.Writer) error {
			return cluster.RequestTable(w, cluster.AllocatedRequests(s.Objects, s.Objects.Claims))
		},
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name] = out.Bytes()
	}
	return nil
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

// meta returns the names of an object. Managed fields are left out, and so are annotations, which may repeat the whole object. Two
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

// concerns reports whether the claim has zones, or may get them.
func concerns(c *resourceapi.ResourceClaim, classes []*resourceapi.DeviceClass) bool {
	ours := func(class string, selectors []resourceapi.DeviceSelector) bool {
		// A claim may name a class of the chart that does not exist.
		return strings.HasPrefix(class, kubelet.DriverName) || nameDriver(selectors) ||
			slices.ContainsFunc(classes, func(c *resourceapi.DeviceClass) bool { return c.Name == class && nameDriver(c.Spec.Selectors) })
	}
	return hasZone(c) || slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return r.Exactly != nil && ours(r.Exactly.DeviceClassName, r.Exactly.Selectors) ||
			slices.ContainsFunc(r.FirstAvailable, func(s resourceapi.DeviceSubRequest) bool { return ours(s.DeviceClassName, s.Selectors) })
	})
}

func hasZone(c *resourceapi.ResourceClaim) bool {
	a := c.Status.Allocation
	return a != nil && slices.ContainsFunc(a.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Driver == kubelet.DriverName
	})
}

// claim returns a claim without the parameters and the status of other drivers.
func claim(c *resourceapi.ResourceClaim) any {
	out := resourceapi.ResourceClaim{ObjectMeta: meta(c.ObjectMeta), Spec: *c.Spec.DeepCopy(), Status: *c.Status.DeepCopy()}
	if a := out.Status.Allocation; a != nil {
		a.Devices.Config = slices.DeleteFunc(a.Devices.Config, func(c resourceapi.DeviceAllocationConfiguration) bool {
			return c.Opaque != nil && c.Opaque.Driver != kubelet.DriverName
		})
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
	if !nameDriver(c.Spec.Selectors) {
		return nil
	}
	out := resourceapi.DeviceClass{ObjectMeta: meta(c.ObjectMeta), Spec: *c.Spec.DeepCopy()}
	out.Spec.Config = slices.DeleteFunc(out.Spec.Config, func(c resourceapi.DeviceClassConfiguration) bool {
		return c.Opaque != nil && c.Opaque.Driver != kubelet.DriverName
	})
	return out
}

// nameDriver reports whether a selector names this driver.
func nameDriver(selectors []resourceapi.DeviceSelector) bool {
	return slices.ContainsFunc(selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && strings.Contains(s.CEL.Expression, kubelet.DriverName)
	})
}

// node returns what a node's scheduling depends on, without its addresses and the ids of
// the machine.
func node(n *corev1.Node) any {
	info := n.Status.NodeInfo
	info.MachineID, info.SystemUUID, info.BootID = "", "", ""
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions, NodeInfo: info,
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
