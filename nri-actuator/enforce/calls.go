// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Unlisted notes that no list of a runtime is in force.
func (e *Enforcer) Unlisted() { e.known.unlisted() }

// Find returns the container as it is known, or told if it is not known, or if
// only told has a pod.
func (e *Enforcer) Find(told *Container) (c *Container, known bool) {
	c, known = e.known.all[told.ID]
	if !known || c.Life.Kept && !told.Life.Kept {
		told.resume(c)
		e.known.add(told)
		return told, known
	}
	return c, true
}

// Known returns the container with the id, nil if it is not known.
func (e *Enforcer) Known(id string) *Container { return e.known.all[id] }

// Any reports whether a container is known.
func (e *Enforcer) Any() bool { return len(e.known.all) > 0 }

// Add takes in a container.
func (e *Enforcer) Add(c *Container) { e.known.add(c) }

// Drop forgets a container that was not created.
func (e *Enforcer) Drop(c *Container) {
	if e.known.all[c.ID] == c {
		delete(e.known.all, c.ID)
	}
}

// Replace takes over the runtime's list.
func (e *Enforcer) Replace(ctx context.Context, list []*Container) {
	e.known.replace(list)
	var dirs []string
	for _, c := range e.known.all {
		dirs = append(dirs, c.Place.Dir, c.Place.Pod)
	}
	if err := e.Units.Reset(dirs); err != nil {
		logs.From(ctx).Warn("old drop-ins stay", zap.Error(err))
	}
	logs.From(ctx).Info("synchronising", zap.Int("containers", len(e.known.all)))
}

// Create does what must be done before a container with a claim exists, and
// returns the container's decision. An error fails the creation. check refuses
// a decision that the runtime cannot apply.
func (e *Enforcer) Create(ctx context.Context, c *Container, check func(contract.Decision) error) (contract.Decision, error) {
	node, err := e.node(ctx)
	if err == nil && !e.fresh {
		_, err = e.Directory.Node()
	}
	if err != nil {
		return contract.Decision{}, fmt.Errorf("%w: it waits for dra-frontend", err)
	}
	e.Probe(ctx)
	d, err := e.decide(ctx, c, node)
	if err == nil {
		err = check(d)
	}
	if err != nil {
		return contract.Decision{}, err
	}
	if err := e.clear(ctx, c, node, true); err != nil {
		return contract.Decision{}, err
	}
	c.Life.Answered, c.Life.brought = true, true
	return d, nil
}

// clear brings the node to the state in which the container may get its values:
// the pool gives its CPUs up (I1), and the cgroups above it have their values.
// moves reports whether the container does not have its CPUs yet.
func (e *Enforcer) clear(ctx context.Context, c *Container, node contract.NodeState, moves bool) error {
	s := scope{above: c}
	if d := c.Decision(); d.Partition != "" {
		c.Life.partition = d.CPUs
	}
	if cpus := outsidePartitions(c); moves && !cpus.IsEmpty() {
		// I1: the frontend takes CPUs out of the pool before it gives them to a
		// claim.
		if cpus.Overlaps(node.Shared.CPUs) {
			return fmt.Errorf("its CPUs %s are also in the shared pool %s (%s, generation %d): "+
				"it waits for dra-frontend to write the node state", cpus, node.Shared.CPUs, contract.NodeFile, node.Generation)
		}
		s.pool = true
	}
	pod := node.Pods[c.Asked.PodUID]
	wanted := len(pod.Cgroup) > 0 || !pod.PartitionCPUs.IsEmpty()
	r := e.bring(ctx, node, s)
	for _, other := range e.known.sorted() {
		if s.pool && other.Place.Dir == "" && other.Decision().CPUs.IsEmpty() && other != c {
			return fmt.Errorf("container %s (id %s) could not be moved off claimed CPUs: %w", other.Name, other.ID, other.Place.DirErr)
		}
	}
	containers := e.known.byDir()
	for _, dir := range slices.Sorted(maps.Keys(r)) {
		switch other := containers[dir]; {
		case other == nil:
		case errors.Is(r[dir], cgroups.ErrGone):
			e.gone(ctx, other)
		default:
			return fmt.Errorf("container %s (id %s) could not be moved off claimed CPUs: %w", other.Name, other.ID, r[dir])
		}
	}
	if err := e.aboveResult(ctx, c, node, r, wanted); err != nil {
		return err
	}
	return e.checkAbove(c)
}

// checkAbove returns an error unless the cgroups above the container name the
// CPUs of its partition: another pod may still have them.
func (e *Enforcer) checkAbove(c *Container) error {
	d := c.Decision()
	if d.Partition == "" {
		return nil
	}
	for _, dir := range tree.Above(c.Place.Pod, e.levels()) {
		named, err := e.Mount.ReadCPUs(dir, contract.FileExclusive)
		if err != nil {
			return err
		}
		if !d.CPUs.IsSubsetOf(named) {
			return fmt.Errorf("cgroup %s has %q in %s, the container's partition needs %s: it waits until another pod gives them back",
				dir, named.String(), contract.FileExclusive, d.CPUs)
		}
	}
	return nil
}

// errNoLevels means that values of levels cannot be written.
var errNoLevels = errors.New("no known pod is below a kubepods cgroup: the values of the QoS levels cannot be written")

// aboveResult returns what went wrong in the levels and in the container's pod.
// wanted reports whether the pod needs values. A level that does not exist has
// no pods. Another pod must not harm this one: if its CPUs are in the way, the
// kernel refuses a write.
func (e *Enforcer) aboveResult(ctx context.Context, c *Container, node contract.NodeState, r result, wanted bool) error {
	if len(node.Ancestors)+len(node.PartitionCPUs) > 0 && e.podLevels() == nil {
		return errNoLevels
	}
	if c.Place.Pod == "" && wanted {
		return fmt.Errorf("its pod: %w", c.Place.PodErr)
	}
	if err := r[c.Place.Pod]; err != nil && (wanted || !errors.Is(err, cgroups.ErrGone)) {
		return fmt.Errorf("its pod: %w", err)
	}
	for _, dir := range e.levels() {
		if err := r[dir]; err != nil && !errors.Is(err, cgroups.ErrGone) {
			return err
		}
	}
	for dir, err := range r {
		if cgroups.PodUID(dir) != "" && dir != c.Place.Pod && !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Warn("another pod keeps partition CPUs that it does not need", zap.Error(err))
		}
	}
	return nil
}

// outsidePartitions returns the CPUs that the container's decisions take out of
// the shared pool: their CPUs without partition CPUs.
func outsidePartitions(c *Container) contract.CPUSet {
	var all contract.CPUSet
	for _, d := range c.held {
		if d.Partition == "" {
			all = all.Union(d.CPUs)
		}
	}
	return all
}

// Pool returns the shared pool for a container without a claim that is created
// or updated. ok is false for a container that stays as it is, and without a
// node state.
func (e *Enforcer) Pool(ctx context.Context, c *Container) (d contract.Decision, ok bool) {
	node, err := e.node(ctx)
	if err != nil {
		return contract.Decision{}, false
	}
	d, err = e.decide(ctx, c, node)
	return d, err == nil && d.V != ""
}

// LastPool is Pool at the last known node state. It needs no order with other
// calls.
func (e *Enforcer) LastPool(c *Container) (d contract.Decision, ok bool) {
	node := e.last.Load()
	if node == nil || pinnedWithin(c.Pinned, node.Shared.UnmanagedCPUs) {
		return contract.Decision{}, false
	}
	return claims.Effective(nil, node.SharedOf(c.Asked.PodUID)), true
}

// Update returns the decision of a container that the runtime updates. ok is
// false for a container that stays as it is.
func (e *Enforcer) Update(ctx context.Context, c *Container) (d contract.Decision, ok bool, err error) {
	node, err := e.node(ctx)
	if err != nil {
		return contract.Decision{}, false, err
	}
	d, err = e.decide(ctx, c, node)
	return d, d.V != "", err
}

// Bring gives an existing container its present values. known reports whether
// the container was known before. acted reports whether there were values.
func (e *Enforcer) Bring(ctx context.Context, c *Container, known bool) (acted bool, err error) {
	node, err := e.node(ctx)
	switch {
	case err != nil && !c.Claims():
		return false, nil
	case err != nil && (c.held == nil || !c.Life.brought):
		// I5: nothing shows that the container has its values.
		return false, err
	case err != nil:
		// The container keeps the values that it was created with or given
		// last.
		return true, nil
	}
	_, refused := e.decide(ctx, c, node)
	s := scope{own: c}
	if c.Decision().Partition != "" {
		s.above = c
	}
	r := e.bring(ctx, node, s)
	own := e.ownResult(ctx, c, r, known)
	c.Life.brought = c.Life.brought || own == nil && refused == nil
	return true, errors.Join(refused, e.aboveResult(ctx, c, node, r, s.above != nil), own)
}

// ownResult returns what went wrong in the container's own cgroup. A cgroup that
// is not where the runtime says (a virtual machine's container) is no error for
// a container that was created with its decision, and for a container without a
// claim. It is an error for a partition: the kernel would keep no container off
// its CPUs.
func (e *Enforcer) ownResult(ctx context.Context, c *Container, r result, known bool) error {
	err := r[c.Place.Dir]
	if c.Place.Dir == "" {
		err = c.Place.DirErr
	}
	if c.Life.Started && !errors.Is(err, cgroups.ErrGone) {
		// The check also follows a failed write, which may be why the partition
		// is lost.
		if lost := e.checkPartition(ctx, c); err == nil {
			err = lost
		}
	}
	if errors.Is(err, cgroups.ErrGone) && (known || !c.Claims()) && c.Decision().Partition == "" {
		logs.From(ctx).Warn("no cgroup", zap.String("container", c.Name), zap.Error(err))
		return nil
	}
	return err
}

// OnClaimed reports whether the container may run on claimed CPUs.
func (e *Enforcer) OnClaimed(c *Container) bool {
	var claimed contract.CPUSet
	for _, other := range e.known.all {
		claimed = claimed.Union(outsidePartitions(other))
	}
	if claimed.IsEmpty() {
		return false
	}
	if c.Place.Dir == "" {
		return true
	}
	cpus, err := e.Mount.ReadCPUs(c.Place.Dir, tree.FileCPUs)
	return !errors.Is(err, cgroups.ErrGone) && (err != nil || cpus.IsEmpty() || cpus.Overlaps(claimed))
}

// Waiting gives containers their decisions as soon as their cgroups exist, if
// they were created without the actuator's answer, because no actuator was there
// or the answer came too late. The runtime may be writing its own values into
// such a cgroup, so it is looked at until the container starts. waiting reports
// whether there is such a container.
func (e *Enforcer) Waiting(ctx context.Context) (waiting bool) {
	for _, c := range e.known.sorted() {
		if !c.waits() {
			continue
		}
		waiting = true
		if c.Place.Dir == "" || !e.Mount.Exists(c.Place.Dir) {
			continue
		}
		if err := e.bringWaiting(ctx, c); err != nil && !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Debug("created container waits", zap.String("container", c.Name), zap.Error(err))
		}
	}
	return waiting
}

// bringWaiting writes in the order of a creation: the pool gives the CPUs up
// before the container gets them, and the program starts when it has them (I1).
func (e *Enforcer) bringWaiting(ctx context.Context, c *Container) error {
	node, err := e.node(ctx)
	if err != nil || !e.fresh {
		return errors.Join(err, errors.New("the node state cannot be read"))
	}
	d, err := e.decide(ctx, c, node)
	if err != nil || d.V == "" {
		return err
	}
	has, err := e.Mount.ReadCPUs(c.Place.Dir, tree.FileCPUs)
	if err == nil && has == d.CPUs && c.Life.Answered {
		// The runtime writes the answer itself.
		return nil
	}
	if err := e.clear(ctx, c, node, err != nil || has != d.CPUs); err != nil {
		return err
	}
	if err := e.bring(ctx, node, scope{own: c})[c.Place.Dir]; err != nil {
		return err
	}
	c.Life.brought = true
	return e.checkPartition(ctx, c)
}

// All gives every container, pod and level the values of the present node
// state. A failure of one does not stop the rest. generation is the state's
// generation, and the error says where the state was not applied.
func (e *Enforcer) All(ctx context.Context) (generation uint64, err error) {
	node, err := e.node(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range e.known.sorted() {
		e.gone(ctx, c)
	}
	r := e.bring(ctx, node, scope{all: true})
	var errs []error
	for _, c := range e.known.sorted() {
		err := r[c.Place.Dir]
		delete(r, c.Place.Dir)
		switch {
		case c.Place.Dir == "" && !c.Life.Kept:
			err = c.Place.DirErr
		case errors.Is(err, cgroups.ErrGone):
			e.gone(ctx, c)
			continue
		case c.waits() && c.trouble.refused == "":
			continue
		case c.Life.Started:
			if lost := e.checkPartition(ctx, c); err == nil && !errors.As(lost, new(*invalid)) && !errors.Is(lost, cgroups.ErrGone) {
				err = lost
			}
		}
		if err == nil {
			continue
		}
		logs.From(ctx).Error("apply", zap.Error(describe(c, err)))
		errs = append(errs, describe(c, err))
	}
	for _, dir := range slices.Sorted(maps.Keys(r)) {
		if err := r[dir]; !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Error("apply", zap.Error(err))
			errs = append(errs, err)
		}
	}
	errs = append(errs, e.unknownPlaces(node)...)
	if !e.fresh {
		errs = append(errs, errors.New("the node state could not be read, the last known one was applied"))
	}
	e.Metrics.InvalidPartitions(len(e.Invalid()))
	e.Metrics.Applied(node.Generation, node.Shared.CPUs.Size())
	return node.Generation, errors.Join(errs...)
}

// unknownPlaces returns the pods and levels that need values and cannot be found.
func (e *Enforcer) unknownPlaces(node contract.NodeState) (errs []error) {
	for _, c := range e.known.sorted() {
		if c.Place.Pod == "" && len(node.Pods[c.Asked.PodUID].Cgroup) > 0 {
			errs = append(errs, fmt.Errorf("pod of container %s: %w", c.Name, c.Place.PodErr))
		}
	}
	if e.Any() && len(node.Ancestors)+len(node.PartitionCPUs) > 0 && e.podLevels() == nil {
		errs = append(errs, errNoLevels)
	}
	return errs
}

// Stopped forgets a container if its cgroup is gone, after the runtime has
// stopped it. Some runtimes say so before the program has ended: the container
// is kept off claimed CPUs until its cgroup is gone.
func (e *Enforcer) Stopped(ctx context.Context, c *Container) {
	c.Life.Started = true
	e.gone(ctx, c)
}

// Left is Stopped for the id of a container that was stopped or removed a while
// ago.
func (e *Enforcer) Left(ctx context.Context, id string) {
	if c := e.known.all[id]; c != nil {
		c.Life.Started, c.Life.seen = true, true
		e.gone(ctx, c)
	}
	e.known.removedByRuntime(id)
}

// Remove ends the container's partition and forgets the container.
func (e *Enforcer) Remove(ctx context.Context, c *Container) {
	// A process that cannot die keeps the cgroup. A partition must not end after
	// the cgroups above it have given up its CPUs.
	if err := e.endPartition(c); err != nil {
		logs.From(ctx).Error("remove", zap.Error(describe(c, err)))
	}
	e.forget(ctx, c)
	e.known.removedByRuntime(c.ID)
}

// gone forgets a container if its cgroup is gone for good. A container without a
// cgroup of its own is forgotten when the runtime removes it.
func (e *Enforcer) gone(ctx context.Context, c *Container) {
	if !c.Life.Started || c.Place.Dir == "" {
		return
	}
	exists := e.Mount.Exists(c.Place.Dir)
	c.Life.seen = c.Life.seen || exists
	if c.Life.seen && !exists {
		e.forget(ctx, c)
	}
}

func (e *Enforcer) forget(ctx context.Context, c *Container) {
	delete(e.known.all, c.ID)
	e.forgetUnit(ctx, c.Place.Dir)
}

// Adopt takes in the unknown containers below kubepods, until the runtime's list
// replaces them. Containers that are created while no runtime is connected run
// on all CPUs. A pod's author can cause this: the runtime drops the plugin at
// each connection if the list of containers does not fit into its messages,
// because their environments are too large. A container that no claim backs
// belongs to the shared pool (I1).
func (e *Enforcer) Adopt(ctx context.Context) {
	known := make(map[string]bool, len(e.known.all))
	for _, c := range e.known.all {
		known[c.Place.Dir] = true
	}
	found := 0
	for _, level := range e.levels() {
		for _, pod := range e.below(ctx, level) {
			uid := cgroups.PodUID(pod)
			if uid == "" {
				continue
			}
			for _, dir := range e.below(ctx, pod) {
				if !known[dir] {
					e.known.all[dir] = e.adopted(dir, pod, uid)
					found++
				}
			}
		}
	}
	if found > 0 {
		logs.From(ctx).Info("containers found without the runtime", zap.Int("containers", found))
	}
}

func (e *Enforcer) adopted(dir, pod, uid string) *Container {
	c := &Container{
		ID: dir, Name: "cgroup " + contract.Excerpt(dir, MaxName), Asked: claims.Container{PodUID: uid},
		Place: Place{Dir: dir, Pod: pod}, Life: Life{Started: true, adopted: true, seen: true},
	}
	if cpus, err := e.Mount.ReadCPUs(dir, tree.FileCPUs); err == nil {
		c.Pinned = cpus
	}
	return c
}

// MaxName bounds a container's name in logs and errors, in bytes: namespaces
// have at most 63, pods 253, containers 63.
const MaxName = 400

// below returns the directories of the cgroups directly below dir.
func (e *Enforcer) below(ctx context.Context, dir string) []string {
	names, err := e.Mount.Children(dir)
	if err != nil && !errors.Is(err, cgroups.ErrGone) {
		logs.From(ctx).Warn("cgroups not looked for", zap.Error(err))
	}
	dirs := make([]string, len(names))
	for i, name := range names {
		dirs[i] = path.Join(dir, name)
	}
	return dirs
}

// Say puts into the announcement what the frontend cannot see. Contents of other
// programs are announced while they were seen since then.
func (e *Enforcer) Say(a *contract.Announcement, then time.Time) {
	levels := e.podLevels()
	keys := make(map[string]string)
	for level, dir := range levels {
		keys[dir] = level
	}
	a.Kubepods = levels[contract.LevelKubepods]
	a.InvalidPartitions = e.Invalid()
	a.Overwritten = e.drift.since(then, func(dir string) string {
		if level, is := keys[dir]; is {
			return level
		}
		return cgroups.PodUID(dir)
	})
}
