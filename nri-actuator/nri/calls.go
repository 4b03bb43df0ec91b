// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

// Reduce removes from a part of the runtime's list what [Session.Synchronize] does not read: a pod decides how large the
// environments and annotations of its containers are.
func Reduce(list *api.SynchronizeRequest) {
	for i, pod := range list.GetPods() {
		list.Pods[i] = &api.PodSandbox{
			Id: pod.GetId(), Name: pod.GetName(), Uid: pod.GetUid(), Namespace: pod.GetNamespace(),
			Linux: &api.LinuxPodSandbox{CgroupParent: pod.GetLinux().GetCgroupParent()},
		}
	}
	for i, ctr := range list.GetContainers() {
		read := claims.Container{}.WithEnv(ctr.GetEnv())
		reduced := &api.Container{
			Id: ctr.GetId(), PodSandboxId: ctr.GetPodSandboxId(), Name: ctr.GetName(), State: ctr.GetState(),
			Env: read.Env, CDIDevices: ctr.GetCDIDevices(),
			Linux: &api.LinuxContainer{
				CgroupsPath: ctr.GetLinux().GetCgroupsPath(),
				Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: ctr.GetLinux().GetResources().GetCpu().GetCpus()}},
			},
		}
		if read.Oversize > 0 {
			// The frontend gives no container such a variable, so the session refuses the container, as it does for the size.
			reduced.Env = []string{fmt.Sprintf("%sOVERSIZE=%d bytes", contract.EnvPrefix, read.Oversize)}
		}
		if value, pooled := ctr.GetAnnotations()[pooledAnnotation]; pooled {
			reduced.Annotations = map[string]string{pooledAnnotation: value}
		}
		list.Containers[i] = reduced
	}
}

// read returns the container as the runtime reports it. Only the contract's part
// is kept: a container's environment may have megabytes.
func (s *Session) read(pod *api.PodSandbox, ctr *api.Container) *enforce.Container {
	c := &enforce.Container{
		ID:         ctr.GetId(),
		Name:       contract.Excerpt(pod.GetNamespace()+"/"+pod.GetName()+"/"+ctr.GetName(), enforce.MaxName),
		References: claims.Container{PodUID: pod.GetUid()}.WithEnv(ctr.GetEnv()),
	}
	for _, device := range ctr.GetCDIDevices() {
		c.References = c.References.WithDevice(device.GetName())
	}
	c.References.DevicesKnown = s.runtime.Load().NamesDevices() || len(ctr.GetCDIDevices()) > 0
	if _, pooled := ctr.GetAnnotations()[pooledAnnotation]; !c.NamesClaim() && !pooled {
		// The runtime has checked the list. Without a list, the container is not
		// pinned.
		c.Pinned, _ = contract.ParseCPUs(ctr.GetLinux().GetResources().GetCpu().GetCpus())
	}
	c.Cgroups.Dir, c.Cgroups.DirErr = cgroups.ContainerDir(ctr.GetLinux().GetCgroupsPath())
	c.Cgroups.Pod, c.Cgroups.PodErr = cgroups.PodDir(pod.GetLinux().GetCgroupParent())
	if pod == nil && c.Cgroups.DirErr == nil {
		// The container's cgroup is in the pod's cgroup, which names the pod.
		c.Cgroups.Pod, c.Cgroups.PodErr = path.Dir(c.Cgroups.Dir), nil
		c.References.PodUID = cgroups.PodUID(c.Cgroups.Pod)
		c.Life.PodUnlisted = c.NamesClaim()
	}
	return c
}

// CreateContainer answers with the container's decision. An error fails the
// creation, and kubelet tries again.
func (s *Session) CreateContainer(ctx context.Context, pod *api.PodSandbox,
	ctr *api.Container) (a *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer s.count("CreateContainer", time.Now(), func() metrics.Outcome { return outcome(err, a != nil) })
	c := s.read(pod, ctr)
	a, err = inTime(ctx, s, func(ctx context.Context) (*api.ContainerAdjustment, error) { return s.create(ctx, c, ctr) },
		func() { s.undoCreate(c) })
	if err == nil {
		return a, nil, nil
	}
	if errors.Is(err, errLate) && !c.NamesClaim() {
		// createLate gets a new value: the work on c may have begun, and goes
		// on.
		return s.createLate(ctx, s.read(pod, ctr)), nil, nil
	}
	if errors.Is(err, errLate) {
		// The runtime may be late itself, and go on without this answer. Then the guard waits for the container's values.
		late := s.read(pod, ctr)
		s.later(func(context.Context) {
			s.enforcer.FindOrAdd(late)
			s.due.look()
		})
	}
	logs.From(ctx).Error("creation refused", zap.String("container", c.Name), zap.String("id", c.ID), zap.Error(err))
	return nil, nil, runtimeError(c, err)
}

// create never fails for a container without a claim (I7): without a node state
// it is created as it is, and moved when there is a state.
func (s *Session) create(ctx context.Context, c *enforce.Container, ctr *api.Container) (*api.ContainerAdjustment, error) {
	s.enforcer.Add(ctx, c)
	if !c.NamesClaim() {
		d, ok, err := s.enforcer.Current(ctx, c)
		if err != nil || !ok {
			return nil, nil
		}
		return adjustToPool(d), nil
	}
	d, err := s.enforcer.Create(ctx, c, s.checkFeatures)
	if err != nil {
		s.enforcer.Drop(c)
		return nil, err
	}
	s.due.look()
	return adjust(d, oomScore(ctr)), nil
}

// undoCreate forgets a container if its creation was refused before the work on
// it ended. A container without a claim was created all the same.
func (s *Session) undoCreate(c *enforce.Container) {
	if c.NamesClaim() {
		s.enforcer.Drop(c)
	}
}

// StartContainer writes the container's values again. It is called when the
// container has its cgroup and its program does not run. The pool may have
// changed since the creation, or the container was created while no actuator
// was there.
func (s *Session) StartContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (err error) {
	acted := false
	defer s.count("StartContainer", time.Now(), func() metrics.Outcome { return outcome(err, acted) })
	reported := s.read(pod, ctr)
	acted, err = inTime(ctx, s, func(ctx context.Context) (bool, error) { return s.start(ctx, reported, ctr) }, nil)
	if err == nil {
		return nil
	}
	if errors.Is(err, errLate) && (!reported.NamesClaim() || guarded(ctr)) {
		// I7: a container without a claim was created with a pool. The guard has seen
		// that a container with a claim has its values (I5), and a pod that is never
		// restarted would fail for good. The next holder of the lock looks at it.
		late := s.read(pod, ctr)
		late.Life.Started = true
		s.later(func(context.Context) { s.enforcer.FindOrAdd(late) })
		return nil
	}
	return runtimeError(reported, err)
}

// start reports whether it applied a node state. The error says why the container must
// not start.
func (s *Session) start(ctx context.Context, reported *enforce.Container, ctr *api.Container) (acted bool, err error) {
	c, _ := s.enforcer.FindOrAdd(reported)
	before := c.Life.Started
	c.Life.Started = true
	acted, err = s.enforcer.ApplyTo(ctx, c, c.Life.Answered || guarded(ctr))
	if err == nil {
		err = checkCreation(c, ctr)
	}
	if err == nil && c.NamesClaim() && !c.Life.Answered && !guarded(ctr) {
		err = s.enforcer.PrepareMachine(ctx, c)
	}
	if err == nil {
		return acted, nil
	}
	if c.NamesClaim() {
		// The start is refused below. Until the next try the container waits.
		c.Life.Started = before
	}
	logs.From(ctx).Error("values not written at the start", zap.String("container", c.Name), zap.String("id", c.ID), zap.Error(err))
	if !c.NamesClaim() && !s.enforcer.OnClaimed(c) {
		// I7: a container off claimed CPUs may start without its values.
		return acted, nil
	}
	return acted, err
}

// checkCreation refuses the start of a container that may have been created
// without its memory policy or its OOM score: a container cannot get them later
// (I5). The guard has checked a container that has the guard's hook.
func checkCreation(c *enforce.Container, ctr *api.Container) error {
	d, missing := c.Decision(), ""
	switch own := oomScore(ctr); {
	case c.Life.Answered:
		return nil
	case d.MemoryPolicy != nil:
		missing = "memory policy"
	case d.LowersOOMScore(own):
		missing = "OOM score"
	default:
		return nil
	}
	if guarded(ctr) {
		return nil
	}
	return fmt.Errorf("nothing shows whether it was created with its claim's %s, "+
		"because this nri-actuator did not answer the creation: the container has to be created again", missing)
}

// guarded reports whether the guard has let the container's creation pass: the hook runs
// before the runtime starts the container.
func guarded(ctr *api.Container) bool {
	return slices.ContainsFunc(ctr.GetHooks().GetCreateRuntime(), func(h *api.Hook) bool {
		return contract.IsGuard(h.GetPath(), h.GetArgs())
	})
}

// UpdateContainer puts the decision into an update that another program asked
// for: kubelet's zeros, a resize, or the values of the creation that the
// runtime repeats.
func (s *Session) UpdateContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container,
	asked *api.LinuxResources) (updates []*api.ContainerUpdate, err error) {
	defer s.count("UpdateContainer", time.Now(), func() metrics.Outcome { return outcome(err, len(updates) > 0) })
	reported := s.read(pod, ctr)
	updates, err = inTime(ctx, s, func(ctx context.Context) ([]*api.ContainerUpdate, error) { return s.update(ctx, reported, asked) }, nil)
	s.due.after(afterUpdate, func() { s.due.apply = true })
	switch {
	case err == nil:
		return updates, nil
	case errors.Is(err, errLate) && !reported.NamesClaim():
		return s.updateLate(s.read(pod, ctr)), nil
	}
	logs.From(ctx).Error("update refused", zap.String("container", reported.Name), zap.String("id", reported.ID), zap.Error(err))
	return nil, runtimeError(reported, err)
}

func (s *Session) update(ctx context.Context, reported *enforce.Container, asked *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	c, _ := s.enforcer.FindOrAdd(reported)
	if cpus, err := contract.ParseCPUs(asked.GetCpu().GetCpus()); err == nil && !c.Pinned.IsEmpty() && !cpus.IsEmpty() {
		c.Pinned = cpus
	}
	d, ok, err := s.enforcer.Current(ctx, c)
	switch {
	case err != nil && c.NamesClaim():
		return nil, err
	case err != nil:
		return s.keepCPUs(ctx, c), nil
	case !ok:
		return nil, nil
	}
	return []*api.ContainerUpdate{update(c.ID, d)}, nil
}

// keepCPUs answers the update of a container without a claim while no node state is
// known: the runtime would write the CPUs of the creation again, and a claim may have them
// now (I1). A container that another program has pinned is that program's affair.
func (s *Session) keepCPUs(ctx context.Context, c *enforce.Container) []*api.ContainerUpdate {
	if !c.Pinned.IsEmpty() {
		return nil
	}
	cpus, err := s.enforcer.PresentCPUs(c)
	if err != nil {
		logs.From(ctx).Warn("updated with the CPUs of its creation: its present CPUs are not known",
			zap.String("container", c.Name), zap.String("id", c.ID), zap.Error(err))
	}
	if cpus.IsEmpty() {
		return nil
	}
	return []*api.ContainerUpdate{update(c.ID, contract.Decision{CPUs: cpus})}
}

// PostUpdateContainer brings the container to its present values after the
// runtime has written an update: the pool may have changed since
// UpdateContainer.
func (s *Session) PostUpdateContainer(ctx context.Context, _ *api.PodSandbox, ctr *api.Container) error {
	start := time.Now()
	acted, err := inTime(ctx, s, func(ctx context.Context) (bool, error) {
		c := s.enforcer.Find(ctr.GetId())
		if c == nil {
			return false, nil
		}
		acted, err := s.enforcer.ApplyTo(ctx, c, true)
		if err != nil {
			logs.From(ctx).Error("values not written after an update", zap.String("container", c.Name), zap.Error(err))
		}
		return acted, err
	}, nil)
	if err != nil {
		// The runtime may have written CPUs that a claim has by now (I1), and no event comes after this one.
		s.due.after(afterUpdate, func() { s.due.apply = true })
	}
	s.Metrics.Call("PostUpdateContainer", outcome(err, acted), start)
	return nil
}

// StopContainer forgets the container if its cgroup is gone.
func (s *Session) StopContainer(ctx context.Context, _ *api.PodSandbox, ctr *api.Container) (_ []*api.ContainerUpdate, err error) {
	defer s.count("StopContainer", time.Now(), func() metrics.Outcome { return outcome(err, true) })
	return nil, s.ended(ctx, ctr.GetId(), false)
}

// RemoveContainer ends the container's partition and forgets the container.
func (s *Session) RemoveContainer(ctx context.Context, _ *api.PodSandbox, ctr *api.Container) (err error) {
	defer s.count("RemoveContainer", time.Now(), func() metrics.Outcome { return outcome(err, true) })
	return s.ended(ctx, ctr.GetId(), true)
}

func (s *Session) ended(ctx context.Context, id string, removed bool) error {
	_, err := inTime(ctx, s, func(ctx context.Context) (struct{}, error) {
		s.enforcer.Ended(ctx, id, removed)
		return struct{}{}, nil
	}, nil)
	if errors.Is(err, errLate) {
		s.later(func(ctx context.Context) { s.enforcer.Ended(ctx, id, removed) })
		return nil
	}
	return err
}
