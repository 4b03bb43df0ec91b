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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// Objects are the API objects of a cluster.
type Objects struct {
	// Slices and Claims are the ResourceSlices of all drivers and the claims of all
	// namespaces: the scheduler counts them all.
	Slices []*resourceapi.ResourceSlice
	Claims []*resourceapi.ResourceClaim
	// Nodes and Classes are what ReadAll reads beside them.
	Nodes   []*corev1.Node
	Classes []*resourceapi.DeviceClass
}

// Read reads the slices and the claims. The user needs the right to list both in all
// namespaces.
func Read(ctx context.Context, client kubernetes.Interface) (Objects, error) {
	var o Objects
	err := errors.Join(
		list(ctx, "ResourceSlices", client.ResourceV1().ResourceSlices().List, &o.Slices),
		list(ctx, "ResourceClaims of all namespaces", client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List, &o.Claims),
	)
	return o, err
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
