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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

// patience is how long a start may take.
const patience = 10 * time.Minute

// fleet are the nodes of a control plane.
type fleet struct {
	plane   hollow.ControlPlane
	pid     int // of the API server
	nodes   int
	devices devicesOf
	slices  int // that are there when all nodes have published
}

// result is what a start of all nodes took.
type result struct {
	event   string
	nodes   int
	took    time.Duration // until the slices of all nodes are there and all watches are accepted
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
	return hollow.Publish(ctx, client, f.nodes, nil)
}

// start starts the publishers of all nodes, waits until all are served, and ends them.
func (f *fleet) start(ctx context.Context, event string) (r result, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	before, err := hollow.CPUTime(f.pid)
	if err != nil {
		return result{}, err
	}
	count := &counter{}
	began := time.Now()
	publishers := make([]*resourceslice.Controller, f.nodes)
	failed := make(chan error, f.nodes)
	var starts sync.WaitGroup
	// Publishers end before the next start.
	defer func() {
		stop()
		starts.Wait()
		var stops sync.WaitGroup
		for _, p := range publishers {
			if p != nil {
				stops.Go(p.Stop)
			}
		}
		stops.Wait()
	}()
	for i := range publishers { // A publisher's start waits for the API server.
		starts.Go(func() {
			var err error
			if publishers[i], err = f.publisher(ctx, i, count); err != nil {
				failed <- err
			}
		})
	}
	if err := f.served(ctx, count, failed); err != nil {
		return result{}, err
	}
	r = result{event: event, nodes: f.nodes, took: time.Since(began), traffic: count.get()}
	after, err := hollow.CPUTime(f.pid)
	if err != nil {
		return result{}, err
	}
	r.cpu = after - before
	r.memory, err = resident(f.pid)
	return r, err
}

// publisher starts the publisher of a node, with a connection of its own and the client's default limit of calls.
func (f *fleet) publisher(ctx context.Context, i int, count *counter) (*resourceslice.Controller, error) {
	config := rest.CopyConfig(f.plane.Config)
	config.QPS = 0
	// Clients with a dialer of their own share no connection.
	config.Dial = (&net.Dialer{}).DialContext
	config.Wrap(count.through)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	resources := resourceslices.DriverResources(hollow.Name(i), f.devices)
	return resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: hollow.Driver, KubeClient: client, Resources: &resources,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: hollow.Name(i)},
	})
}

// served waits until the API server has the slices of all nodes and their watches, or until a publisher failed to start.
func (f *fleet) served(ctx context.Context, count *counter, failed <-chan error) error {
	client, err := kubernetes.NewForConfig(f.plane.Config)
	if err != nil {
		return err
	}
	for {
		if count.get().watches >= f.nodes {
			// The rest is only counted: a list of all slices would be a part of the load.
			list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil && int64(len(list.Items))+ptr.Deref(list.RemainingItemCount, 0) >= int64(f.slices) {
				return nil
			}
		}
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d of %d watches: %w", count.get().watches, f.nodes, ctx.Err())
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
