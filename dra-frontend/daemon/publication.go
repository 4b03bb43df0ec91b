// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/plugin"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

// publication learns what the API server made of the slices: they may not be
// written at all, and a server without a feature gate drops the fields of that
// feature. Everything works without these, so they are reported and nothing
// else.
type publication struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	client  kubernetes.Interface
	node    string
	// wanted is whether devices carry the node-allocatable mapping.
	wanted bool
	again  chan struct{}
	// interval is how often slices are read back that could not be written.
	interval time.Duration

	mu    sync.Mutex
	sent  []resourceapi.Device
	state string
	// failed is why the slices are not as they were sent.
	failed error
	// settled is the last state but pending, lacking are the features that the
	// server lacks: both were logged.
	settled string
	lacking []string
}

func newPublication(o Options) *publication {
	p := &publication{
		log: o.Log, metrics: o.Metrics, client: o.Client, node: o.Kubelet.NodeName, wanted: o.Config.NodeAllocatable,
		again: make(chan struct{}, 1), state: metrics.MappingOff, interval: o.Config.RefreshInterval.Duration,
	}
	p.metrics.SlicesOutdated(false)
	p.metrics.NodeAllocatable(p.state)
	return p
}

// sending is told of the devices that are about to be written.
func (p *publication) sending(devices []resourceapi.Device) {
	p.mu.Lock()
	p.sent = devices
	if p.wanted {
		p.set(metrics.MappingPending)
	}
	p.mu.Unlock()
	p.wake()
}

// notWritten is told by the helper of a write that failed. The helper tries
// again, and does not tell when it has succeeded.
func (p *publication) notWritten(err error) {
	p.mu.Lock()
	p.fail(fmt.Errorf("ResourceSlices of this node are not written, pods are scheduled by what they said before: %w", err))
	p.mu.Unlock()
	p.metrics.SliceWriteFailed()
	p.wake()
}

// failure returns why the slices are not as they were sent, nil if they are or
// no write has failed.
func (p *publication) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// fail notes whether a write failed. The lock is held.
func (p *publication) fail(err error) {
	if err == nil && p.failed != nil {
		p.log.Info("ResourceSlices of this node are written again")
	}
	p.failed = err
	p.metrics.SlicesOutdated(err != nil)
}

func (p *publication) wake() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// featureMapping is the feature gate of the node-allocatable mapping.
const featureMapping = "DRANodeAllocatableResources"

// dropped is told by the helper, after a write, what the server has not kept.
func (p *publication) dropped(err *resourceslice.DroppedFieldsError) {
	features := err.DisabledFeatures()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(nil)
	// The library cannot name this one.
	if !resourceslices.KeepsNodeAllocatable(err.DesiredSlice.Spec.Devices, []resourceapi.ResourceSlice{*err.ActualSlice}) {
		features = append(features, featureMapping)
		p.settle(metrics.MappingDropped)
	}
	// Every write of every slice tells it again.
	if fresh := slices.DeleteFunc(slices.Clone(features), func(f string) bool { return slices.Contains(p.lacking, f) }); len(fresh) > 0 {
		p.lacking = append(p.lacking, fresh...)
		p.log.Warn("the API server dropped fields of the ResourceSlices: these feature gates are off, or of another release",
			zap.Strings("features", fresh), zap.Error(err))
	}
}

// run reads the slices back after each publication, until they carry the
// mapping or the server is known to drop it, and after a write that failed.
func (p *publication) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.again:
		}
		for wait := p.wait(); wait > 0 && !p.readBack(ctx); wait = p.wait() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// wait returns how long to wait between two readings, 0 if nothing is to be
// read.
func (p *publication) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.failed != nil:
		return p.interval
	case p.state == metrics.MappingPending:
		return pollInterval
	}
	return 0
}

// readBack reports whether the slices are as they were sent. What is absent may
// only not have been written yet.
func (p *publication) readBack(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := p.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorDriver: plugin.DriverName, resourceapi.ResourceSliceSelectorNodeName: p.node,
	}.String()})
	if err != nil {
		p.log.Debug("slices not read back, tried again", zap.Error(err))
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil && resourceslices.Published(p.sent, list.Items) {
		p.fail(nil)
	}
	if p.state == metrics.MappingPending && resourceslices.KeepsNodeAllocatable(p.sent, list.Items) {
		p.settle(metrics.MappingActive)
	}
	return p.failed == nil && p.state != metrics.MappingPending
}

// callTimeout is of a read that nothing waits for.
const callTimeout = 10 * time.Second

// settle ends the wait. The lock is held.
func (p *publication) settle(state string) {
	if !p.wanted {
		return
	}
	p.set(state)
	if p.settled == state {
		return
	}
	p.settled = state
	if state == metrics.MappingActive {
		p.log.Info("claims are counted against what the node can allocate: the API server keeps the mapping")
	} else {
		p.log.Warn("claims are not counted against what the node can allocate: the API server drops the mapping", zap.String("featureGate", featureMapping))
	}
}

func (p *publication) set(state string) {
	p.state = state
	p.metrics.NodeAllocatable(state)
}
