// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/decisions"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// The container runtime makes a partition from the decision's files, before the
// container's program runs: the program never runs without it. The actuator
// gives the CPUs to the ancestors first, and reads the kernel's result back, at
// start and at each refresh. It makes a lost partition again, for which the
// kernel wants CAP_SYS_ADMIN.

// member is the partition file's content in a cgroup that is no partition.
const member = "member"

// tryPartitions finds out whether the kernel makes partitions. It tries once if
// the answer is about the kernel. It needs a pod to find kubepods; the
// actuator's own pod is enough.
func (p *Plugin) tryPartitions(ctx context.Context) {
	dir := p.levels[contract.LevelKubepods]
	if p.partitions != nil || dir == "" {
		return
	}
	err := p.Tree.Partitions(dir)
	if path.Dir(dir) != "." {
		err = fmt.Errorf("%w: cgroup %s is not right below the root (kubelet's cgroupRoot), "+
			"nobody gives what is above it exclusive CPUs", errors.ErrUnsupported, dir)
	}
	able := err == nil
	if able || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		p.partitions = &able
	}
	if !able {
		logs.From(ctx).Info("no cpuset partitions on this node", zap.Bool("triedAgain", p.partitions == nil), zap.Error(err))
	}
}

// invalid is the error for a container if the kernel does not grant its
// partition.
type invalid struct {
	kind   string
	cpus   contract.CPUSet
	reason string
}

func (e *invalid) Error() string {
	return fmt.Sprintf("the kernel does not make it a %s cpuset partition of CPUs %s: %s; others may run on them", e.kind, e.cpus, e.reason)
}

// checkPartition compares the container's partition with its decision. It makes
// a lost partition again when it finds the loss and at each refresh, not at
// each call between.
func (p *Plugin) checkPartition(ctx context.Context, c *container) error {
	if c.partition == "" {
		c.invalid = ""
		return nil
	}
	got, err := p.Tree.Read(c.dir, contract.FilePartition)
	if err != nil {
		return err
	}
	if got == c.partition {
		c.invalid = ""
		return nil
	}
	// A refresh seldom comes exactly one interval after the last.
	if now := p.Clock(); !c.started || c.invalid == "" || now.Sub(c.tried) >= p.RefreshInterval/2 {
		c.tried = now
		reason, err := p.makePartition(c)
		if err == nil && reason == "" {
			c.invalid = ""
			p.repaired(ctx, c.name, contract.FilePartition, got, c.partition, true)
			return nil
		}
		if err != nil {
			reason = err.Error()
		}
		if c.invalid == "" {
			c.invalid = fmt.Sprintf("%s is %q, and it cannot be made again: %s", contract.FilePartition, got, reason)
			logs.From(ctx).Error("partition lost", zap.String("container", c.name), zap.String("id", c.id),
				zap.Stringer("cpus", c.cpus), zap.String("reason", c.invalid))
		}
	}
	return &invalid{kind: c.partition, cpus: c.cpus, reason: c.invalid}
}

// makePartition makes the partition, and returns the kernel's reason if the
// kernel refuses. It makes an invalid partition a member: some kernels give its
// CPUs to no cgroup, and keep them for good when the cgroup goes (Linux 6.12).
// The same happens if a partition ends while an ancestor does not name its
// CPUs: ancestors are written before, and lose CPUs after.
func (p *Plugin) makePartition(c *container) (reason string, err error) {
	for dir := path.Dir(c.dir); dir != "."; dir = path.Dir(dir) {
		has, err := p.Tree.ReadCPUs(dir, contract.FileExclusive)
		if err != nil {
			return "", err
		}
		if !c.cpus.IsSubsetOf(has) {
			return "", fmt.Errorf("cgroup %s has %d of its %d CPUs in %s (%q)",
				dir, c.cpus.Intersection(has).Size(), c.cpus.Size(), contract.FileExclusive, has.String())
		}
	}
	err = p.inOrder(c.dir, contract.FilePartition, member, contract.FileExclusive, c.cpus.String(), contract.FilePartition, c.partition)
	if err != nil {
		return "", errors.Join(err, p.inOrder(c.dir, contract.FilePartition, member))
	}
	got, err := p.Tree.Read(c.dir, contract.FilePartition)
	if err != nil || got == c.partition {
		return "", err
	}
	reason, _ = strings.CutPrefix(got, c.partition+" invalid ")
	return reason, p.inOrder(c.dir, contract.FilePartition, member)
}

// inOrder writes files one after the other. files are names and contents in
// turn.
func (p *Plugin) inOrder(dir string, files ...string) error {
	for i := 0; i < len(files); i += 2 {
		if _, err := p.Tree.Write(dir, map[string]string{files[i]: files[i+1]}, func() {}); err != nil {
			return err
		}
	}
	return nil
}

// endPartition makes a container that lost its claim give back its partition
// CPUs: another claim may have them, and cannot use them while this cgroup has
// them.
func (p *Plugin) endPartition(c *container) error {
	if c.dirErr != nil {
		return nil
	}
	got, err := p.Tree.Read(c.dir, contract.FilePartition)
	switch {
	case errors.Is(err, cgroups.ErrGone), errors.Is(err, fs.ErrNotExist):
		// A kernel without partitions has no such file.
	case err != nil:
		return err
	case got == member && !c.started:
		// The runtime may be about to make the partition.
		return nil
	case got != member:
		// A partition needs its CPUs until it is a member.
		if err := p.inOrder(c.dir, contract.FilePartition, member, contract.FileExclusive, ""); err != nil {
			return err
		}
	}
	c.holds = contract.CPUSet{}
	return nil
}

// keepPartition reports whether the container stays a partition: a file cannot
// be read, and the frontend took nothing back. The cgroups above keep its CPUs
// then.
func (p *Plugin) keepPartition(c *container, refused error) bool {
	if c.dirErr != nil || errors.As(refused, new(*decisions.Refusal)) {
		return false
	}
	return p.keepHolds(c)
}

// keepHolds reports whether the container is a partition, and notes the CPUs
// that the cgroups above have to keep for it.
func (p *Plugin) keepHolds(c *container) bool {
	if c.dirErr != nil {
		return false
	}
	kind, err := p.Tree.Read(c.dir, contract.FilePartition)
	if err != nil || kind == member {
		return false
	}
	if cpus, err := p.Tree.ReadCPUs(c.dir, contract.FileExclusive); err == nil && c.holds.IsEmpty() {
		c.holds = cpus
	}
	return true
}

// invalidPartitions returns the kernel's reasons by claim UID.
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

// partitioned reports whether a container may hold partition CPUs.
func (p *Plugin) partitioned() bool {
	for _, c := range p.containers {
		if !c.holds.IsEmpty() {
			return true
		}
	}
	return false
}

// partitionCPUs returns the partition CPUs by directory of a pod or level, from the
// node state and from running partitions. An older frontend names no
// partitions, and does not take the CPUs of running ones.
func (p *Plugin) partitionCPUs(node contract.NodeState) map[string]contract.CPUSet {
	all := make(map[string]contract.CPUSet)
	add := func(dir string, cpus contract.CPUSet) {
		if dir != "" {
			all[dir] = all[dir].Union(cpus)
		}
	}
	for _, c := range p.containers {
		if c.podErr != nil {
			continue
		}
		add(c.podDir, node.Pods[c.ask.PodUID].PartitionCPUs)
		add(c.podDir, c.holds)
		for _, dir := range p.levels {
			if strings.HasPrefix(c.podDir, dir+"/") {
				add(dir, c.holds)
			}
		}
	}
	for level, cpus := range node.PartitionCPUs {
		add(p.levels[level], cpus)
	}
	return all
}

// findExclusive adds to written the pods that have partition CPUs and no known
// container: an earlier actuator gave the CPUs, or they could not be given
// back. The kernel's files name these CPUs.
func (p *Plugin) findExclusive(ctx context.Context, written map[string]contract.Files) {
	for _, level := range p.levels {
		names, err := p.Tree.Children(level)
		if err != nil && !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Warn("pods with exclusive CPUs not looked for", zap.Error(err))
		}
		for _, name := range names {
			dir := level + "/" + name
			if cpus, err := p.Tree.Read(dir, contract.FileExclusive); err == nil && cpus != "" && written[dir] == nil {
				written[dir] = contract.Files{contract.FileExclusive: cpus}
			}
		}
	}
}

// giveBack takes partition CPUs from the cgroups in written that do not need
// them, before other cgroups get theirs: the kernel lets no two siblings name
// the same CPU. A pod without containers can be in written until kubelet
// removes its cgroup.
func (p *Plugin) giveBack(ctx context.Context, written map[string]contract.Files, partitionCPUs map[string]contract.CPUSet) error {
	var errs []error
	for dir, files := range written {
		has, err := contract.ParseCPUs(files[contract.FileExclusive])
		if err != nil {
			errs = append(errs, fmt.Errorf("cgroup %s: %s: %w", dir, contract.FileExclusive, err))
			continue
		}
		if has.IsSubsetOf(partitionCPUs[dir]) || !p.Tree.Exists(dir) {
			continue
		}
		needed := has.Intersection(partitionCPUs[dir])
		keep := maps.Clone(files)
		if needed.IsEmpty() {
			delete(keep, contract.FileExclusive)
			err = p.restore(ctx, dir, keep)
		} else {
			keep[contract.FileExclusive] = needed.String()
			err = p.inOrder(dir, contract.FileExclusive, keep[contract.FileExclusive])
		}
		if err != nil {
			if !errors.Is(err, cgroups.ErrGone) {
				errs = append(errs, err)
			}
			continue
		}
		// Otherwise the missing CPUs would count as another program's write.
		written[dir] = keep
	}
	return errors.Join(errs...)
}

// withPartitionCPUs adds partition CPUs to the files of a pod or level.
func withPartitionCPUs(files contract.Files, cpus contract.CPUSet) contract.Files {
	if cpus.IsEmpty() {
		return files
	}
	if files = maps.Clone(files); files == nil {
		files = make(contract.Files)
	}
	files[contract.FileExclusive] = cpus.String()
	return files
}

// cpusOutsidePartitions returns the CPUs that decisions take out of the shared
// pool: their CPUs without partition CPUs.
func cpusOutsidePartitions(held map[contract.Key]contract.Decision) contract.CPUSet {
	var all contract.CPUSet
	for _, d := range held {
		if d.Partition == "" {
			all = all.Union(d.CPUs)
		}
	}
	return all
}
