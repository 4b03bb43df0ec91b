// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the API objects that claims of this driver depend on, and
// counts what claims take of each zone. It is the start of the commands about a
// cluster. Only Read and ReadAll do I/O.
package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// Objects are the API objects of a cluster.
type Objects struct {
	// Slices and Claims are the ResourceSlices of all drivers and the claims of all
	// namespaces: the scheduler counts them all. Devices have the taints of
	// DeviceTaintRules as well.
	Slices []*resourceapi.ResourceSlice
	Claims []*resourceapi.ResourceClaim
	// Nodes and Classes are what ReadAll reads beside them.
	Nodes   []*corev1.Node
	Classes []*resourceapi.DeviceClass
}

// Read reads the slices and the claims. The user needs the right to list both in all
// namespaces. DeviceTaintRules count where the API server serves them (Kubernetes 1.36, off
// by default) and the user may list them.
func Read(ctx context.Context, client kubernetes.Interface) (Objects, error) {
	var o Objects
	var rules []*resourcev1beta2.DeviceTaintRule
	tainted := list(ctx, "DeviceTaintRules", client.ResourceV1beta2().DeviceTaintRules().List, &rules)
	if apierrors.IsNotFound(tainted) || apierrors.IsForbidden(tainted) {
		tainted = nil
	}
	err := errors.Join(tainted,
		list(ctx, "ResourceSlices", client.ResourceV1().ResourceSlices().List, &o.Slices),
		list(ctx, "ResourceClaims of all namespaces", client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List, &o.Claims),
	)
	taint(o.Slices, rules)
	return o, err
}

// taint adds the taints of the rules to the devices that they select, as the scheduler does.
func taint(slices []*resourceapi.ResourceSlice, rules []*resourcev1beta2.DeviceTaintRule) {
	selects := func(selector *string, name string) bool { return selector == nil || *selector == name }
	for _, rule := range rules {
		selector := rule.Spec.DeviceSelector
		if selector == nil { // Selects nothing. An empty selector selects all devices.
			continue
		}
		added := resourceapi.DeviceTaint{
			Key: rule.Spec.Taint.Key, Value: rule.Spec.Taint.Value,
			Effect: resourceapi.DeviceTaintEffect(rule.Spec.Taint.Effect), TimeAdded: rule.Spec.Taint.TimeAdded,
		}
		for _, slice := range slices {
			if !selects(selector.Driver, slice.Spec.Driver) || !selects(selector.Pool, slice.Spec.Pool.Name) {
				continue
			}
			for i := range slice.Spec.Devices {
				if device := &slice.Spec.Devices[i]; selects(selector.Device, device.Name) {
					device.Taints = append(device.Taints, added)
				}
			}
		}
	}
}

// ReadAll reads the nodes and the DeviceClasses as well.
func ReadAll(ctx context.Context, client kubernetes.Interface) (Objects, error) {
	o, err := Read(ctx, client)
	err = errors.Join(err,
		list(ctx, "Nodes", client.CoreV1().Nodes().List, &o.Nodes),
		list(ctx, "DeviceClasses", client.ResourceV1().DeviceClasses().List, &o.Classes),
	)
	return o, err
}

// list reads all objects, in pages: a large cluster has thousands.
func list[L runtime.Object, T any](
	ctx context.Context, what string, page func(context.Context, metav1.ListOptions) (L, error), into *[]*T,
) error {
	all := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return page(ctx, o) })
	err := all.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		item, is := object.(any).(*T)
		if !is {
			return fmt.Errorf("the API server listed a %T", object)
		}
		*into = append(*into, item)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}
