// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

const (
	// patience is how long the nodes may take after the last of them has started.
	patience = 10 * time.Minute
	// quiet is how long calls are counted after all nodes are served.
	quiet = 3 * time.Second
)

// fleet are the nodes of a control plane.
type fleet struct {
	plane   hollow.ControlPlane
	pid     int // of the API server
	nodes   int
	within  time.Duration        // of the starts of all nodes
	devices []resourceapi.Device // of each node
	slices  int                  // that are there when all nodes have published
}

// result is what a start of all nodes took.
type result struct {
	event   string
	nodes   int
	within  time.Duration
	waits   []time.Duration // of each node until it was served, sorted
	traffic traffic
	cpu     time.Duration // of the API server
	memory  int64         // of the API server at the end, in bytes
}

// prepare makes the nodes, without slices.
func (f *fleet) prepare(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(f.plane.Config)
	if err != nil {
		return err
	}
	f.slices = f.nodes * len(hollow.Slices(hollow.Name(0), hollow.Driver, f.devices))
	rights := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, rights, metav1.CreateOptions{}); err != nil {
		return err
	}
	return hollow.Publish(ctx, client, f.nodes, nil)
}

// The service account of all frontends.
const namespace, account = "cpumem-system", "frontend"

// asFrontend returns the configuration of a frontend's client. The API server's limits for service accounts hold for it, which hold for
// no administrator, and the limits of calls that dra-frontend has.
func asFrontend(administrator *rest.Config) *rest.Config {
	config := rest.CopyConfig(administrator)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	config.QPS, config.Burst = 50, 100
	return config
}

// start starts the publishers of all nodes, waits until all are served, and ends the publishers and their connections.
func (f *fleet) start(ctx context.Context, event string) (r result, err error) {
	ctx, stop := context.WithTimeout(ctx, f.within+patience)
	defer stop()
	before, err := hollow.CPUTime(f.pid)
	if err != nil {
		return result{}, err
	}
	count, dialer := newCounter(), connrotation.NewDialer((&net.Dialer{}).DialContext)
	failed := make(chan error, f.nodes)
	var publishers sync.WaitGroup
	defer func() {
		stop()
		publishers.Wait()
		dialer.CloseAll()
	}()
	for i := range f.nodes {
		publishers.Go(func() {
			select {
			case <-time.After(f.within * time.Duration(i) / time.Duration(f.nodes)):
			case <-ctx.Done():
				return
			}
			if err := f.publish(ctx, i, count, dialer); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	if err := f.served(ctx, count, failed); err != nil {
		return result{}, err
	}
	traffic, waits := count.get()
	r = result{event: event, nodes: f.nodes, within: f.within, waits: waits, traffic: traffic}
	after, err := hollow.CPUTime(f.pid)
	if err != nil {
		return result{}, err
	}
	r.cpu = after - before
	r.memory, err = resident(f.pid)
	return r, err
}

func nodePath(i int) string { return "/api/v1/nodes/" + hollow.Name(i) }

// publish runs the publisher of a node until ctx ends, with a connection of its own.
func (f *fleet) publish(ctx context.Context, i int, count *counter, dialer *connrotation.Dialer) error {
	config := asFrontend(f.plane.Config)
	// Clients share a connection unless each has a dial function of its own.
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}
	config.Wrap(count.through(i, time.Now()))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	resources := resourceslices.DriverResources(hollow.Name(i), f.devices)
	// The start waits for the API server's first answer.
	publisher, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: hollow.Driver, KubeClient: client, Resources: &resources,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: hollow.Name(i)},
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	publisher.Stop()
	return nil
}

// served waits until all publishers have done the calls of their start and the API server has the slices of all nodes, and
// then for the time quiet, in which no node should write. The first publisher that fails to start ends the wait.
func (f *fleet) served(ctx context.Context, count *counter, failed <-chan error) error {
	client, err := kubernetes.NewForConfig(f.plane.Config)
	if err != nil {
		return err
	}
	var all <-chan time.Time // when all nodes have been served for the time quiet
	for {
		_, waits := count.get()
		found := int64(0)
		var problem error
		if len(waits) == f.nodes && all == nil {
			// The rest is only counted: a list of all slices would be a part of the load.
			list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{Limit: 1})
			if problem = err; err == nil {
				found = int64(len(list.Items)) + ptr.Deref(list.RemainingItemCount, 0)
			}
			if found >= int64(f.slices) {
				all = time.After(quiet)
			}
		}
		select {
		case <-all:
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("after %s %d of %d nodes are served, and %d of %d slices are there (last error: %v): %w",
				f.within+patience, len(waits), f.nodes, found, f.slices, problem, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// resident returns the memory of a process in bytes, VmRSS of /proc/PID/status (proc(5)).
func resident(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, is := strings.CutPrefix(line, "VmRSS:"); is {
			var kib int64
			_, err := fmt.Sscan(value, &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
}
