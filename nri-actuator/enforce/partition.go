// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

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

// Probe finds out whether the kernel makes partitions. It tries once if the
// answer is about the kernel.
func (e *Enforcer) Probe(ctx context.Context) {
	dir := e.podLevels()[contract.LevelKubepods]
	if e.partitions != nil || dir == "" {
		return
	}
	err := e.Mount.ProbePartitions(dir)
	if path.Dir(dir) != "." {
		err = fmt.Errorf("%w: cgroup %s is not right below the root (kubelet's cgroupRoot), "+
			"no program gives the cgroups above it exclusive CPUs", errors.ErrUnsupported, dir)
	}
	able := err == nil
	if able || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		e.partitions = &able
	}
	if !able {
		logs.From(ctx).Info("no cpuset partitions on this node", zap.Bool("triedAgain", e.partitions == nil), zap.Error(err))
	}
}

// Partitions reports whether the kernel makes partitions.
func (e *Enforcer) Partitions() bool { return e.partitions != nil && *e.partitions }

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
	kind, err := e.Mount.Read(c.Place.Dir, contract.FilePartition)
	return c.Place.Dir != "" && err == nil && kind != tree.Member
}

// partition returns the CPUs of the container's partition, none if it has no
// partition. A cgroup whose partition file cannot be read may be one.
func (e *Enforcer) partition(c *Container) contract.CPUSet {
	if c.Place.Dir == "" {
		return contract.CPUSet{}
	}
	kind, err := e.Mount.Read(c.Place.Dir, contract.FilePartition)
	if kind == tree.Member || errors.Is(err, cgroups.ErrGone) || errors.Is(err, fs.ErrNotExist) {
		return contract.CPUSet{}
	}
	cpus, err := e.Mount.ReadCPUs(c.Place.Dir, contract.FileExclusive)
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
	return fmt.Sprintf("the kernel does not make it a %s cpuset partition of CPUs %s: %s; other containers may run on them",
		e.kind, e.cpus, e.reason)
}

// checkPartition compares the container's partition with its decision. It makes
// a lost partition again when it finds the loss and at each refresh, not at
// each call between.
func (e *Enforcer) checkPartition(ctx context.Context, c *Container) error {
	d := c.Decision()
	if d.Partition == "" || c.Place.Dir == "" {
		c.trouble.invalid = ""
		return nil
	}
	got, err := e.Mount.Read(c.Place.Dir, contract.FilePartition)
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
			step := tree.Step{Dir: c.Place.Dir, Kind: tree.Partitioned, File: contract.FilePartition, Found: got, Content: d.Partition}
			e.repaired(ctx, step, c)
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
// kernel refuses. It makes an invalid partition a member: some kernels give its
// CPUs to no cgroup, and keep them for good when the cgroup goes (Linux 6.12).
// The same happens if a partition ends while an ancestor does not name its
// CPUs: ancestors are written before, and lose CPUs after.
func (e *Enforcer) makePartition(c *Container, d contract.Decision) (reason string, err error) {
	for dir := path.Dir(c.Place.Dir); dir != "."; dir = path.Dir(dir) {
		has, err := e.Mount.ReadCPUs(dir, contract.FileExclusive)
		if err != nil {
			return "", err
		}
		if !d.CPUs.IsSubsetOf(has) {
			return "", fmt.Errorf("cgroup %s has %d of its %d CPUs in %s (%q)",
				dir, d.CPUs.Intersection(has).Size(), d.CPUs.Size(), contract.FileExclusive, has.String())
		}
	}
	err = e.inOrder(c.Place.Dir, contract.FilePartition, tree.Member,
		contract.FileExclusive, d.CPUs.String(), contract.FilePartition, d.Partition)
	if err != nil {
		return "", errors.Join(err, e.inOrder(c.Place.Dir, contract.FilePartition, tree.Member))
	}
	got, err := e.Mount.Read(c.Place.Dir, contract.FilePartition)
	if err != nil || got == d.Partition {
		return "", err
	}
	reason, _ = strings.CutPrefix(got, d.Partition+" invalid ")
	return reason, e.inOrder(c.Place.Dir, contract.FilePartition, tree.Member)
}

// inOrder writes files one after the other, if their contents differ. files are
// names and contents in turn.
func (e *Enforcer) inOrder(dir string, files ...string) error {
	for i := 0; i < len(files); i += 2 {
		if has, err := e.Mount.Read(dir, files[i]); err == nil && has == files[i+1] {
			continue
		}
		step := tree.Step{Dir: dir, Kind: tree.Partitioned, File: files[i], Content: files[i+1]}
		if err := e.Mount.Take(step); err != nil {
			return err
		}
	}
	return nil
}

// endPartition makes a container that leaves give back its partition CPUs:
// another claim may have them, and cannot use them while this cgroup has them.
func (e *Enforcer) endPartition(c *Container) error {
	if !e.isPartition(c) {
		return nil
	}
	return e.inOrder(c.Place.Dir, contract.FilePartition, tree.Member, contract.FileExclusive, "")
}

// Invalid returns the kernel's reasons for lost partitions by claim UID.
func (e *Enforcer) Invalid() map[string]string {
	var reasons map[string]string
	for _, c := range e.known.all {
		for key, d := range c.held {
			if c.trouble.invalid != "" && d.Partition != "" {
				if reasons == nil {
					reasons = make(map[string]string)
				}
				reasons[key.ClaimUID] = c.trouble.invalid
			}
		}
	}
	return reasons
}
