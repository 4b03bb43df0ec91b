// SPDX-License-Identifier: Apache-2.0

// Package daemon is the frontend as a running process: it starts the parts in
// the order that keeps the invariants, then keeps them current. The ledger is
// whole and the node state written before kubelet may call; slices come last.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/durable"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/inventory"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/notices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/plugin"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/pods"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/reservations"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Options are what the daemon needs. All are required but Kubelet.PodUID.
type Options struct {
	Log     *zap.Logger
	Config  config.Config
	Client  kubernetes.Interface
	Kubelet Kubelet
	Metrics *metrics.Metrics
	// PageSize is the base page size in bytes.
	PageSize int64
}

// Daemon is the running frontend.
type Daemon struct {
	o       Options
	status  *status
	driver  *plugin.Driver
	helper  atomic.Pointer[kubeletplugin.Helper]
	bootID  string
	machine atomic.Pointer[inventory.Inventory]
	// offered are the zones to publish, less what claims hold of other zones.
	offered   atomic.Pointer[[]zones.Zone]
	displaced []contract.ClaimRecord
	// claims are the prepared ones that were read last, health what the machine
	// lacks of them.
	claims     []contract.ClaimRecord
	health     map[contract.Key]health.Finding
	protection *protected
	partitions *partitions
	joins      *reservations.Watcher
	statuses   *claimstatus.Writer
	notices    *notices.Writer
	published  *publication
}

// pollInterval is how soon a dead actuator is noticed. Looking is an open and
// a lock query of one small file.
const pollInterval = time.Second

// New does what can fail for good: it checks the node, reads the machine and
// opens the CDI directory.
func New(o Options) (*Daemon, error) {
	d := &Daemon{o: o}
	d.status = newStatus(func() error {
		h := d.helper.Load()
		if h == nil {
			return errors.New("the kubelet plugin has not started yet")
		}
		return registration(h, o.Kubelet.RootDir)
	})
	d.statuses = claimstatus.New(claimstatus.Options{Log: o.Log, Client: o.Client, Driver: plugin.DriverName, Written: o.Metrics.StatusWritten})
	d.notices = notices.New(notices.Options{Log: o.Log, Client: o.Client, Driver: plugin.DriverName, Node: o.Kubelet.NodeName})
	d.protection = newProtected(o, d.notices.Send)
	d.partitions = newPartitions(o, d.notices.Send)
	d.published = newPublication(o)
	proc := os.DirFS(o.Config.ProcRoot)
	warnings, err := preflight.Check(preflight.Node{
		Proc: proc, Kubelet: os.DirFS(o.Config.KubeletRootDir),
		MemoryHigh: o.Config.MemoryQoS.ThrottlingFactor != nil,
	})
	if err != nil {
		return nil, fmt.Errorf("this node is not fit: %w", err)
	}
	for _, w := range warnings {
		o.Log.Warn("preflight", zap.String("finding", w))
	}
	bootID, err := preflight.BootID(proc)
	if err != nil {
		return nil, err
	}
	d.bootID = bootID
	machine, err := d.discover()
	if err != nil {
		return nil, err
	}
	d.machine.Store(&machine)

	dir, err := cdidir.Open(o.Config.CDIDir)
	if err != nil {
		return nil, err
	}
	if err := dir.CheckWritable(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Kubelet.dataDir(), 0o750); err != nil {
		return nil, err
	}
	lock := cdidir.NewLock(filepath.Join(o.Kubelet.dataDir(), "ledger.lock"))
	if err := removeStale(dir, lock); err != nil {
		return nil, err
	}
	d.driver = plugin.New(plugin.Options{
		Log: o.Log, Lock: lock, Ledger: ledger.New(dir, bootID), BootID: bootID, Guard: o.Config.Guard,
		Inventory: machine.Plugin(o.Config, bootID), Settings: parameters.Defaults(o.Config, o.PageSize), Pods: pods.NewReader(o.Client),
		Node: pods.NewNode(o.Client, o.Kubelet.NodeName), NoMemoryHigh: preflight.MemoryHigh(proc),
		Actuator: actuator{dir: o.Config.CDIDir}, Recorder: o.Metrics, MemoryCapacity: memoryCapacity(o.Config, proc),
	})
	return d, nil
}

// memoryCapacity is nil where oom_score_adj stays as it is.
func memoryCapacity(c config.Config, proc fs.FS) func() (int64, error) {
	if c.MemoryQoS.OOMScore == config.OOMScoreKeep {
		return nil
	}
	return func() (int64, error) { return topology.MemoryTotal(proc) }
}

// removeStale runs under the lock: another instance may be writing.
func removeStale(dir cdidir.Dir, lock cdidir.Lock) error {
	release, err := lock.Acquire()
	if err != nil {
		return err
	}
	return errors.Join(dir.RemoveStale(), release())
}

// Run serves kubelet and keeps slices and node state current until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Before the first look, so that no change falls between the two.
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	changes := signals(watcher)
	d.watch(watcher)
	d.joins = reservations.New(d.o.Client, d.o.Log, d.o.Config.RefreshInterval.Duration, d.driver.Join)
	d.look(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer fail(nil)
	writers.Go(func() { d.statuses.Run(ctx) })
	writers.Go(func() { d.published.run(ctx) })
	writers.Go(func() { d.notices.Run(ctx) })
	writers.Go(func() { newOwners(d.o, d.notices.Send).run(ctx) })
	helper, err := d.o.Kubelet.start(ctx, kubeletSide{
		Driver: d.driver, log: d.o.Log, status: d.status, pool: d.o.Kubelet.NodeName, fail: fail,
		published: d.published, metadata: metadata{on: d.o.Config.DeviceMetadata, cdiDir: d.o.Config.CDIDir, dataDir: d.o.Kubelet.dataDir()},
		devices: func() []resourceapi.Device { return d.machine.Load().Devices(*d.offered.Load(), nil) },
	}, d.o.Client)
	if err != nil {
		return err
	}
	// Stop does not withdraw the slices: kubelet does when no instance comes
	// back, and a restart must not make running claims' devices vanish.
	defer helper.Stop()
	d.helper.Store(helper)
	if err := d.publish(ctx, helper); err != nil {
		return ended(ctx, err)
	}
	// After the watches of claims have ended nobody writes any more.
	defer d.joins.Wait()
	defer fail(nil)
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	refresh := time.NewTicker(d.o.Config.RefreshInterval.Duration)
	defer refresh.Stop()
	for {
		changed := false
		select {
		case <-ctx.Done():
			return ended(ctx, nil)
		case <-changes:
			changed = d.look(ctx)
		case <-poll.C:
			changed = d.lookAtActuator()
		case <-refresh.C:
			if err := durable.CheckDir(d.o.Config.CDIDir); errors.Is(err, durable.ErrReplaced) {
				return err
			}
			d.watch(watcher)
			changed = d.rediscover()
			changed = d.look(ctx) || changed
		}
		if changed {
			if err := d.publish(ctx, helper); err != nil {
				return ended(ctx, err)
			}
		}
	}
}

// ended tells an end that was asked for, which may interrupt a publication,
// from a failure.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// publish writes the slices if they differ from what the API server has.
func (d *Daemon) publish(ctx context.Context, helper *kubeletplugin.Helper) error {
	n, _ := d.status.get()
	devices := d.machine.Load().Devices(*d.offered.Load(), taints(n))
	d.o.Log.Info("publishing", zap.Strings("zones", d.machine.Load().Names()), zap.Bool("tainted", len(taints(n)) > 0))
	d.published.sending(devices)
	return helper.PublishResources(ctx, resourceslices.DriverResources(d.o.Kubelet.NodeName, devices))
}

// Ready returns why the node takes no new claims, nil if it does.
func (d *Daemon) Ready() error { return d.status.ready() }
