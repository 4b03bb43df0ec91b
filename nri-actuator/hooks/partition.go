// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// A partition is made by the container runtime, from the decision's files and
// before the container's program runs: the kernel lets nobody without
// CAP_SYS_ADMIN do it, which the actuator lacks. What is done here is around
// that: the ancestors are given the CPUs first, what the kernel made of it is
// read back, and the runtime is asked once more where it holds no longer.

// member is what the partition file of a cgroup has that is none.
const member = "member"

// invalid is the error for a container whose partition the kernel does not
// grant.
type invalid struct {
	kind, cpus string
	// reason is the kernel's.
	reason string
}

func (e *invalid) Error() string {
	return fmt.Sprintf("the kernel does not make it a %s cpuset partition of CPUs %s: %s; others may run on them", e.kind, e.cpus, e.reason)
}

// checkPartition compares the container's partition with its decision.
func (p *Plugin) checkPartition(ctx context.Context, c *container) error {
	if c.partition == "" {
		return p.endPartition(c)
	}
	got, err := p.Tree.Read(c.dir, contract.FilePartition)
	if err != nil {
		return err
	}
	if got == c.partition {
		if c.invalid != "" {
			logs.From(ctx).Info("partition is valid again", zap.String("container", c.name), zap.String("cpus", c.cpus))
		}
		c.invalid = ""
		return nil
	}
	reason, found := strings.CutPrefix(got, c.partition+" invalid (")
	if reason = strings.TrimSuffix(reason, ")"); !found {
		reason = fmt.Sprintf("%s is %q", contract.FilePartition, got)
	}
	return &invalid{kind: c.partition, cpus: c.cpus, reason: reason}
}

// endPartition makes a container that lost its claim give back the CPUs: they
// may be another's by now, who could not have them while they are held here.
func (p *Plugin) endPartition(c *container) error {
	if !c.claims || len(c.held) > 0 {
		return nil
	}
	got, err := p.Tree.Read(c.dir, contract.FilePartition)
	if err != nil || got == member {
		// A kernel without partitions has no such file.
		return nil
	}
	// One after the other: as long as it is a partition it needs its CPUs.
	for _, f := range []struct{ file, content string }{{contract.FilePartition, member}, {contract.FileExclusive, ""}} {
		if _, err := p.Tree.Write(c.dir, map[string]string{f.file: f.content}, func() {}); err != nil {
			return err
		}
	}
	return nil
}

// lost notes a running container whose partition is invalid and, once in a
// refresh interval, has the runtime write its decision again.
func (p *Plugin) lost(ctx context.Context, c *container, d contract.Decision, err *invalid) {
	if c.invalid == "" {
		logs.From(ctx).Error("partition lost", zap.String("container", c.name), zap.String("id", c.id), zap.Error(err))
		c.invalid = err.reason
	}
	// Some kernels give the CPUs of an invalid partition to nobody, and keep
	// them for good when its cgroup goes (Linux 6.12).
	if _, err := p.Tree.Write(c.dir, map[string]string{contract.FilePartition: member}, func() {}); err != nil {
		logs.From(ctx).Error("partition", zap.String("container", c.name), zap.Error(err))
	}
	if now := p.Clock(); now.Sub(c.asked) >= p.RefreshInterval {
		c.asked = now
		p.again = append(p.again, update(c.id, d))
	}
}

// askAgain has the runtime write the decisions of containers whose partitions
// are invalid, and tells whether it did. The lock is not held: the runtime may
// call meanwhile.
func (p *Plugin) askAgain(ctx context.Context) bool {
	p.mu.Lock()
	again, session := p.again, p.session
	p.again = nil
	p.mu.Unlock()
	if len(again) == 0 || session == nil {
		return false
	}
	failed, err := session.update(again)
	if err != nil || len(failed) > 0 {
		logs.From(ctx).Warn("the runtime could not make partitions again", zap.Int("asked", len(again)), zap.Int("failed", len(failed)), zap.Error(err))
	}
	return err == nil
}

// invalidPartitions are the kernel's reasons by claim UID.
func (p *Plugin) invalidPartitions() map[string]string {
	var reasons map[string]string
	for _, c := range p.containers {
		if c.invalid == "" {
			continue
		}
		for key, d := range c.held {
			if d.Partition == "" {
				continue
			}
			if reasons == nil {
				reasons = make(map[string]string)
			}
			reasons[key.ClaimUID] = c.invalid
		}
	}
	return reasons
}

// exclusive are the CPUs of partitions by directory of a pod or a QoS level:
// what the node state says, and what runs. A frontend that was rolled back says
// nothing of partitions, and takes none from those that run.
func (p *Plugin) exclusive(node contract.NodeState) map[string]string {
	all := make(map[string]string)
	add := func(dir, cpus string) {
		if dir == "" || cpus == "" {
			return
		}
		sum := contract.Combine(contract.Decision{CPUs: all[dir]}, contract.Decision{CPUs: cpus})
		all[dir] = sum.CPUs
	}
	for _, c := range p.containers {
		if c.podErr != nil {
			continue
		}
		add(c.podDir, node.Pods[c.ask.PodUID].Exclusive)
		if c.partition == "" {
			continue
		}
		add(c.podDir, c.cpus)
		for _, dir := range p.levels {
			if strings.HasPrefix(c.podDir, dir+"/") {
				add(dir, c.cpus)
			}
		}
	}
	for level, cpus := range node.Exclusive {
		add(p.levels[level], cpus)
	}
	return all
}

// withExclusive adds CPUs of partitions to the files of a pod or a QoS level.
func withExclusive(files contract.Files, cpus string) contract.Files {
	if cpus == "" {
		return files
	}
	if files = maps.Clone(files); files == nil {
		files = make(contract.Files)
	}
	files[contract.FileExclusive] = cpus
	return files
}

// poolCPUs are the CPUs that decisions take out of the shared pool.
func poolCPUs(held map[contract.Key]contract.Decision) string {
	all := contract.Decision{}
	for _, d := range held {
		if d.Partition == "" {
			all = contract.Combine(all, contract.Decision{CPUs: d.CPUs})
		}
	}
	return all.CPUs
}

// updater asks the runtime to update running containers, and returns those that
// it could not.
type updater func([]*api.ContainerUpdate) ([]*api.ContainerUpdate, error)
