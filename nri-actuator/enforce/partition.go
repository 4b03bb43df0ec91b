// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// The container runtime makes a partition from the decision's files, before the
// container's program runs: the program never runs without it. The actuator
// gives the CPUs to the ancestors first, and reads the kernel's result back, at
// start and at each refresh. It makes a lost partition again, for which the
// kernel wants CAP_SYS_ADMIN.

// ProbePartitions finds out whether the kernel makes partitions. It tries again
// only if the last try showed nothing about the node.
func (e *Enforcer) ProbePartitions(ctx context.Context) {
	if e.canPartition != nil {
		return
	}
	dir := e.podLevels()[contract.LevelKubepods]
	if dir == "" {
		return
	}
	err := fmt.Errorf("%w: cgroup %s is not right below the root (kubelet's cgroupRoot), "+
		"no program gives the cgroups above it exclusive CPUs", errors.ErrUnsupported, dir)
	if path.Dir(dir) == "." {
		err = e.Mount.ProbePartitions(dir)
	}
	able := err == nil
	if able || errors.Is(err, errors.ErrUnsupported) {
		e.canPartition = &able
	}
	if !able {
		logs.From(ctx).Info("no cpuset partitions on this node", zap.Bool("triesAgain", e.canPartition == nil), zap.Error(err))
	}
}

// CanPartition reports whether the kernel makes partitions.
func (e *Enforcer) CanPartition() bool { return e.canPartition != nil && *e.canPartition }

// partitionsBelow reports whether a cgroup below the levels may be a partition:
// the kernel has partitions only below cgroups that name their CPUs.
func (e *Enforcer) partitionsBelow(levels map[string]string) bool {
	dir := levels[contract.LevelKubepods]
	if dir == "" {
		return false
	}
	named, err := e.Mount.Read(dir, contract.FileExclusive)
	return named != "" || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, cgroups.ErrGone)
}

// isPartition reports whether the container's cgroup is a partition, valid or
// not.
func (e *Enforcer) isPartition(c *Container) bool {
	kind, err := e.Mount.Read(c.Cgroups.Dir, contract.FilePartition)
	return c.Cgroups.Dir != "" && err == nil && kind != tree.Member
}

// partitionCPUs returns the CPUs of the container's partition, none if it has none. A
// cgroup whose partition file cannot be read may be a partition.
func (e *Enforcer) partitionCPUs(c *Container) contract.CPUSet {
	if c.Cgroups.Dir == "" {
		return contract.CPUSet{}
	}
	if kind, _ := e.Mount.ReadKept(c.Cgroups.Dir, contract.FilePartition); kind == tree.Member {
		return contract.CPUSet{}
	}
	cpus, err := e.Mount.ReadCPUs(c.Cgroups.Dir, contract.FileExclusive)
	if err != nil {
		return contract.CPUSet{}
	}
	return cpus
}

// invalid is the error for a container if the kernel does not grant its
// partition.
type invalid struct {
	kind   string
	cpus   contract.CPUSet
	reason string
}

func (e *invalid) Error() string {
	return fmt.Sprintf("the kernel does not make the container's cgroup a %s cpuset partition of CPUs %s: %s; "+
		"other containers may run on these CPUs", e.kind, e.cpus, e.reason)
}

// checkPartition compares the container's partition with its decision. It makes
// a lost partition again when it finds the loss and at each refresh, not at
// each call between.
func (e *Enforcer) checkPartition(ctx context.Context, c *Container) error {
	d := c.Decision()
	if d.Partition == "" || c.Cgroups.Dir == "" {
		c.trouble.invalid = ""
		return nil
	}
	got, err := e.Mount.Read(c.Cgroups.Dir, contract.FilePartition)
	if err != nil {
		return err
	}
	if got == d.Partition {
		c.trouble.invalid = ""
		return nil
	}
	// A refresh seldom comes exactly one interval after the last.
	if now := e.Clock(); !c.Life.Started || c.trouble.invalid == "" || now.Sub(c.trouble.tried) >= e.RefreshInterval/2 {
		c.trouble.tried = now
		reason, err := e.makePartition(c, d)
		if err == nil && reason == "" {
			c.trouble.invalid = ""
			if c.Life.Started { // else the runtime has made the cgroup and not yet the partition
				step := tree.Step{Dir: c.Cgroups.Dir, Kind: tree.Partitioned, File: contract.FilePartition, Found: got, Content: d.Partition}
				e.repaired(ctx, step, c)
			}
			return nil
		}
		if err != nil {
			reason = err.Error()
		}
		if c.trouble.invalid == "" {
			c.trouble.invalid = fmt.Sprintf("%s is %q, and it cannot be made again: %s", contract.FilePartition, got, reason)
			logs.From(ctx).Error("partition lost", zap.String("container", c.Name), zap.String("id", c.ID),
				zap.Stringer("cpus", d.CPUs), zap.String("reason", c.trouble.invalid))
		}
	}
	return &invalid{kind: d.Partition, cpus: d.CPUs, reason: c.trouble.invalid}
}

// makePartition makes the partition, and returns the kernel's reason if the
// kernel refuses. A refused partition becomes a member.
func (e *Enforcer) makePartition(c *Container, d contract.Decision) (reason string, err error) {
	if lack := e.lacksIsolated(d); lack != "" {
		return lack, nil
	}
	above, err := e.above(path.Dir(c.Cgroups.Dir))
	if err == nil {
		err = tree.NamedAbove(d.CPUs, above)
	}
	if err != nil {
		return "", err
	}
	if err := e.takeAll(tree.MakePartition(c.Cgroups.Dir, d, e.partitionFiles(c))); err != nil {
		return "", errors.Join(err, e.takeAll(tree.MakeMember(c.Cgroups.Dir, e.partitionFiles(c))))
	}
	got, err := e.Mount.Read(c.Cgroups.Dir, contract.FilePartition)
	if err != nil {
		return "", err
	}
	if reason = tree.Refused(d, got); reason != "" {
		err = e.takeAll(tree.MakeMember(c.Cgroups.Dir, e.partitionFiles(c)))
	}
	return reason, err
}

// lacksIsolated returns why the kernel must not make the decision's partition, empty if it may. The machine may
// have started an older kernel since the claim was prepared, and such a kernel can hang for good.
func (e *Enforcer) lacksIsolated(d contract.Decision) string {
	if d.Partition != contract.PartitionIsolated {
		return ""
	}
	return contract.Platform{Kernel: e.Kernel, Partitions: true}.Lacks(contract.FeatureIsolated)
}

// partitionFiles reads the partition's files of a container's cgroup. A file that
// cannot be read is left out.
func (e *Enforcer) partitionFiles(c *Container) contract.Files {
	files := make(contract.Files)
	for _, file := range []string{contract.FilePartition, contract.FileExclusive} {
		if content, err := e.Mount.Read(c.Cgroups.Dir, file); err == nil {
			files[file] = content
		}
	}
	return files
}

func (e *Enforcer) takeAll(steps []tree.Step) error {
	for _, step := range steps {
		if err := e.Mount.WriteStep(step); err != nil {
			return err
		}
	}
	return nil
}

// endPartition makes a container that leaves give back its partition CPUs.
func (e *Enforcer) endPartition(c *Container) error {
	// A cgroup whose partition file cannot be read may be a partition.
	if !e.isPartition(c) && e.partitionCPUs(c).IsEmpty() {
		return nil
	}
	return e.takeAll(tree.EndPartition(c.Cgroups.Dir, e.partitionFiles(c)))
}

// Invalid returns the kernel's reasons for lost partitions by claim UID.
func (e *Enforcer) Invalid() map[string]string {
	var reasons map[string]string
	for _, c := range e.containers {
		for key, d := range c.lastValid {
			if c.trouble.invalid != "" && d.Partition != "" {
				if reasons == nil {
					reasons = make(map[string]string)
				}
				reasons[key.ClaimUID] = contract.Excerpt(c.trouble.invalid, maxFault)
			}
		}
	}
	return reasons
}
