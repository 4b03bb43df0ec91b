// SPDX-License-Identifier: Apache-2.0

// Package enforce brings the kernel's files to the frontend's decisions. There
// is one routine, [Enforcer.bring]: it reads the cgroups concerned, has package
// tree plan the steps, and takes them. Package nri calls it for a container of
// the runtime, and when the node state changes; package claims says which
// decision holds. The caller orders the calls: the Enforcer has no lock.
package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Units makes systemd follow the values in the cgroups of its units: otherwise
// systemd restores its own values at its next reload. No call waits for
// systemd.
type Units interface {
	// Set makes systemd follow files. It is called before the files of a
	// container are written, and after the files of a systemd slice.
	Set(dir string, files map[string]string) error
	// Correct is Set for a container that has the wanted values.
	Correct(dir string, files map[string]string) error
	// Again makes Set send values again that another program has changed.
	Again(dir string)
	// Settled reports whether systemd has all values of Set.
	Settled(dir string) bool
	// Forget drops a cgroup that is gone, or that this driver does not write.
	Forget(dir string) error
	// Keep drops all cgroups except dirs.
	Keep(dirs []string)
	// Reset drops all cgroups except dirs, and makes Set send all values again.
	Reset(dirs []string) error
}

// Options are the parts of an Enforcer. All are required.
type Options struct {
	Directory *claims.Directory
	Mount     *cgroups.Mount
	Units     Units
	Metrics   *metrics.Metrics
	// RefreshInterval is how often a lost partition is tried again.
	RefreshInterval time.Duration
	Clock           func() time.Time
}

// Enforcer knows the runtime's containers. Everything else is in the kernel's
// files and in the frontend's.
type Enforcer struct {
	Options
	known known
	// last is the node state that was read last. It stands in for a node file
	// that cannot be read while claimed CPUs are in use (I1), and it has the
	// pool for late answers (I7).
	last atomic.Pointer[contract.NodeState]
	// fresh reports whether the node state in use was read from the file.
	fresh bool
	drift drift
	// looked has the pods and levels that this process has looked at.
	looked map[string]bool
	// partitions reports whether the kernel makes cpuset partitions below
	// kubepods, nil before the first try.
	partitions *bool
}

// New returns an Enforcer without containers.
func New(o Options) *Enforcer {
	return &Enforcer{Options: o, known: known{all: make(map[string]*Container)}, drift: make(drift), looked: make(map[string]bool)}
}

// scope is the part of the node that a call is about.
type scope struct {
	// all is everything, except containers whose guard may be waiting.
	all bool
	// pool is all pooled containers.
	pool bool
	// above has a container whose pod and levels are concerned, own a container
	// that is concerned itself; nil for none.
	above, own *Container
}

// result has what went wrong, by cgroup directory. A cgroup that is gone has
// [cgroups.ErrGone].
type result map[string]error

func (r result) add(dir string, err error) {
	if err != nil {
		r[dir] = errors.Join(r[dir], err)
	}
}

// maxRounds bounds the rounds of bring: another program may make a partition
// again and again.
const maxRounds = 3

// bring brings the scope to the node state.
func (e *Enforcer) bring(ctx context.Context, node contract.NodeState, s scope) (r result) {
	for range maxRounds {
		var ended bool
		if r, ended = e.round(ctx, node, s); !ended {
			break
		}
		// A partition has ended: the cgroups above it can lose its CPUs.
	}
	return r
}

// round is one round of bring. ended reports whether it ended a partition.
func (e *Enforcer) round(ctx context.Context, node contract.NodeState, s scope) (r result, ended bool) {
	levels := e.levels()
	partitions := e.partitionsBelow(levels)
	desired := tree.Desired(node, levels, e.holdings(ctx, node, partitions))
	if s.all || partitions {
		e.addPods(ctx, node, levels, desired)
	}
	if s.all {
		e.drift.keep(desired)
		maps.DeleteFunc(e.looked, func(dir string, _ bool) bool {
			_, there := desired[dir]
			return !there
		})
		e.Units.Keep(slices.Collect(maps.Keys(desired)))
	}
	containers := e.known.byDir()
	limit(desired, containers, levels, partitions, s)
	r = make(result)
	observed := e.observe(desired, partitions, r)
	if s.all {
		for dir, state := range observed {
			r.add(dir, state.Unusable)
		}
	}
	steps := tree.Steps(desired, observed)
	if !s.all {
		// Former values are given back when everything is looked at, and systemd
		// follows. CPUs that are in another pod's way are taken back at once.
		steps = slices.DeleteFunc(steps, func(s tree.Step) bool {
			return s.Act == tree.GiveBack && s.File != contract.FileExclusive
		})
	}
	written, followed, stuck := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	returned := make(map[string]contract.Files)
	for _, step := range steps {
		written[step.Dir] = written[step.Dir] || step.Act != tree.Mark
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
		err := e.take(ctx, step, containers[step.Dir], desired)
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
	for dir, want := range desired {
		if _, found := observed[dir]; !found {
			continue
		}
		switch {
		case want.Kind <= tree.Pod:
			r.add(dir, e.settle(ctx, dir, want, observed[dir], returned[dir], s))
		case !followed[dir]:
			e.follow(ctx, dir, want.Files, true)
		}
	}
	return r, ended
}

// addPods adds the pods below kubepods that no known container leads to: an
// earlier actuator may have written to them. They keep what they have. A pod
// gets more with its next container: kubelet may be making its cgroup.
func (e *Enforcer) addPods(ctx context.Context, node contract.NodeState, levels map[string]string, desired map[string]tree.Cgroup) {
	for _, level := range levels {
		for _, dir := range e.below(ctx, level) {
			uid := cgroups.PodUID(dir)
			if _, known := desired[dir]; known || uid == "" {
				continue
			}
			pod := node.Pods[uid]
			want := contract.Files{contract.FileExclusive: pod.PartitionCPUs.String()}
			maps.Copy(want, pod.Cgroup)
			state, err := e.Mount.Observe(dir)
			maps.DeleteFunc(want, func(file, content string) bool {
				_, written := state.Former[file]
				return err != nil || content == "" || !written
			})
			desired[dir] = tree.Cgroup{Kind: tree.Pod, Files: want}
		}
	}
}

// limit removes from desired what the scope does not concern.
func limit(desired map[string]tree.Cgroup, containers map[string]*Container, levels map[string]string, partitions bool, s scope) {
	concerned := make(map[string]bool)
	if s.above != nil {
		for _, dir := range levels {
			concerned[dir] = true
		}
		concerned[s.above.Place.Pod] = true
		// Other pods may have CPUs that the kernel gives to one sibling only.
		for dir, c := range desired {
			concerned[dir] = concerned[dir] || partitions && c.Kind == tree.Pod
		}
	}
	if s.own != nil {
		concerned[s.own.Place.Dir] = true
	}
	for dir, c := range desired {
		container := containers[dir]
		switch {
		case s.all && (container == nil || !container.waits() || container.trouble.refused != ""):
		case s.pool && c.Kind == tree.Pooled:
		case !concerned[dir]:
			delete(desired, dir)
		}
	}
}

// observe reads the cgroups. Without partitions no container has their files.
func (e *Enforcer) observe(desired map[string]tree.Cgroup, partitions bool, r result) map[string]tree.State {
	observed := make(map[string]tree.State, len(desired))
	for dir, want := range desired {
		var files []string
		if partitions || want.Kind <= tree.Pod {
			files = []string{contract.FileExclusive, contract.FilePartition}
		}
		for file := range want.Files {
			files = append(files, file)
		}
		state, err := e.Mount.Observe(dir, files...)
		if state.Files == nil {
			r.add(dir, err)
			continue
		}
		r.add(dir, err)
		if want.Kind > tree.Pod {
			// A program in the container may have made these.
			state.Former, state.Unusable = nil, nil
		}
		// An earlier actuator may have ended before systemd had its values.
		unit := strings.HasSuffix(dir, ".slice")
		state.Behind = want.Kind <= tree.Pod && (!e.Units.Settled(dir) || unit && !e.looked[dir])
		observed[dir] = state
	}
	return observed
}

// take takes one step, and reports what another program did.
func (e *Enforcer) take(ctx context.Context, step tree.Step, c *Container, desired map[string]tree.Cgroup) error {
	err := e.Mount.Take(step)
	if c != nil {
		c.Life.seen = c.Life.seen || err == nil
	}
	if errors.Is(err, fs.ErrPermission) && c != nil && !c.Claims() && c.Place.Pod != "" {
		// Even root may not write to the root of its own cgroup namespace if
		// cgroup2 is mounted with nsdelegate (cgroup-v2.rst, "Model of
		// Delegation"). This is the actuator's own container. The cpuset of its
		// pod bounds its effective cpuset just as well.
		return e.throughPod(ctx, c, step, desired)
	}
	switch {
	case err != nil || step.Act == tree.Mark:
	case step.Act == tree.GiveBack:
		logs.From(ctx).Info("given back",
			zap.String("cgroup", step.Dir), zap.String("file", step.File), zap.String("value", step.Content))
	case step.Overwritten && (c == nil || c.Life.Started):
		e.repaired(ctx, step, c)
	}
	return err
}

func (e *Enforcer) throughPod(ctx context.Context, c *Container, step tree.Step, desired map[string]tree.Cgroup) error {
	has, err := e.Mount.Read(c.Place.Pod, step.File)
	if err != nil || has == step.Content {
		return err
	}
	e.follow(ctx, c.Place.Pod, desired[step.Dir].Files, false)
	step.Dir, step.Kind = c.Place.Pod, tree.Pod
	return e.Mount.Take(step)
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
		// The other program may have told systemd as well.
		e.Units.Again(step.Dir)
	}
}

// settle makes systemd follow a pod or level, and ends the giving back of former
// values when systemd has them (I4). given are the values that were given back
// in this round.
func (e *Enforcer) settle(ctx context.Context, dir string, want tree.Cgroup, state tree.State, given contract.Files, s scope) error {
	e.looked[dir] = true
	if len(want.Files) > 0 {
		e.follow(ctx, dir, want.Files, false)
	}
	if !s.all {
		return nil
	}
	returned, theirs := state.GivenBack(want.Files)
	maps.Copy(returned, given)
	var errs []error
	if len(theirs) > 0 {
		errs = append(errs, e.Mount.Release(dir, theirs))
	}
	if len(returned) == 0 {
		return errors.Join(errs...)
	}
	e.follow(ctx, dir, returned, false)
	if e.Units.Settled(dir) {
		// From here on the files are kubelet's again.
		e.forgetUnit(ctx, dir)
		if len(want.Files) > 0 {
			e.follow(ctx, dir, want.Files, false)
		}
		errs = append(errs, e.Mount.Release(dir, returned))
	}
	return errors.Join(errs...)
}

// follow makes systemd follow the files of the cgroup dir. correct is for files
// that have their contents already. After an error the files are set right only
// after systemd's next reload.
func (e *Enforcer) follow(ctx context.Context, dir string, files contract.Files, correct bool) {
	set := e.Units.Set
	if correct {
		set = e.Units.Correct
	}
	if err := set(dir, files); err != nil {
		logs.From(ctx).Error("systemd does not follow", zap.String("cgroup", dir), zap.Error(err))
	}
}

func (e *Enforcer) forgetUnit(ctx context.Context, dir string) {
	if err := e.Units.Forget(dir); err != nil {
		logs.From(ctx).Warn("drop-in stays", zap.String("cgroup", dir), zap.Error(err))
	}
}

// podLevels returns the directories of kubepods and of the QoS levels by level,
// nil without a known pod. Any pod leads to them, except pods of other clients
// of the runtime.
func (e *Enforcer) podLevels() map[string]string {
	for _, c := range e.known.all {
		if levels, err := cgroups.Levels(c.Place.Pod); c.Place.Pod != "" && err == nil {
			return levels
		}
	}
	return nil
}

// levels is podLevels, with the usual directories if there is no known pod.
func (e *Enforcer) levels() map[string]string {
	if levels := e.podLevels(); levels != nil {
		return levels
	}
	dir, found := e.Mount.Kubepods()
	if !found {
		return nil
	}
	levels, err := cgroups.Levels(dir + "/pod")
	if err != nil {
		return nil
	}
	return levels
}

// node reads the node state. While claimed CPUs are in use, the last known state
// stands in for a file that cannot be read: without a pool, containers without a
// claim would run on these CPUs (I1), and refusing such containers would stop
// the node (I7).
func (e *Enforcer) node(ctx context.Context) (contract.NodeState, error) {
	node, err := e.Directory.Node()
	if e.fresh = err == nil; e.fresh {
		e.last.Store(&node)
		return node, nil
	}
	log := logs.From(ctx).Error
	if errors.Is(err, fs.ErrNotExist) {
		log = logs.From(ctx).Warn
	}
	if last := e.last.Load(); last != nil && e.claimsInUse() {
		log("using the last known shared pool", zap.Uint64("generation", last.Generation), zap.Error(err))
		return *last, nil
	}
	log("no node state", zap.Error(err))
	return contract.NodeState{}, err
}

// claimsInUse reports whether a container has claimed CPUs.
func (e *Enforcer) claimsInUse() bool {
	for _, c := range e.known.all {
		if !c.Decision().CPUs.IsEmpty() || !e.partition(c).IsEmpty() {
			return true
		}
	}
	return false
}

// describe returns the error of a container's cgroup for a log or a refusal.
func describe(c *Container, err error) error {
	return fmt.Errorf("container %s: %w", c.Name, err)
}
