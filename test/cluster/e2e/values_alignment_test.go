// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const pciDriver = "../pcidriver/driver.yaml"

// TestAlignment applies the recipe beside a second driver, whose devices are PCI
// devices of QEMU on roots of each NUMA node. The container's cpuset is compared with
// the NUMA node that the kernel reports for the device that the container got.
func TestAlignment(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	s.secondDriver(t)
	template, pods := readRecipe(t, "alignment.yaml")
	recipe := pods[0]
	s.deleteAfter(t, template, pods)
	s.recipePage(t, s.workplace(t), "alignment")
	s.running(t, recipe.Name)
	s.remove(t, recipe.Name)
	command := recipe.Spec.Containers[0].Command
	command[2] = `echo "device: $(cat /sys/bus/pci/devices/$PCI_DEVICE/numa_node)"` + "\n" + command[2]
	for name, devices := range map[string]int{node: 2, wide: 4} {
		t.Run(name, func(t *testing.T) {
			s := s.on(name)
			used := map[string]bool{}
			for i := range devices { // Each NUMA node with CPUs has one device.
				pod := recipe.DeepCopy()
				pod.Name = fmt.Sprintf("%s-%d", recipe.Name, i)
				s.run(t, pod)
				got := s.recipeOutput(t, pod.Name, "app")
				require.Equal(t, got["device"], got["Mems_allowed_list"], "%v", got)
				require.Equal(t, got["device"], s.numaNodeOf(t, got["Cpus_allowed_list"]), "%v", got)
				used[got["device"]] = true
			}
			require.Len(t, used, devices, "a pod on each NUMA node with CPUs")
		})
	}
}

// TestListAttributes: without the feature gate an event of the node names the gate. With
// the gate the API server keeps the lists, and selectors find zones by them. A constraint
// over lists needs the scheduler of Kubernetes 1.37 (TestAllocatorAligns).
func TestListAttributes(t *testing.T) {
	longOnly(t)
	s := theSuite
	lists := []string{"config.numaNodeForm=list", "config.publishPCIeRoots=true"}
	t.Cleanup(func() {
		require.NoError(t, s.SetGates(context.Background(), nil))
	})
	t.Run("without the feature gate", func(t *testing.T) {
		// The slices are not written, so nothing waits for them.
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
	eventually(t, "lists in the slice", func(ctx context.Context) error {
		for i, d := range s.slice(t).Spec.Devices {
			numa := d.Attributes["resource.kubernetes.io/numaNode"].IntValues
			roots := d.Attributes["resource.kubernetes.io/pcieRoot"].StringValues
			if !slices.Equal(numa, []int64{int64(i)}) || len(roots) != 1 {
				return fmt.Errorf("%s has the nodes %v and the roots %v", d.Name, numa, roots)
			}
		}
		return nil
	})
	root := s.slice(t).Spec.Devices[1].Attributes["resource.kubernetes.io/pcieRoot"].StringValues[0]
	for name, selector := range map[string]string{
		"list-node": `numaNode.includes(1)`, "list-root": fmt.Sprintf("pcieRoot.includes(%q)", root),
	} {
		claim := newClaim("dra.cpumem", name, "", capacity{"cpu": "1"})
		claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.attributes["resource.kubernetes.io"].` + selector,
		}}}
		_, err := s.client.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { s.deleteClaim(t, name) })
		s.run(t, pod(name, []string{"mask", "sleep"}, name))
		require.Equal(t, "1", s.numaNodeOf(t, s.lines(t, name, "mask")["mask"].CPUs), name)
	}
}

// secondDriver runs the second driver on all nodes until the end of the test.
func (s suite) secondDriver(t *testing.T) {
	t.Helper()
	_, err := s.Kubectl(t.Context(), "apply", "-f", pciDriver)
	require.NoError(t, err)
	t.Cleanup(func() {
		// Kubelet unprepares the claims after the pods are gone from the API server.
		for _, name := range s.NodeNames() {
			eventually(t, "no file of the second driver on "+name, func(ctx context.Context) error {
				out, err := s.NodeExec(ctx, name, "ls /var/run/cdi")
				if err == nil && strings.Contains(out, "pci.example.com") {
					err = fmt.Errorf("there are %s", out)
				}
				return err
			})
		}
		if _, err := s.Kubectl(context.Background(), "delete", "-f", pciDriver, "--wait"); err != nil {
			t.Error(err)
		}
		// Kubelet deletes the slices of a driver that is away, after a while.
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
}
