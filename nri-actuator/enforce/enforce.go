// SPDX-License-Identifier: Apache-2.0

// Package enforce writes the frontend's decisions into cgroups. Package nri calls it
// for a container of the runtime and for a new node state. [Enforcer.apply] looks up
// the decisions, reads the cgroups, has package tree plan the steps, and writes them.
// Outside of apply, cgroups are written in three cases: a partition that is made again, a
// container that is removed, and the dry run of [Enforcer.ProbePartitions]. Package
// machine writes the values that no cgroup has. The Enforcer has no lock: its caller
// orders the calls.
package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Options are the parts of an Enforcer. All are required.
type Options struct {
	Directory *claims.Directory
	Mount     *cgroups.Mount
	Units     Units
	// Host has the values of the machine that no cgroup has.
	Host    *machine.Host
	Metrics *metrics.Metrics
	// Kernel is the kernel's release.
	Kernel string
	// RefreshInterval is how often a lost partition is tried again.
	RefreshInterval time.Duration
	Clock           func() time.Time
}

// Enforcer knows the runtime's containers with their last valid decisions, the last
// node state, and what it has reported. Everything else is in the kernel's files
// and in the frontend's.
type Enforcer struct {
	Options
	containers containers
	// last is the node state that was read last. It stands in for a node file
	// that cannot be read while claimed CPUs are in use (I1), and it has the
	// pool for late answers (I7).
	last atomic.Pointer[contract.NodeState]
	// stale is why the node state in use was not read from the file, nil if it was.
	stale error
	drift drift
	// looked has the pods and levels that this process has looked at.
	looked map[string]bool
	// machine is what the kernel made of the machine's values, at the last look.
	machine machine.Result
	// canPartition reports whether the kernel makes cpuset partitions below
	// kubepods, nil before the first try.
	canPartition *bool
}

// New returns an Enforcer without containers.
func New(o Options) *Enforcer {
	o.Metrics.InitRefused(append(claims.Reasons(), reasonUnreadable, reasonFeature)...)
	return &Enforcer{Options: o, drift: make(drift), looked: make(map[string]bool)}
}

// scope is the part of the node that a call is about.
type scope struct {
	// all covers every cgroup, except waiting containers, which ApplyWaiting writes. A
	// waiting container whose claim is refused is included.
	all bool
	// pool covers every pool container.
	pool bool
	// above has a container whose pod and levels are concerned, own a container
	// that is concerned itself; nil for none.
	above, own *Container
}

// takesFrom reports whether above has a partition that may take CPUs from the pool container: a pod's pool
// containers may have the CPUs of the pod's claims until the frontend lists the pod.
func (s scope) takesFrom(pooled *Container) bool {
	return s.above != nil && s.above.References.PodUID == pooled.References.PodUID && s.above.Decision().Partition != ""
}

// result has what went wrong, by cgroup directory. A cgroup that is gone has
// [cgroups.ErrGone].
type result map[string]error

func (r result) add(dir string, err error) {
	if err != nil {
		r[dir] = errors.Join(r[dir], err)
	}
}

// maxRounds bounds the rounds of apply: another program may make a partition
// again and again.
const maxRounds = 3

// apply writes the node state into the cgroups of the scope.
func (e *Enforcer) apply(ctx context.Context, node contract.NodeState, s scope) (r result) {
	for range maxRounds {
		var ended bool
		if r, ended = e.round(ctx, node, s); !ended {
			break
		}
		// A partition has ended: the cgroups above it can lose its CPUs.
	}
	return r
}

// round is one round of apply. ended reports whether it ended a partition.
func (e *Enforcer) round(ctx context.Context, node contract.NodeState, s scope) (r result, ended bool) {
	levels := e.levels()
	mayPartition := e.partitionsBelow(levels)
	desired := tree.Desired(node, levels, e.holdings(ctx, node, s, mayPartition))
	if s.all || mayPartition {
		e.addPods(ctx, node, levels, desired)
	}
	if s.all {
		e.forgetExcept(desired)
	}
	containers := e.containers.in(desired)
	limit(desired, containers, levels, mayPartition, s)
	r = make(result)
	observed := e.observe(desired, containers, mayPartition, r)
	for dir, state := range observed {
		if s.all || len(state.Unreadable) > 0 {
			r.add(dir, state.Unusable)
		}
	}
	steps := tree.Steps(desired, observed)
	if !s.all {
		steps = withoutGivingBack(steps)
	}
	written, followed, stuck := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	returned := make(map[string]contract.Files)
	for _, step := range steps {
		written[step.Dir] = written[step.Dir] || step.Act != tree.MarkWritten
	}
	for _, step := range steps {
		if errors.Is(r[step.Dir], cgroups.ErrGone) || stuck[step.Dir] {
			continue
		}
		if step.Kind >= tree.Pooled && !followed[step.Dir] {
			followed[step.Dir] = true
			// Without a write the runtime may have written the wanted values,
			// while a drop-in has other values.
			e.follow(ctx, step.Dir, desired[step.Dir].Files, !written[step.Dir])
		}
		err := e.writeStep(ctx, step, containers[step.Dir], desired)
		r.add(step.Dir, err)
		// A partition that does not end needs its CPUs.
		stuck[step.Dir] = err != nil && step.File == contract.FilePartition
		ended = ended || err == nil && step.File == contract.FilePartition
		if err == nil && step.Act == tree.GiveBack {
			if returned[step.Dir] == nil {
				returned[step.Dir] = make(contract.Files)
			}
			returned[step.Dir][step.File] = step.Content
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(observed)) {
		want := desired[dir]
		if r[dir] == nil {
			containers[dir].noteMarked(want)
		}
		switch {
		case want.Kind <= tree.Pod:
			r.add(dir, e.syncUnit(ctx, dir, want, observed[dir], returned[dir], s))
		case !followed[dir]:
			e.follow(ctx, dir, want.Files, true)
		}
	}
	return r, ended
}

// withoutGivingBack leaves out the steps that give former values back: only a call with scope.all takes them, and systemd follows.
// The steps for cpuset.cpus.exclusive stay, because their CPUs may be in another pod's way.
func withoutGivingBack(steps []tree.Step) []tree.Step {
	return slices.DeleteFunc(steps, func(s tree.Step) bool {
		return s.Act == tree.GiveBack && s.File != contract.FileExclusive
	})
}

// forgetExcept forgets what is known about cgroups that are not desired, and closes their files.
func (e *Enforcer) forgetExcept(desired map[string]tree.Cgroup) {
	isDesired := func(dir string) bool {
		_, there := desired[dir]
		return there
	}
	e.drift.prune(desired)
	e.Mount.CloseExcept(isDesired)
	maps.DeleteFunc(e.looked, func(dir string, _ bool) bool { return !isDesired(dir) })
	e.Units.ForgetExcept(slices.Collect(maps.Keys(desired)))
}

// writeStep takes one step, and reports what another program did.
func (e *Enforcer) writeStep(ctx context.Context, step tree.Step, c *Container, desired map[string]tree.Cgroup) error {
	err := e.Mount.WriteStep(step)
	if c != nil {
		c.Life.seen = c.Life.seen || err == nil
	}
	if errors.Is(err, syscall.EPERM) && c != nil && !c.NamesClaim() && c.Cgroups.Pod != "" {
		// Even root may not write to the root of its own cgroup namespace if
		// cgroup2 is mounted with nsdelegate (cgroup-v2.rst, "Model of
		// Delegation"). This is the actuator's own container. The cpuset of its
		// pod bounds its effective cpuset just as well. A pod that has taken the
		// actuator's rights to its own cgroup away (chmod) is refused with EACCES.
		return e.throughPod(ctx, c, step, desired)
	}
	switch {
	case err != nil || step.Act == tree.MarkWritten:
	case step.Act == tree.GiveBack:
		logs.From(ctx).Info("given back",
			zap.String("cgroup", step.Dir), zap.String("file", step.File), zap.String("value", step.Content))
	case step.Overwritten && (c == nil || c.Life.Started):
		e.repaired(ctx, step, c)
	}
	return err
}

func (e *Enforcer) throughPod(ctx context.Context, c *Container, step tree.Step, desired map[string]tree.Cgroup) error {
	c.Life.throughPod = true
	has, err := e.Mount.Read(c.Cgroups.Pod, step.File)
	if err != nil || has == step.Content {
		return err
	}
	e.follow(ctx, c.Cgroups.Pod, desired[step.Dir].Files, false)
	step.Dir, step.Kind = c.Cgroups.Pod, tree.Pod
	return e.Mount.WriteStep(step)
}

// repaired counts a repair of what another program wrote. It warns once while
// the same value comes back.
func (e *Enforcer) repaired(ctx context.Context, step tree.Step, c *Container) {
	e.Metrics.Repaired(step.File)
	name := step.Dir
	if c != nil {
		name = c.Name
	}
	log := logs.From(ctx).Debug
	if e.drift.note(step, e.Clock()) {
		log = logs.From(ctx).Warn
	}
	log("repaired what another program wrote", zap.String("cgroup", name), zap.String("file", step.File),
		zap.String("found", step.Found), zap.String("value", step.Content))
	if step.Kind <= tree.Pod {
		// The other program may have given the value to systemd as well.
		e.Units.Again(step.Dir)
	}
}

// describe returns the error of a container's cgroup for a log or a refusal.
func describe(c *Container, err error) error {
	return fmt.Errorf("container %s: %w", c.Name, err)
}
