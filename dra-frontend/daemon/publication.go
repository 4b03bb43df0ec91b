// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
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

// publication learns what the API server made of the slices: a server without
// a feature gate drops the fields of that feature. Everything works without
// them, so they are reported and nothing else.
type publication struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	client  kubernetes.Interface
	node    string
	// wanted is whether devices carry the node-allocatable mapping.
	wanted bool
	again  chan struct{}

	mu    sync.Mutex
	sent  []resourceapi.Device
	state string
	// settled is the last state but pending, lacking are the features that the
	// server lacks: both were logged.
	settled string
	lacking []string
}

func newPublication(o Options) *publication {
	p := &publication{
		log: o.Log, metrics: o.Metrics, client: o.Client, node: o.Kubelet.NodeName, wanted: o.Config.NodeAllocatable,
		again: make(chan struct{}, 1), state: metrics.MappingOff,
	}
	p.metrics.NodeAllocatable(p.state)
	return p
}

// sending is told of the devices that are about to be written.
func (p *publication) sending(devices []resourceapi.Device) {
	if !p.wanted {
		return
	}
	p.mu.Lock()
	p.sent = devices
	p.set(metrics.MappingPending)
	p.mu.Unlock()
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
// mapping or the server is known to drop it.
func (p *publication) run(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.again:
		}
		for p.pending() {
			if p.readBack(ctx) {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}
}

func (p *publication) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == metrics.MappingPending
}

// readBack reports whether the mapping stands in the slices. One that is absent
// may only not have been written yet.
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
	if p.state != metrics.MappingPending || !resourceslices.KeepsNodeAllocatable(p.sent, list.Items) {
		return false
	}
	p.settle(metrics.MappingActive)
	return true
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
