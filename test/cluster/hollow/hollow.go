// SPDX-License-Identifier: Apache-2.0

// Package hollow makes nodes that are objects of the API only: a Node and the ResourceSlices that dra-frontend would
// publish for a machine. Commands scheduling and fleet make thousands of these nodes: as many virtual machines would not
// fit on one host.
package hollow

import (
	"cmp"
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

const (
	// Driver is the driver of the slices, and the name of its DeviceClass.
	Driver = contract.Vendor

	pageSize = 4 << 10
	// CoresOfZone and the sizes below are of each NUMA node, which is a zone. Cores have two threads.
	CoresOfZone  = 16
	memoryOfZone = 64 << 30
	hugepages2Mi = 4096
)

// Devices returns what dra-frontend publishes, with its default configuration, for a machine of so many NUMA nodes: 1, or
// an even number on two sockets.
func Devices(numaNodes int) ([]resourceapi.Device, error) {
	sockets := min(numaNodes, 2)
	if sockets < 1 || numaNodes%sockets != 0 {
		return nil, fmt.Errorf("%d NUMA nodes: give 1 or an even number", numaNodes)
	}
	spec := description.Regular{
		Sockets: sockets, Nodes: numaNodes / sockets, L3s: 1, Cores: CoresOfZone, Threads: 2,
		PageSize: pageSize, Memory: memoryOfZone, Hugepages: map[int64]int64{2 << 20: hugepages2Mi},
	}.Spec()
	m, err := topology.Discover(topologytest.Spec(spec).Roots(), pageSize)
	if err != nil {
		return nil, err
	}
	c := config.Default()
	divided, err := c.Divide(m)
	if err != nil {
		return nil, err
	}
	return resourceslices.Devices(divided.Offer(nil), resourceslices.OptionsOf(c, pageSize, nil)), nil
}

// Name returns the name of a node.
func Name(i int) string { return fmt.Sprintf("hollow-%d", i) }

// Node returns a node that is ready and takes 110 pods.
func Node(i int) *corev1.Node {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("256"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: Name(i), Labels: map[string]string{corev1.LabelHostname: Name(i)}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// Slices returns the ResourceSlices of a node's devices, one pool for each driver.
func Slices(node, driver string, devices []resourceapi.Device) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for pool, r := range resourceslices.DriverResources(node, devices).Pools {
		for i, slice := range r.Slices {
			all = append(all, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", node, driver, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: driver, NodeName: &node, Devices: slice.Devices,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(r.Slices))},
				},
			})
		}
	}
	return all
}

// Publish makes the nodes and their slices. devices maps drivers to the devices of each node.
func Publish(ctx context.Context, client kubernetes.Interface, nodes int, devices map[string][]resourceapi.Device) error {
	return Each(ctx, nodes, func(ctx context.Context, i int) error {
		if _, err := client.CoreV1().Nodes().Create(ctx, Node(i), metav1.CreateOptions{}); err != nil {
			return err
		}
		for driver, of := range devices {
			for _, slice := range Slices(Name(i), driver, of) {
				if _, err := client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Each calls do for 0 to n-1, sixteen calls at a time. The first error ends the context of all calls and is returned.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, calls := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		if calls.Err() != nil {
			break
		}
		group.Go(func() error { return do(calls, i) })
	}
	return cmp.Or(group.Wait(), ctx.Err())
}
