// SPDX-License-Identifier: Apache-2.0

// Package daemon is the frontend as a running process. It starts the parts in
// the order that keeps the invariants: only the active instance writes, the
// node state before the slices. Then it keeps node state and slices current.
package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/instances"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubeletconfig"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Options are what the daemon needs. All are required but Kubelet.PodUID and
// Release.
type Options struct {
	Log     *zap.Logger
	Config  config.Config
	Client  kubernetes.Interface
	Kubelet Kubelet
	Metrics *metrics.Metrics
	// PageSize is the base page size in bytes.
	PageSize int64
	// Release is this instance's release, as "namespace/name".
	Release string
}

// Daemon is the running frontend.
type Daemon struct {
	o            Options
	status       *status
	instance     *instances.Instance
	registration *registration
	// helper answers kubelet; nil while this instance is not registered.
	helper    atomic.Pointer[kubeletplugin.Helper]
	dir       ledger.ClaimDir
	driver    *kubelet.Driver
	actuator  actuator
	bootID    string
	reports   *reporter
	joins     *podclaims.Watcher
	statuses  *claimstatus.Writer
	events    *events.Writer
	published *sliceMonitor
}

// pollInterval is how soon a dead actuator is noticed. A poll is an open and a
// lock query of one small file.
const pollInterval = time.Second

// soonProtected is how long after a change of the CDI directory each poll looks for the memory protection of a claim whose
// pod is starting. Later the refresh looks.
const soonProtected = time.Minute

// looksSoon reports whether a poll looks for memory protection, so long after the last change of the CDI directory.
func looksSoon(allProtected bool, after time.Duration) bool {
	return !allProtected && after < soonProtected
}

// New does the steps that may fail for good: it reads the machine and opens the
// CDI directory. An unfit node is no error: its claims must be released, and a
// rolling update must go on to other nodes.
func New(o Options) (*Daemon, error) {
	d := &Daemon{o: o, registration: &registration{rootDir: o.Kubelet.RootDir}}
	d.events = events.New(events.Options{Log: o.Log, Client: o.Client, Driver: kubelet.DriverName, Node: o.Kubelet.NodeName})
	d.reports = newReporter(o, d.events.Send)
	d.published = newSliceMonitor(o)
	proc := os.DirFS(o.Config.ProcRoot)
	first := observation{actuatorFault: errNotChecked, blocked: errNotChecked}
	now, err := d.observeFitness(first)
	if err != nil {
		return nil, err
	}
	d.reports.logNode(first, now)
	checked := now
	bootID, err := preflight.BootID(proc)
	if err != nil {
		return nil, err
	}
	d.bootID = bootID
	d.actuator = actuator{contract.NewAnnouncementReader(o.Config.CDIDir)}
	now.announced = now.announced.after(d.actuator.Announcement()) // the loop reports an error
	if now.machine, err = d.discover(topology.Machine{}, now.announced.kubepods); err != nil {
		return nil, err
	}
	if now.divided, err = o.Config.Divide(now.machine); err != nil {
		return nil, err
	}
	d.reports.logNode(checked, now)
	d.status = newStatus(now)

	dir, err := cdidir.Open(o.Config.CDIDir)
	if err != nil {
		return nil, err
	}
	d.dir = ledger.NewClaimDir(dir, filepath.Join(o.Kubelet.dataDir(), "cdi-dir.json"), bootID)
	if err := errors.Join(d.dir.Check(), d.dir.CheckWritable()); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Kubelet.dataDir(), 0o750); err != nil {
		return nil, err
	}
	if d.instance, err = instances.Open(o.Kubelet.dataDir(), instances.Identity{PodUID: o.Kubelet.PodUID, Release: o.Release}); err != nil {
		return nil, err
	}
	reader := podclaims.NewReader(o.Client)
	d.driver = kubelet.New(kubelet.Options{
		Log: o.Log, Lock: d.instance, Ledger: ledger.New(d.dir, bootID), SlicePool: o.Kubelet.NodeName, BootID: bootID,
		Guard: o.Config.Guard, GuardWait: o.Config.GuardWait.Duration,
		Inventory: decision.InventoryOf(o.Config, now.divided, bootID), Settings: parameters.Defaults(o.Config, o.PageSize),
		Pods: reader, Claims: reader, Cgroups: newPodCgroups(o.Config, d.actuator.announcements),
		Node: podclaims.NewNode(o.Client, o.Kubelet.NodeName), NoMemoryHigh: preflight.MemoryHigh(proc),
		Machine:  func() quiet.Facts { return quiet.Read(os.DirFS(o.Config.SysfsRoot)) },
		Actuator: applier{d.actuator, d.status}, Recorder: o.Metrics, MemoryCapacity: memoryCapacity(o.Config, proc),
		Metadata: func(ctx context.Context, claim *resourceapi.ResourceClaim, devices []kubeletplugin.Device) error {
			return o.metadata().update(ctx, d.helper.Load(), claim, devices)
		},
	})
	return d, nil
}

// kubeletConfig returns the options of the watcher of kubelet's configuration.
func (o Options) kubeletConfig(send func(events.Notice)) kubeletconfig.Options {
	return kubeletconfig.Options{
		Log: o.Log, Metrics: o.Metrics, Client: o.Client, Send: send, Node: o.Kubelet.NodeName,
		Owner: o.Config.MemoryQoS.Owner, Path: o.Config.KubeletConfigFile, Interval: o.Config.RefreshInterval.Duration,
	}
}

// memoryCapacity returns a reader of the node's memory in bytes, nil if
// oom_score_adj is left to kubelet.
func memoryCapacity(c config.Config, proc fs.FS) func() (int64, error) {
	if c.MemoryQoS.OOMScore == config.OOMScoreKeep {
		return nil
	}
	return func() (int64, error) { return topology.MemoryTotal(proc) }
}

// Run serves kubelet and keeps slices and node state current while this instance
// is the active one. It returns when ctx ends or on an error.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	writers.Go(func() { d.events.Run(ctx) })
	for {
		if err := d.turn(ctx); !errors.Is(err, errHandedOver) {
			return err
		}
		d.o.Log.Info("handed over to a newer instance of the frontend; this instance waits in case the newer instance ends")
	}
}

// turn waits until this instance is the active one and works until it hands
// over (errHandedOver) or ctx ends.
func (d *Daemon) turn(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	helper, err := d.activate(ctx, fail)
	// stepDown runs last: the next instance may write only after this instance's
	// goroutines have ended.
	defer d.stepDown()
	if err != nil {
		return ended(ctx, err)
	}
	// Slices stay: a restart must not make the devices of running claims
	// vanish. Kubelet removes the slices if no instance comes back.
	defer func() { d.withdraw(helper) }()
	if err := d.removeStale(); err != nil {
		return err
	}
	// The watch starts before the claim files are read, so that no change is missed.
	changes := d.dir.Changes(cdidir.Watch{
		Renew: d.o.Config.RefreshInterval.Duration, Concerns: concerns,
		Warn: func(text string, err error) { d.o.Log.Warn(text, zap.Error(err)) },
	})
	changes.Start()
	d.joins = podclaims.NewWatcher(d.o.Client, d.o.Log, d.driver.Join)
	d.statuses = claimstatus.New(claimstatus.Options{
		Log: d.o.Log, Client: d.o.Client, Driver: kubelet.DriverName, SlicePool: d.o.Kubelet.NodeName, Written: d.o.Metrics.StatusWritten,
	})
	// The machine may have changed while this instance waited.
	now, _ := d.status.get()
	d.conclude(d.observeAll(ctx, d.readReceipts(d.observeMachine(now.observation))))
	d.showClaims()
	var writers sync.WaitGroup
	defer writers.Wait()
	// Watches of claims write claim files: they end before the hand-over.
	defer d.joins.Wait()
	defer fail(nil)
	writers.Go(func() { changes.Run(ctx) })
	writers.Go(func() { d.statuses.Run(ctx) })
	writers.Go(func() { d.published.run(ctx) })
	writers.Go(func() { kubeletconfig.NewWatcher(d.o.kubeletConfig(d.events.Send)).Run(ctx) })
	writers.Go(func() { newOrphans(d.o, d.driver, d.events.Send).run(ctx) })
	if helper == nil {
		if helper, err = d.serve(ctx, fail); err != nil {
			return ended(ctx, err)
		}
	}
	if err := d.publish(ctx, helper); err != nil {
		return ended(ctx, err)
	}
	return d.loop(ctx, helper, changes.C())
}

// removeStale removes unfinished files, under the lock of the CDI directory: a
// version of the frontend without the active instance's lock may be writing.
func (d *Daemon) removeStale() error {
	release, err := d.instance.Acquire()
	if err != nil {
		return err
	}
	// Since New, the previous active instance may have prepared claims in
	// another directory.
	return errors.Join(d.dir.Check(), d.dir.RemoveStale(), d.bookFile().RemoveStale(), release())
}

// loop keeps slices and node state current until ctx ends, or until a newer
// instance asks to take over (errHandedOver).
func (d *Daemon) loop(ctx context.Context, helper *kubeletplugin.Helper, changes <-chan struct{}) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	refresh := time.NewTicker(d.o.Config.RefreshInterval.Duration)
	defer refresh.Stop()
	lastChange := time.Now() // when the CDI directory changed last, or may have
	for {
		now, _ := d.status.get()
		o, changed := now.observation, false
		select {
		case <-ctx.Done():
			return ended(ctx, nil)
		case <-changes:
			o, lastChange = d.observeAll(ctx, o), time.Now()
		case <-poll.C:
			if d.asked() {
				return errHandedOver
			}
			o = d.observeActuator(ctx, o)
			switch announced := !reflect.DeepEqual(o.announced, now.announced); {
			case announced:
				o = d.observeReceipts(d.observeCgroups(o))
			case looksSoon(now.allProtected, time.Since(lastChange)):
				o = d.observeCgroups(o)
			}
		case <-refresh.C:
			if err := atomicfile.CheckDir(d.o.Config.CDIDir); errors.Is(err, atomicfile.ErrReplaced) {
				return err
			}
			var err error
			if o, err = d.observeFitness(o); err != nil {
				return err
			}
			// Prepare refuses claims from here on if the node is unfit.
			changed = d.conclude(o)
			o = d.observeAll(ctx, d.observeMachine(o))
		}
		if d.conclude(o) || changed {
			if err := d.publish(ctx, helper); err != nil {
				return ended(ctx, err)
			}
		}
	}
}

// observeAll observes all but the machine and the node's fitness. It brings the node
// file and the watches of claims in line with the claim files.
func (d *Daemon) observeAll(ctx context.Context, o observation) observation {
	return d.observeReceipts(d.observeCgroups(d.observeActuator(ctx, d.reconcile(ctx, o))))
}

// conclude assesses an observation, reports what is new, and stores both for
// kubelet's calls. It returns whether the slices must change.
func (d *Daemon) conclude(o observation) (changed bool) {
	before, _ := d.status.get()
	o.slicesFault = d.published.failure()
	if reflect.DeepEqual(o, before.observation) {
		d.reports.report(before, before)
		return false
	}
	now := state{observation: o, assessment: assess(o, d.o.Config)}
	d.reports.report(before, now)
	d.status.set(now)
	d.showClaims()
	return !equality.Semantic.DeepEqual(before.devices, now.devices)
}

// showClaims gives the claims and their findings to the writer of their status.
func (d *Daemon) showClaims() {
	now, _ := d.status.get()
	d.statuses.Set(now.claims, claimstatus.Report{Health: now.health.Results, Protection: now.protection, Quiet: now.quiet})
}

// ended returns err while ctx goes on, the cause if a part of the daemon ended
// ctx, and nil if ctx was cancelled: an interrupted publication is no failure.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// publish hands the devices over to the helper, which writes the slices that differ
// from those of the API server, and tries again after an error.
func (d *Daemon) publish(ctx context.Context, helper *kubeletplugin.Helper) error {
	now, _ := d.status.get()
	d.o.Log.Info("publishing", zap.Strings("zones", now.divided.Names()), zap.Bool("tainted", len(taints(now.observation)) > 0))
	d.published.setSent(now.devices)
	return helper.PublishResources(ctx, resourceslices.DriverResources(d.o.Kubelet.NodeName, now.devices))
}

// Ready returns why kubelet does not call this instance, nil if kubelet does. A
// rolling update waits for nil. ServesClaims is separate because an unfit node must
// not stop the update of other nodes.
func (d *Daemon) Ready() error {
	err := d.registration.missing()
	if standby := d.status.standbyReason(); err != nil && standby != nil {
		return standby
	}
	return err
}

// ServesClaims returns why this instance takes no new claims, nil if it takes claims.
func (d *Daemon) ServesClaims() error { return d.status.servesClaims() }
