// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

// sliceMonitor reports how the API server keeps the slices. A write may fail,
// and a server without a feature gate drops that feature's fields. The driver
// works without these fields, so sliceMonitor only reports.
type sliceMonitor struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	client  kubernetes.Interface
	node    string
	// wanted reports whether devices carry the node-allocatable mapping.
	wanted bool
	// lists reports whether devices may have lists as attributes.
	lists bool
	again chan struct{}
	// interval is the pause between readings after a failed write.
	interval time.Duration

	mu    sync.Mutex
	sent  []resourceapi.Device
	state string
	// failed is the error of a write, nil once the server has the slices.
	failed error
	// lastFinalMapping is the last state other than pending, lacking has the features
	// that the server lacks. Both were logged.
	lastFinalMapping string
	lacking          []string
}

func newSliceMonitor(o Options) *sliceMonitor {
	p := &sliceMonitor{
		log: o.Log, metrics: o.Metrics, client: o.Client, node: o.Kubelet.NodeName, wanted: o.Config.NodeAllocatable,
		lists: o.Config.PublishPCIeRoots || o.Config.NUMANodeForm == config.NUMANodeList,
		again: make(chan struct{}, 1), state: metrics.MappingOff, interval: o.Config.RefreshInterval.Duration,
	}
	p.metrics.SlicesOutdated(false)
	p.metrics.NodeAllocatable(p.state)
	return p
}

// setSent stores the devices that are about to be written.
func (p *sliceMonitor) setSent(devices []resourceapi.Device) {
	p.mu.Lock()
	p.sent = devices
	if p.wanted {
		p.set(metrics.MappingPending)
	}
	p.mu.Unlock()
	p.wake()
}

// notWritten stores the error of a write. The helper writes again and does not
// report success, so the slices are read back.
func (p *sliceMonitor) notWritten(err error) {
	p.mu.Lock()
	hint := ""
	if p.lists && apierrors.IsInvalid(err) {
		// Before the error: an event is cut off after 1024 bytes.
		hint = "numaNodeForm list and publishPCIeRoots need the feature gate " + featureLists + " on API server and scheduler: "
	}
	p.setWriteError(fmt.Errorf("ResourceSlices of this node are not written, and the scheduler still uses their former content: %s%w",
		hint, err))
	p.mu.Unlock()
	p.metrics.SliceWriteFailed()
	p.wake()
}

// failure returns why the slices are not as they were sent, nil after a
// successful write or before the first failure.
func (p *sliceMonitor) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// setWriteError stores the error of a write, nil for success. The caller holds the lock.
func (p *sliceMonitor) setWriteError(err error) {
	if err == nil && p.failed != nil {
		p.log.Info("ResourceSlices of this node are written again")
	}
	p.failed = err
	p.metrics.SlicesOutdated(err != nil)
}

func (p *sliceMonitor) wake() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// featureMapping is the feature gate of the node-allocatable mapping.
const featureMapping = "DRANodeAllocatableResources"

// featureLists is the feature gate of lists as attributes. Without it the API
// server drops a list and refuses the attribute that has no value then.
const featureLists = "DRAListTypeAttributes"

// noteDropped stores the fields that the server did not keep. The helper calls it
// after a write.
func (p *sliceMonitor) noteDropped(err *resourceslice.DroppedFieldsError) {
	features := err.DisabledFeatures()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setWriteError(nil)
	// The library cannot name the mapping's feature.
	if !resourceslices.KeepsNodeAllocatable(err.DesiredSlice.Spec.Devices, []resourceapi.ResourceSlice{*err.ActualSlice}) {
		features = append(features, featureMapping)
		p.setFinalMapping(metrics.MappingDropped)
	}
	// Each write of each slice reports the features again.
	if fresh := slices.DeleteFunc(slices.Clone(features), func(f string) bool { return slices.Contains(p.lacking, f) }); len(fresh) > 0 {
		p.lacking = append(p.lacking, fresh...)
		p.log.Warn("the API server dropped fields of the ResourceSlices: these feature gates are off, or of another release",
			zap.Strings("features", fresh), zap.Error(err))
	}
}

// run reads the slices back after a failed write until they are as sent, and
// after each publication until they have the mapping or the server has dropped
// it.
func (p *sliceMonitor) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.again:
		}
		for wait := p.pause(); wait > 0; wait = p.pause() {
			done, err := p.readBack(ctx)
			if done {
				break
			}
			if err != nil {
				p.log.Debug("slices not read back; the frontend tries again", zap.Error(err))
				wait = p.interval // an API server in trouble is not asked each second
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// pause returns the pause between two readings, 0 if no reading is needed.
func (p *sliceMonitor) pause() time.Duration {
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

// readBack reads the slices and reports whether no further reading is needed.
// An absent mapping stays pending: the server may not have the slices yet.
func (p *sliceMonitor) readBack(ctx context.Context) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := p.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorDriver: kubelet.DriverName, resourceapi.ResourceSliceSelectorNodeName: p.node,
	}.String()})
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil && resourceslices.Published(p.sent, list.Items) {
		p.setWriteError(nil)
	}
	if p.state == metrics.MappingPending && resourceslices.KeepsNodeAllocatable(p.sent, list.Items) {
		p.setFinalMapping(metrics.MappingActive)
	}
	return p.failed == nil && p.state != metrics.MappingPending, nil
}

// callTimeout limits a read that blocks no other work.
const callTimeout = 10 * time.Second

// setFinalMapping stores and logs the mapping's final state. The caller holds the lock.
func (p *sliceMonitor) setFinalMapping(state string) {
	if !p.wanted {
		return
	}
	p.set(state)
	if p.lastFinalMapping == state {
		return
	}
	p.lastFinalMapping = state
	if state == metrics.MappingActive {
		p.log.Info("claims are counted against what the node can allocate: the API server keeps the mapping")
	} else {
		p.log.Warn("claims are not counted against what the node can allocate: the API server drops the mapping",
			zap.String("featureGate", featureMapping))
	}
}

func (p *sliceMonitor) set(state string) {
	p.state = state
	p.metrics.NodeAllocatable(state)
}
