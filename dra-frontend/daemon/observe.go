// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// observation is what the loop has read of the node. assess computes the rest
// from it. Each method of Daemon that observes takes the last observation and
// returns the next one.
type observation struct {
	// machine is the machine as it was read last. divided is the last machine that the configuration fits, as the
	// configuration divides it.
	machine topology.Machine
	divided zones.Division
	// preflightFault is why preflight found the node unfit. warnings are the
	// checks that preflight could not do.
	preflightFault error
	warnings       []string
	// configFault is why the configuration does not fit the machine, since the machine has changed.
	configFault error
	// claims are the prepared claims. blocked is why the node state cannot be brought in
	// line with the claim files: mostly claim files that cannot be read.
	claims  []contract.ClaimRecord
	blocked error
	// actuatorFault is why no actuator would apply a claim.
	actuatorFault error
	announced     announced
	// protection has the findings about the cgroups of claims.
	protection map[contract.Key]health.Protection
	// book has the counters from the start of each measurement, receipts what was measured
	// since.
	book receipt.Book
	// unmeasured is the logged reason why claims are not measured, empty if they are.
	unmeasured string
	receipts   map[contract.Key]receipt.Receipt
	// irqbalance reports whether irqbalance is running on this node.
	irqbalance bool
	// slicesFault is why the API server does not have the slices.
	slicesFault error
}

var errNotChecked = errors.New("not checked yet")

// announced is the part of the actuator's announcements that findings depend on.
type announced struct {
	// kubepods and invalidPartitions are the last that an actuator announced,
	// also while no actuator is running: an absent actuator repairs nothing.
	kubepods          string
	invalidPartitions map[string]string
	// partitionsKnown reports whether an actuator has announced invalidPartitions.
	partitionsKnown bool
	// fixedInterrupts and machineFaults are likewise about values of the machine.
	fixedInterrupts, machineFaults map[string]string
	// overwritten has the values that another program wrote, from a running
	// actuator.
	overwritten map[string]contract.Files
	progress    progress
}

// after returns the state after an announcement. err is why its actuator would
// apply no claim.
func (s announced) after(a contract.Announcement, err error) announced {
	if a.V != "" {
		s.progress = s.progress.withApplied(a.Generation)
	}
	if a.Kubepods != "" {
		s.kubepods = a.Kubepods
	}
	if err == nil {
		s.invalidPartitions, s.partitionsKnown = a.InvalidPartitions, true
		s.fixedInterrupts, s.machineFaults = a.FixedInterrupts, a.MachineFaults
	}
	s.overwritten = a.Overwritten
	return s
}

// progress is how far the actuator is with the node states.
type progress struct {
	// applied is the generation that the actuator announced last.
	applied uint64
	// behind is when the node file was first seen with a generation above applied, zero
	// while the node file has no such generation.
	behind time.Time
}

// grace is how long an actuator may be behind without any progress. The
// replacement of an actuator takes less; after that, missing values are a fault.
const grace = time.Minute

func (p progress) withApplied(generation uint64) progress {
	if generation != p.applied {
		return progress{applied: generation}
	}
	return p
}

// withWritten returns the progress after the node file was seen with a generation, 0 for a file that cannot be read. A file that
// was lost begins with a lower generation again.
func (p progress) withWritten(generation uint64, now time.Time) progress {
	if generation == 0 || generation == p.applied {
		p.behind = time.Time{}
	} else if p.behind.IsZero() {
		p.behind = now
	}
	return p
}

// pending reports whether the actuator has yet to apply the node file and is
// within its grace.
func (p progress) pending(now time.Time) bool { return !p.behind.IsZero() && now.Sub(p.behind) < grace }

// observeFitness checks whether the node can keep the driver's promises. After
// an error only a new container helps.
func (d *Daemon) observeFitness(o observation) (observation, error) {
	warnings, fault := preflight.Check(preflight.Node{
		Proc: os.DirFS(d.o.Config.ProcRoot), Kubelet: os.DirFS(d.o.Config.KubeletRootDir),
		MemoryHigh: d.o.Config.MemoryQoS.ThrottlingFactor != nil,
	})
	if errors.Is(fault, preflight.ErrReplaced) {
		return o, fmt.Errorf("%w: the container is started again to see it", fault)
	}
	o.warnings, o.preflightFault = warnings, nil
	if fault != nil {
		o.preflightFault = fmt.Errorf("this node is not fit: %w", fault)
	}
	return o, nil
}

// unfit returns why the node takes no new claims: it cannot keep the driver's promises.
func (o observation) unfit() error {
	if o.preflightFault != nil {
		return o.preflightFault
	}
	return o.configFault
}

// observeMachine reads the machine again. After an error the last machine stays, as
// claims depend on it. On a machine that the configuration does not fit the last
// zones stay for the claims that are prepared.
func (d *Daemon) observeMachine(o observation) observation {
	machine, err := d.discover(o.machine, o.announced.kubepods)
	if err != nil {
		d.o.Log.Error("machine not read, the last known one stands", zap.Error(err))
		return o
	}
	// Health needs more of the machine than the zones depend on.
	o.machine = machine
	divided, err := d.o.Config.Divide(machine)
	if err != nil {
		o.configFault = fmt.Errorf("the machine has changed: %w", err)
		return o
	}
	if !divided.Equal(o.divided) {
		d.driver.SetInventory(decision.InventoryOf(d.o.Config, divided, d.bootID))
	}
	o.divided, o.configFault = divided, nil
	return o
}

// discover reads the machine again, or for the first time if before has no CPU. kubepods is the cgroup of all pods that an actuator
// has announced, empty if none has.
func (d *Daemon) discover(before topology.Machine, kubepods string) (topology.Machine, error) {
	roots := topology.At(d.o.Config.SysfsRoot, d.o.Config.ProcRoot)
	roots.Kubepods = kubepods
	before.PageSize = d.o.PageSize // a first reading has no page size yet
	m, err := before.Reread(roots)
	if err != nil {
		return m, fmt.Errorf("read the machine: %w", err)
	}
	return m, nil
}

// reconcile reads the claim files and brings the node state and the watches of
// claims in line with them. An unreadable directory still has its claims: the last
// list stays.
func (d *Daemon) reconcile(ctx context.Context, o observation) observation {
	claims, blocked := d.driver.Reconcile()
	o.blocked = blocked
	if blocked == nil || claims != nil {
		o.claims = claims
		d.joins.Follow(ctx, claims)
	}
	return o
}

// observeActuator reads the announcement. It reads the machine again, and brings the node state in line with the machine, if
// the announced cgroup of all pods is another one.
func (d *Daemon) observeActuator(ctx context.Context, o observation) observation {
	a, err := d.actuator.Announcement()
	if err == nil && o.actuatorFault != nil {
		d.o.Log.Info("actuator is ready",
			zap.String("runtime", a.Runtime), zap.String("runtimeVersion", a.RuntimeVersion), zap.String("guard", a.Guard))
	}
	before := o.announced.kubepods
	o.actuatorFault, o.announced = err, o.announced.after(a, err)
	if o.announced.kubepods != before {
		// CPUs that this cgroup lacks must not be offered until the next look at the machine.
		o = d.reconcile(ctx, d.observeMachine(o))
	}
	return o
}

// observeCgroups compares claims with the memory protection of their cgroups.
func (d *Daemon) observeCgroups(o observation) observation {
	now := time.Now()
	generation := d.driver.Generation()
	d.o.Metrics.Generation(generation)
	o.announced.progress = o.announced.progress.withWritten(generation, now)
	findings, err := health.CheckProtection(health.Cgroups{
		Root: os.DirFS(cgroupRoot(d.o.Config)), Owner: d.o.Config.MemoryQoS.Owner, PageSize: d.o.PageSize,
		Kubepods: o.announced.kubepods, Overwritten: o.announced.overwritten,
		Pending: o.announced.progress.pending(now), Before: o.protection,
	}, o.claims)
	if err != nil {
		d.o.Log.Error("memory protection of claims not checked", zap.Error(err))
		return o
	}
	o.protection = findings
	return o
}

// observeReceipts measures the claims that ask for quiet CPUs. After an error the last
// receipts stay.
func (d *Daemon) observeReceipts(o observation) observation {
	sys, proc, cgroups := os.DirFS(d.o.Config.SysfsRoot), os.DirFS(d.o.Config.ProcRoot), os.DirFS(cgroupRoot(d.o.Config))
	o.irqbalance = quiet.Irqbalance(cgroups)
	look := receipt.Node{
		BootID: d.bootID, Now: time.Now(), Claims: o.claims, ClaimsMissing: o.blocked != nil,
		Applied:           o.actuatorFault == nil && o.announced.progress.behind.IsZero(),
		InvalidPartitions: o.announced.invalidPartitions, PartitionsKnown: o.announced.partitionsKnown,
	}
	throttled, err := receipt.ReadThrottling(cgroups, o.claims, func(p contract.PodRecord) string {
		return health.PodDir(o.announced.kubepods, p.QOS, p.UID)
	})
	if err == nil && len(throttled) > 0 && o.announced.kubepods == "" {
		// Below a cgroup that is absent, no pod would look throttled.
		err = errors.New("no actuator has announced the cgroup of all pods since the frontend's start")
	}
	if err == nil && len(throttled) > 0 {
		look.Machine, err = receipt.ReadMachine(sys, proc)
	}
	if before := o.unmeasured; err != nil {
		if o.unmeasured = err.Error(); o.unmeasured != before {
			d.o.Log.Warn("claims with quiet CPUs are not measured", zap.Error(err))
		}
		return o
	}
	o.unmeasured = ""
	book := o.book.Next(look)
	if !reflect.DeepEqual(book, o.book) {
		if err := d.bookFile().Write(book); err != nil {
			d.o.Log.Warn("a restart of the frontend begins the measurement of claims again", zap.Error(err))
		}
	}
	o.book, o.receipts = book, book.Receipts(o.claims, look.Machine, throttled)
	return o
}

// bookFile returns the file of what is measured.
func (d *Daemon) bookFile() receipt.File { return receipt.File{Dir: d.o.Kubelet.dataDir()} }

// readReceipts reads the book of an earlier instance.
func (d *Daemon) readReceipts(o observation) observation {
	book, err := d.bookFile().Read()
	if err != nil {
		d.o.Log.Warn("the measurement of claims begins again", zap.Error(err))
	}
	o.book = book
	return o
}

// newWarnings returns the warnings of now that before lacks.
func newWarnings(before, now []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(w string) bool { return slices.Contains(before, w) })
}
