// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

// CreateContainer answers with the container's decision. An error fails the
// creation, and kubelet tries again.
func (s *Session) CreateContainer(ctx context.Context, pod *api.PodSandbox,
	ctr *api.Container) (a *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer s.observe("CreateContainer", time.Now(), func() metrics.Outcome { return outcome(err, a != nil) })
	c := s.newContainer(pod, ctr)
	a, err = inTime(ctx, s, func(ctx context.Context) (*api.ContainerAdjustment, error) { return s.create(ctx, c, ctr) },
		func() { s.undoCreate(c) })
	if err == nil {
		return a, nil, nil
	}
	if errors.Is(err, errLate) && !c.claims {
		// createLate gets a new value: the work on c may have begun, and goes
		// on.
		return s.createLate(ctx, s.newContainer(pod, ctr)), nil, nil
	}
	logs.From(ctx).Error("creation refused", zap.String("container", c.name), zap.String("id", c.id), zap.Error(err))
	return nil, nil, refusal(c, err)
}

func (s *Session) create(ctx context.Context, c *container, ctr *api.Container) (*api.ContainerAdjustment, error) {
	if !c.claims {
		return s.createPooled(ctx, c), nil
	}
	s.containers[c.id] = c
	d, err := s.prepare(ctx, c)
	if err != nil {
		delete(s.containers, c.id)
		return nil, err
	}
	c.applied, c.adjusted = files(d), true
	s.due.after(createdPeriod, func() {})
	return adjust(d, oomScore(ctr)), nil
}

// undoCreate forgets a container if its creation was refused before the work on
// it ended. A container without a claim was created all the same.
func (s *Session) undoCreate(c *container) {
	if c.claims && s.containers[c.id] == c {
		delete(s.containers, c.id)
	}
}

// createPooled gives a container without a claim the shared pool. It never
// fails (I7): without a node state the container is created as it is, and moved
// when there is a state.
func (s *Session) createPooled(ctx context.Context, c *container) *api.ContainerAdjustment {
	s.containers[c.id] = c
	c.applied = map[string]string{}
	node, _, err := s.node(ctx)
	if err != nil {
		return nil
	}
	d, want, _ := s.decide(ctx, c, node)
	if want == nil {
		return nil
	}
	c.applied = want
	return pool(d)
}

// prepare does what must be done before the container exists, and returns the
// container's decision. An error fails the creation.
func (s *Session) prepare(ctx context.Context, c *container) (contract.Decision, error) {
	node, fresh, err := s.node(ctx)
	if err == nil && !fresh {
		_, err = s.Directory.Node()
	}
	if err != nil {
		return contract.Decision{}, fmt.Errorf("%w: it waits for dra-frontend", err)
	}
	s.learnLevels(c)
	s.tryPartitions(ctx)
	d, _, err := s.decide(ctx, c, node)
	if err == nil {
		err = s.checkFeatures(d)
	}
	if err != nil {
		return contract.Decision{}, err
	}
	if err := s.clear(ctx, cpusOutsidePartitions(c.held), node); err != nil {
		return contract.Decision{}, err
	}
	return d, s.writeAbove(ctx, c, node)
}

func errInPool(cpus contract.CPUSet, node contract.NodeState) error {
	return fmt.Errorf("its CPUs %s are also in the shared pool %s (%s, generation %d): it waits for dra-frontend to write the node state",
		cpus, node.Shared.CPUs, contract.NodeFile, node.Generation)
}

// StartContainer writes the container's values again. It is called when the
// container has its cgroup and its program does not run. The pool may have
// changed since the creation, or the container was created while no actuator
// was there.
func (s *Session) StartContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (err error) {
	acted := false
	defer s.observe("StartContainer", time.Now(), func() metrics.Outcome { return outcome(err, acted) })
	told := s.newContainer(pod, ctr)
	acted, err = inTime(ctx, s, func(ctx context.Context) (bool, error) { return s.start(ctx, told, ctr) }, nil)
	if err == nil {
		return nil
	}
	if errors.Is(err, errLate) && !told.claims {
		// I7: the container was created with a pool, and the next holder of the
		// lock looks at it.
		late := s.newContainer(pod, ctr)
		late.started = true
		s.later(event{container: late})
		return nil
	}
	return refusal(told, err)
}

// start reports whether it wrote. The error says why the container must not
// start.
func (s *Session) start(ctx context.Context, told *container, ctr *api.Container) (acted bool, err error) {
	c, known := s.existing(told)
	s.containers[c.id] = c
	c.started = true
	acted, err = s.bring(ctx, c, known)
	if err == nil {
		err = c.checkCreation(ctr)
	}
	if err == nil {
		return acted, nil
	}
	logs.From(ctx).Error("start", zap.String("container", c.name), zap.String("id", c.id), zap.Error(err))
	if !c.claims && !s.onClaimed(c) {
		// I7: a container off claimed CPUs may start without its values.
		return acted, nil
	}
	return acted, err
}

// bring gives an existing container its present values.
func (s *Session) bring(ctx context.Context, c *container, known bool) (acted bool, err error) {
	node, _, err := s.node(ctx)
	switch {
	case err != nil && !c.claims:
		return false, nil
	case err != nil && (c.held == nil || c.applied == nil):
		// I5: the values of the creation are not known.
		return false, err
	case err != nil:
		// The container keeps the values that it was created with or given
		// last.
		return true, s.writeOrGone(ctx, c, c.applied, known)
	}
	_, want, refused := s.decide(ctx, c, node)
	if c.partition != "" {
		s.learnLevels(c)
		err = s.writeAbove(ctx, c, node)
	}
	return true, errors.Join(refused, err, s.writeOrGone(ctx, c, want, known))
}

// writeAbove writes the values of the container's pod and of the levels. It
// begins at the top: the kernel takes a partition's CPUs from there.
func (p *Plugin) writeAbove(ctx context.Context, c *container, node contract.NodeState) error {
	partitionCPUs := p.partitionCPUs(node)
	if err := p.giveBack(ctx, p.shared, partitionCPUs); err != nil {
		// The CPUs are another pod's: if they are in the way, the kernel refuses
		// a write below.
		logs.From(ctx).Warn("partition CPUs of a pod that needs none not given back", zap.Error(err))
	}
	if err := p.writeAncestors(ctx, node, partitionCPUs, p.shared); err != nil {
		return err
	}
	if err := p.writePod(ctx, c, podFiles(c, node, partitionCPUs), p.shared); err != nil {
		return fmt.Errorf("its pod: %w", err)
	}
	return nil
}

// writeOrGone writes the container's files. A cgroup that is not where the
// runtime says (a virtual machine's container) is no error for a container that
// was created with its decision, and for a container without a claim. It is an
// error for a partition: the kernel would keep no container off its CPUs.
func (s *Session) writeOrGone(ctx context.Context, c *container, want map[string]string, known bool) error {
	err := s.write(ctx, c, want)
	if errors.Is(err, cgroups.ErrGone) && (known || !c.claims) && c.partition == "" {
		logs.From(ctx).Warn("no cgroup", zap.String("container", c.name), zap.Error(err))
		return nil
	}
	return err
}

// onClaimed reports whether a container may run on claimed CPUs.
func (s *Session) onClaimed(c *container) bool {
	claimed := s.cpusOutsidePartitions()
	if claimed.IsEmpty() {
		return false
	}
	if c.dirErr != nil {
		return true
	}
	cpus, err := s.Tree.ReadCPUs(c.dir, "cpuset.cpus")
	return !errors.Is(err, cgroups.ErrGone) && (err != nil || cpus.IsEmpty() || cpus.Overlaps(claimed))
}

// UpdateContainer puts the decision into an update that another program asked
// for: kubelet's zeros, a resize, or the values of the creation that the
// runtime repeats.
func (s *Session) UpdateContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container,
	asked *api.LinuxResources) (updates []*api.ContainerUpdate, err error) {
	defer s.observe("UpdateContainer", time.Now(), func() metrics.Outcome { return outcome(err, len(updates) > 0) })
	told := s.newContainer(pod, ctr)
	updates, err = inTime(ctx, s, func(ctx context.Context) ([]*api.ContainerUpdate, error) { return s.update(ctx, told, asked) }, nil)
	s.due.after(afterUpdate, func() { s.due.apply = true })
	switch {
	case err == nil:
		return updates, nil
	case errors.Is(err, errLate) && !told.claims:
		return s.updateLate(s.newContainer(pod, ctr)), nil
	}
	logs.From(ctx).Error("update refused", zap.String("container", told.name), zap.String("id", told.id), zap.Error(err))
	return nil, refusal(told, err)
}

func (s *Session) update(ctx context.Context, told *container, asked *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	c, _ := s.existing(told)
	if cpus, err := contract.ParseCPUs(asked.GetCpu().GetCpus()); err == nil && !c.pinned.IsEmpty() && !cpus.IsEmpty() {
		c.pinned = cpus
	}
	node, _, err := s.node(ctx)
	if err != nil && !c.claims {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, want, refused := s.decide(ctx, c, node)
	if refused != nil || want == nil {
		return nil, refused
	}
	return []*api.ContainerUpdate{update(c.id, d)}, nil
}

// PostUpdateContainer brings the container to its present values after the
// runtime has written an update: the pool may have changed since
// UpdateContainer.
func (s *Session) PostUpdateContainer(ctx context.Context, _ *api.PodSandbox, ctr *api.Container) error {
	start := time.Now()
	acted, err := inTime(ctx, s, func(ctx context.Context) (bool, error) {
		c, known := s.containers[ctr.GetId()]
		if !known {
			return false, nil
		}
		acted, err := s.bring(ctx, c, known)
		if err != nil {
			logs.From(ctx).Error("after update", zap.String("container", c.name), zap.Error(err))
		}
		return acted, err
	}, nil)
	s.Metrics.Hook("PostUpdateContainer", outcome(err, acted), start)
	return nil
}

// StopContainer forgets the container if its cgroup is gone. Some runtimes call
// it before the program has ended: the container is kept off claimed CPUs until
// its cgroup is gone.
func (s *Session) StopContainer(ctx context.Context, _ *api.PodSandbox, ctr *api.Container) (_ []*api.ContainerUpdate, err error) {
	defer s.observe("StopContainer", time.Now(), func() metrics.Outcome { return outcome(err, true) })
	return nil, s.leave(ctx, ctr, func(ctx context.Context, c *container) {
		c.started = true
		s.settle(ctx, c)
	})
}

// RemoveContainer ends the container's partition and forgets the container.
func (s *Session) RemoveContainer(ctx context.Context, _ *api.PodSandbox, ctr *api.Container) (err error) {
	defer s.observe("RemoveContainer", time.Now(), func() metrics.Outcome { return outcome(err, true) })
	return s.leave(ctx, ctr, func(ctx context.Context, c *container) {
		// A process that cannot die keeps the cgroup. A partition must not end
		// after the cgroups above it have given up its CPUs.
		if err := s.endPartition(c); err != nil {
			logs.From(ctx).Error("remove", zap.String("container", c.name), zap.Error(err))
		}
		s.forget(ctx, c)
		s.removed(c.id)
	})
}

// leave runs do for a container that ends. If there is no time, the next holder
// of the lock settles the container.
func (s *Session) leave(ctx context.Context, ctr *api.Container, do func(context.Context, *container)) error {
	_, err := inTime(ctx, s, func(ctx context.Context) (struct{}, error) {
		if c, known := s.containers[ctr.GetId()]; known {
			do(ctx, c)
		}
		return struct{}{}, nil
	}, nil)
	if errors.Is(err, errLate) {
		s.later(event{gone: ctr.GetId()})
		return nil
	}
	return err
}
