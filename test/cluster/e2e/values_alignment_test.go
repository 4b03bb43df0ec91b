// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const pciDriver = "../pcidriver/driver.yaml"

// TestAlignment applies the recipe beside a second driver, whose devices are PCI
// devices of QEMU on roots of each NUMA node. The container's cpuset is compared with
// the NUMA node that the kernel reports for the device that the container got.
func TestAlignment(t *testing.T) {
	s := theSuite
	lists := []string{"config.numaNodeForm=list", "config.publishPCIeRoots=true"}
	t.Cleanup(func() {
		require.NoError(t, s.SetGates(context.Background(), nil))
	})
	t.Run("without the feature gate", func(t *testing.T) {
		// The release is not ready, so helm does not wait.
		path, err := filepath.Abs(chart)
		require.NoError(t, err)
		_, err = s.Helm(t.Context(), "upgrade", release, path, "--namespace", namespace, "--reuse-values",
			"--set", strings.Join(lists, ","))
		require.NoError(t, err)
		*s.values = "unknown"
		eventually(t, "an event of the node", func(ctx context.Context) error {
			events, err := s.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.kind=Node,reason=SlicesNotWritten,involvedObject.name=" + s.node,
			})
			if err != nil {
				return err
			}
			for _, e := range events.Items {
				if strings.Contains(e.Message, "the feature gate DRAListTypeAttributes") {
					return nil
				}
			}
			return fmt.Errorf("none of %d events names the gate", len(events.Items))
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, s.SetGates(ctx, map[string]bool{"DRAListTypeAttributes": true}))
	s.configure(t, lists...)
	defer s.configure(t)
	_, err := s.Kubectl(ctx, "apply", "-f", pciDriver)
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := s.Kubectl(context.Background(), "delete", "-f", pciDriver, "--wait"); err != nil {
			t.Error(err)
		}
		if err := s.client.ResourceV1().ResourceSlices().DeleteCollection(context.Background(), metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: "spec.driver=pci.example.com"}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the second driver's devices", func(ctx context.Context) error {
		list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=pci.example.com"})
		if err != nil {
			return err
		}
		devices := 0
		for _, slice := range list.Items {
			devices += len(slice.Spec.Devices)
		}
		if want := 2 + 4; devices != want {
			return fmt.Errorf("%d devices, want %d: one of each NUMA node with CPUs", devices, want)
		}
		return nil
	})
	template, recipe := readRecipe(t, "alignment.yaml")
	for _, attribute := range []resourceapi.FullyQualifiedName{"resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"} {
		for _, name := range []string{node, wide} {
			s := s.on(name)
			t.Run(strings.ReplaceAll(string(attribute), "/", "_")+" on "+name, func(t *testing.T) {
				template := template.DeepCopy()
				template.Spec.Spec.Devices.Constraints[0].MatchAttribute = &attribute
				_, err := s.client.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), template, metav1.CreateOptions{})
				require.NoError(t, err)
				t.Cleanup(func() {
					if err := s.client.ResourceV1().ResourceClaimTemplates("default").Delete(
						context.Background(), template.Name, metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
				})
				used := map[string]bool{}
				for i := range 2 { // A node has one device on each NUMA node.
					pod := recipe.DeepCopy()
					pod.Name = fmt.Sprintf("%s-%d", recipe.Name, i)
					s.run(t, pod)
					got := s.recipeOutput(t, pod.Name)
					require.Equal(t, got["device"], got["Mems_allowed_list"], "%v", got)
					require.Equal(t, got["device"], s.numaNodeOf(t, got["Cpus_allowed_list"]), "%v", got)
					used[got["device"]] = true
				}
				require.Len(t, used, 2, "the pods are on two NUMA nodes")
			})
		}
	}
}

// readRecipe reads a recipe's template and pod. The pod gets an image of the nodes, and
// shows the address and the NUMA node of its PCI device as well.
func readRecipe(t *testing.T, file string) (*resourceapi.ResourceClaimTemplate, *corev1.Pod) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "recipes", file))
	require.NoError(t, err)
	template, pod := &resourceapi.ResourceClaimTemplate{}, &corev1.Pod{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	require.NoError(t, documents.Decode(template))
	require.NoError(t, documents.Decode(pod))
	container := &pod.Spec.Containers[0]
	container.Image, container.ImagePullPolicy = cluster.BusyboxImage, corev1.PullNever
	container.Command[2] = `echo "device: $(cat /sys/bus/pci/devices/$PCI_DEVICE/numa_node)"` + "\n" + container.Command[2]
	pod.Namespace, pod.Spec.TerminationGracePeriodSeconds = "default", new(int64)
	return template, pod
}

// recipeOutput returns the lines "name: value" that the pod printed.
func (s suite) recipeOutput(t *testing.T, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	eventually(t, "output of "+name, func(ctx context.Context) error {
		data, err := s.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(line, ":")
			out[key] = strings.TrimSpace(value)
		}
		if out["Mems_allowed_list"] == "" {
			return fmt.Errorf("no line of the mems yet: %q", data)
		}
		return nil
	})
	return out
}

// numaNodeOf returns the NUMA nodes of the CPUs, as the kernel lists them.
func (s suite) numaNodeOf(t *testing.T, list string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var nodes []string
	for _, id := range cpus(t, list).List() {
		out, err := s.NodeExec(ctx, s.node, fmt.Sprintf("basename $(ls -d /sys/devices/system/cpu/cpu%d/node*)", id))
		require.NoError(t, err)
		if node := strings.TrimPrefix(strings.TrimSpace(out), "node"); len(nodes) == 0 || nodes[len(nodes)-1] != node {
			nodes = append(nodes, node)
		}
	}
	return strings.Join(nodes, ",")
}
