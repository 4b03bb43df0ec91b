// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/decisions"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// container is a container of the runtime, or a cgroup that adopt found.
type container struct {
	id string
	// name is "namespace/pod/container", for logs and errors.
	name string
	ask  decisions.Container
	// claims reports whether the container refers to the contract.
	claims bool
	// pinned is the cpuset that the container came with from another program.
	pinned contract.CPUSet
	dir    string
	dirErr error
	podDir string
	podErr error
	// started reports whether the container was started. If its cgroup is gone
	// then, it does not come back.
	started bool
	// session is the session that reported the container, nil if adopted.
	session *Session
	// seen reports whether the cgroup was found. A virtual machine's container
	// has none.
	seen bool
	// kept reports whether the container has a claim and the runtime did not
	// list its pod. Nothing shows then whether the claim is the pod's, so the
	// container stays as it is.
	kept bool
	// adopted reports whether the container was found below kubepods while no
	// runtime was connected. Only its cgroup is known.
	adopted bool
	// adjusted reports whether this actuator answered the creation with the
	// whole decision.
	adjusted bool
	// held are the decisions that were last found valid.
	held map[contract.Key]contract.Decision
	// applied are the values that the cgroup was last brought to. Another
	// program wrote a value that differs.
	applied map[string]string
	// overwritten are the values that another program wrote last.
	overwritten map[string]string
	// partition is the decision's kind of partition, empty for none. cpus are
	// the decision's CPUs.
	partition string
	cpus      contract.CPUSet
	// holds are the CPUs that the cgroup may have as a partition, whatever the
	// present decision is. The cgroups above keep these CPUs until this cgroup
	// is seen to have none.
	holds contract.CPUSet
	// invalid is the kernel's reason why the cgroup is no partition. tried is
	// the time of the last try to make it one.
	invalid string
	tried   time.Time
	// refused is the last refusal, which is logged and counted once.
	refused string
}

// newContainer returns the container as the runtime reports it. Only the
// contract's part is kept: a container's environment may have megabytes.
func (s *Session) newContainer(pod *api.PodSandbox, ctr *api.Container) *container {
	c := &container{
		id: ctr.GetId(), session: s,
		name: contract.Excerpt(pod.GetNamespace()+"/"+pod.GetName()+"/"+ctr.GetName(), maxName),
		ask:  decisions.Container{PodUID: pod.GetUid()}.WithEnv(ctr.GetEnv()),

		overwritten: make(map[string]string),
	}
	for _, device := range ctr.GetCDIDevices() {
		c.ask = c.ask.WithDevice(device.GetName())
	}
	c.ask.DevicesKnown = s.runtime.Load().tellsDevices || len(ctr.GetCDIDevices()) > 0
	c.claims = c.ask.Claims()
	if _, pooled := ctr.GetAnnotations()[pooledAnnotation]; !c.claims && !pooled {
		// The runtime has checked the list. Without a list, the container is not
		// pinned.
		c.pinned, _ = contract.ParseCPUs(ctr.GetLinux().GetResources().GetCpu().GetCpus())
	}
	c.dir, c.dirErr = cgroups.ContainerDir(ctr.GetLinux().GetCgroupsPath())
	c.podDir, c.podErr = cgroups.PodDir(pod.GetLinux().GetCgroupParent())
	if pod == nil && c.dirErr == nil {
		// The container's cgroup is in the pod's cgroup, which names the pod.
		c.podDir, c.podErr = path.Dir(c.dir), nil
		c.ask.PodUID = cgroups.PodUID(c.podDir)
		c.kept = c.claims
	}
	return c
}

// maxName bounds a container's name in logs and errors, in bytes: namespaces
// have at most 63, pods 253, containers 63.
const maxName = 400

// existing returns the container as it is known, or told if it is not known, or
// if only told has a pod.
func (s *Session) existing(told *container) (c *container, known bool) {
	c, known = s.containers[told.id]
	if !known || c.kept && !told.kept {
		told.resume(c)
		return told, known
	}
	return c, true
}

// resume takes over what is known about the container.
func (c *container) resume(before *container) {
	if before == nil {
		return
	}
	c.applied, c.overwritten = before.applied, before.overwritten
	c.held, c.holds, c.invalid, c.tried, c.refused = before.held, before.holds, before.invalid, before.tried, before.refused
	c.started, c.seen = c.started || before.started, before.seen
	// An answered creation does not mean that the runtime had the answer.
	c.adjusted = before.adjusted && c.started
}

// decide returns the container's decision at this node state, and the contents
// of its files. The error says why its claims are refused. want has only the
// pool's CPUs then: a container without a valid claim must keep off claimed
// CPUs (I1). want is nil for a container that stays as it is: another program
// has pinned it, or its CPUs may be its claim's.
func (p *Plugin) decide(ctx context.Context, c *container,
	node contract.NodeState) (d contract.Decision, want map[string]string, err error) {
	defer func() {
		if c.partition, c.cpus = d.Partition, d.CPUs; c.partition != "" {
			c.holds = c.cpus
		}
	}()
	shared := node.SharedOf(c.ask.PodUID)
	d = decisions.Effective(nil, shared)
	if c.kept || c.adopted && p.backed(c, node) {
		p.keepHolds(c)
		return contract.Decision{}, nil, nil
	}
	if !c.claims && p.foreign(c, node.Shared) {
		return contract.Decision{}, nil, nil
	}
	if !c.claims {
		return d, files(d), nil
	}
	held, err := p.Directory.ForContainer(node, c.ask)
	refusal := (*decisions.Refusal)(nil)
	if err != nil && c.held != nil && (!errors.As(err, &refusal) || !p.fresh) {
		// The frontend took nothing back: a file cannot be read, or the node
		// file is gone with it, as when the whole directory is.
		logs.From(ctx).Error("keeping the last known decision", zap.String("container", c.name), zap.Error(err))
		held, err = c.held, nil
	}
	if err != nil {
		p.refuse(ctx, c, err)
		if p.keepPartition(c, err) || p.keepUnreadable(c, node, err) {
			return d, nil, err
		}
		return d, map[string]string{"cpuset.cpus": d.CPUs.String()}, err
	}
	c.held, c.refused = held, ""
	d = decisions.Effective(held, shared)
	return d, files(d), nil
}

// keepUnreadable reports whether a container stays on CPUs that can be its
// claim's. Its claim file cannot be read, and the frontend took nothing back
// (I4).
func (p *Plugin) keepUnreadable(c *container, node contract.NodeState, refused error) bool {
	return c.started && c.dirErr == nil && p.fresh && !errors.As(refused, new(*decisions.Refusal)) && p.backed(c, node)
}

// refuse logs and counts a refusal, once while it stays the same.
func (p *Plugin) refuse(ctx context.Context, c *container, err error) {
	c.held = nil
	if c.refused == err.Error() {
		return
	}
	c.refused = err.Error()
	reason := "unreadable"
	if refusal := (*decisions.Refusal)(nil); errors.As(err, &refusal) {
		reason = refusal.Reason
	}
	p.Metrics.Refused(reason)
	logs.From(ctx).Error("container's claim refused", zap.String("container", c.name), zap.String("id", c.id), zap.Error(err))
}

// foreign reports whether another program has pinned the container to unmanaged
// CPUs, and the container is on them. If it was moved off them, it may be on
// claimed CPUs (I1).
func (p *Plugin) foreign(c *container, s contract.Shared) bool {
	if !pinnedWithin(c.pinned, s.UnmanagedCPUs) {
		return false
	}
	if c.dirErr != nil {
		return true
	}
	now, err := p.Tree.ReadCPUs(c.dir, "cpuset.cpus")
	return err != nil || pinnedWithin(now, s.UnmanagedCPUs)
}

// pinnedWithin reports whether a container with these CPUs is pinned, to
// unmanaged CPUs only.
func pinnedWithin(cpus, unmanaged contract.CPUSet) bool {
	return !cpus.IsEmpty() && cpus.IsSubsetOf(unmanaged)
}

// checkCreation refuses the start of a container that may have been created
// without its memory policy or its OOM score: a container cannot get them later
// (I5). The guard has checked a container that has the guard's hook.
func (c *container) checkCreation(ctr *api.Container) error {
	d, missing := contract.Merge(c.held), ""
	switch came := oomScore(ctr); {
	case c.adjusted:
		return nil
	case d.MemoryPolicy != nil:
		missing = "memory policy"
	case d.LowersOOMScore(came):
		missing = "OOM score"
	default:
		return nil
	}
	for _, h := range ctr.GetHooks().GetCreateRuntime() {
		if a := h.GetArgs(); len(a) == 2 && a[1] == "guard" {
			return nil
		}
	}
	return fmt.Errorf("nothing tells whether it was created with its claim's %s, "+
		"because this nri-actuator was not there then: it has to be created again", missing)
}

// pooled reports whether the container is a pool container.
func (c *container) pooled() bool { return contract.Merge(c.held).CPUs.IsEmpty() }

// write brings the container's cgroup to want. It writes nothing if want is
// nil.
func (p *Plugin) write(ctx context.Context, c *container, want map[string]string) error {
	if c.dirErr != nil {
		return c.dirErr
	}
	if want == nil {
		c.applied = nil
		return nil
	}
	if c.partition == "" && !c.holds.IsEmpty() {
		if err := p.endPartition(c); err != nil {
			return err
		}
	}
	told := false
	found, err := p.Tree.Write(c.dir, want, func() {
		told = true
		p.follow(ctx, c.dir, want)
	})
	if !told && err == nil {
		// The runtime may have written the wanted values while a drop-in has
		// other values.
		p.correct(ctx, c.dir, want)
	}
	c.seen = c.seen || err == nil
	if errors.Is(err, fs.ErrPermission) && !c.claims && c.podErr == nil {
		// Even root may not write to the root of its own cgroup namespace if
		// cgroup2 is mounted with nsdelegate (cgroup-v2.rst, "Model of
		// Delegation"). This is the actuator's own container. The cpuset of its
		// pod bounds its effective cpuset just as well.
		found, err = p.Tree.Write(c.podDir, want, func() { p.follow(ctx, c.podDir, want) })
	}
	for file, value := range found {
		if c.repairs(file, value) {
			p.repaired(ctx, c.name, file, value, want[file], c.overwritten[file] != value)
			c.overwritten[file] = value
		}
	}
	if err == nil {
		c.applied = want
	}
	if !c.started || errors.Is(err, cgroups.ErrGone) {
		return err
	}
	// The check also follows a failed write, which may be why the partition is
	// lost.
	lost := p.checkPartition(ctx, c)
	if err != nil {
		return err
	}
	return lost
}

// repairs reports whether another program changed a file that does not have the
// wanted value. Of a container that ran before this actuator, only the decision
// is known to have been there: the pool may have changed since. The runtime may
// be writing the files of a container that has not started.
func (c *container) repairs(file, found string) bool {
	if !c.started {
		return false
	}
	if c.applied == nil {
		return files(contract.Merge(c.held))[file] != ""
	}
	last, known := c.applied[file]
	return known && last != found
}

// repaired counts a repair of what another program wrote. It warns once while
// the same value comes back.
func (p *Plugin) repaired(ctx context.Context, cgroup, file, found, value string, news bool) {
	p.Metrics.Repaired(file)
	log := logs.From(ctx).Debug
	if news {
		log = logs.From(ctx).Warn
	}
	log("repaired what another program wrote", zap.String("cgroup", cgroup), zap.String("file", file),
		zap.String("found", found), zap.String("value", value))
}

// node reads the node state. fresh reports whether the file was read. While
// claimed CPUs are in use, the last known state stands in for a file that
// cannot be read: without a pool, containers without a claim would run on these
// CPUs (I1), and refusing such containers would stop the node (I7).
func (p *Plugin) node(ctx context.Context) (node contract.NodeState, fresh bool, err error) {
	node, err = p.Directory.Node()
	p.fresh = err == nil
	if p.fresh {
		p.last.Store(&node)
		return node, true, nil
	}
	log := logs.From(ctx).Error
	if errors.Is(err, fs.ErrNotExist) {
		log = logs.From(ctx).Warn
	}
	if last := p.last.Load(); last != nil && (!p.cpusOutsidePartitions().IsEmpty() || p.partitioned()) {
		log("using the last known shared pool", zap.Uint64("generation", last.Generation), zap.Error(err))
		return *last, false, nil
	}
	log("no node state", zap.Error(err))
	return contract.NodeState{}, false, err
}

// cpusOutsidePartitions returns the claimed CPUs of all containers without the
// partition CPUs.
func (p *Plugin) cpusOutsidePartitions() contract.CPUSet {
	var all contract.CPUSet
	for _, c := range p.containers {
		all = all.Union(cpusOutsidePartitions(c.held))
	}
	return all
}
