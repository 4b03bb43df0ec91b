// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// The cgroups of pods and levels belong to kubelet, which also writes them. So
// the former values are given back, and the values that other programs write
// over the node state are announced.

// levels are the levels in the order in which they are written.
var levels = [...]string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}

// writeTree brings all known pods and the levels to the node state.
func (p *Plugin) writeTree(ctx context.Context, node contract.NodeState) error {
	before := p.shared
	p.shared = make(map[string]contract.Files, len(before))
	pods := make(map[string]bool, len(p.pods))
	all := p.sorted()
	for _, c := range all {
		p.learnLevels(c)
	}
	p.findExclusive(ctx, before)
	// The top comes first: the kernel takes a partition's CPUs from its
	// ancestors.
	partitionCPUs := p.partitionCPUs(node)
	errs := []error{p.giveBack(ctx, before, partitionCPUs), p.writeAncestors(ctx, node, partitionCPUs, before)}
	for _, c := range all {
		if c.podErr == nil && pods[c.podDir] {
			continue
		}
		want := podFiles(c, node, partitionCPUs)
		err := p.writePod(ctx, c, want, before)
		if c.podErr == nil {
			pods[c.podDir] = true
			err = errors.Join(err, p.restore(ctx, c.podDir, want))
		}
		if err != nil && !errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, fmt.Errorf("pod of container %s: %w", c.name, err))
		}
	}
	for dir := range p.pods {
		if !pods[dir] {
			p.forgetUnit(ctx, dir)
			delete(p.returned, dir)
		}
	}
	p.pods = pods
	for level, dir := range p.levels {
		if err := p.restore(ctx, dir, withPartitionCPUs(node.Ancestors[level], partitionCPUs[dir])); err != nil &&
			!errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, fmt.Errorf("QoS level %q: %w", level, err))
		}
	}
	p.overwritten.keep(node)
	return errors.Join(errs...)
}

// learnLevels finds the directories of the levels from a pod. Other clients of
// the runtime make pods outside kubepods, which do not lead to them.
func (p *Plugin) learnLevels(c *container) {
	if p.levels == nil && c.podErr == nil {
		p.levels, _ = cgroups.Levels(c.podDir)
	}
}

// podFiles returns the values of the container's pod.
func podFiles(c *container, node contract.NodeState, partitionCPUs map[string]contract.CPUSet) contract.Files {
	return withPartitionCPUs(node.Pods[c.ask.PodUID].Cgroup, partitionCPUs[c.podDir])
}

// writePod writes the values of the container's pod.
func (p *Plugin) writePod(ctx context.Context, c *container, want contract.Files, before map[string]contract.Files) error {
	if len(want) == 0 {
		return nil
	}
	if c.podErr != nil {
		return c.podErr
	}
	return p.override(ctx, c.ask.PodUID, c.podDir, want, before)
}

// writeAncestors writes the values of the levels. A level that does not exist
// is no error: it has no pods.
func (p *Plugin) writeAncestors(ctx context.Context, node contract.NodeState,
	partitionCPUs map[string]contract.CPUSet, before map[string]contract.Files) error {
	var errs []error
	for _, level := range levels {
		want := withPartitionCPUs(node.Ancestors[level], partitionCPUs[p.levels[level]])
		if len(want) == 0 {
			continue
		}
		if p.levels == nil {
			if len(p.containers) == 0 {
				return nil
			}
			return errors.New("no known pod is below a kubepods cgroup: the memory protection of the QoS levels cannot be written")
		}
		if err := p.override(ctx, level, p.levels[level], want, before); err != nil && !errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, fmt.Errorf("QoS level %q: %w", level, err))
		}
	}
	return errors.Join(errs...)
}

// override writes to the cgroup dir of a level or a pod; key is the level or
// the pod's UID. before are the values that were written last. Another program
// wrote a value that differs, unless systemd is behind and may have written an
// older value.
func (p *Plugin) override(ctx context.Context, key, dir string, want contract.Files, before map[string]contract.Files) error {
	ours := before[dir]
	if !p.Units.Settled(dir) {
		ours = nil
	}
	found, err := p.Tree.Override(dir, want, ours)
	// This comes after Override, which keeps the former values: systemd writes
	// the files itself.
	p.follow(ctx, dir, want)
	for file, value := range found {
		if last, known := ours[file]; known && last != value {
			p.repaired(ctx, dir, file, value, want[file], p.overwritten.note(key, file, value, p.Clock()))
			// The other program may have told systemd as well.
			p.Units.Again(dir)
			p.follow(ctx, dir, want)
		}
	}
	if err != nil {
		// A value that was not written must not count as this driver's.
		// Otherwise the next write would keep the value that it finds as
		// another program's, and give it back for good.
		written := make(contract.Files)
		maps.Copy(written, before[dir])
		for file := range found {
			written[file] = want[file]
		}
		want = written
	}
	p.shared[dir] = want
	return err
}

// restore gives back the files that are not wanted. The former values are kept
// with the cgroup until systemd has them too (I4).
func (p *Plugin) restore(ctx context.Context, dir string, want contract.Files) error {
	maps.DeleteFunc(p.returned[dir], func(file, _ string) bool { return want[file] != "" })
	// A value that waits for systemd is written once, and no other file waits
	// for it.
	keep := make(map[string]string)
	maps.Copy(keep, want)
	maps.Copy(keep, p.returned[dir])
	former, changed, err := p.Tree.Restore(dir, keep)
	for _, file := range changed {
		logs.From(ctx).Info("given back", zap.String("cgroup", dir), zap.String("file", file), zap.String("value", former[file]))
	}
	if len(former) > 0 {
		p.follow(ctx, dir, former)
		maps.Copy(former, p.returned[dir])
		p.returned[dir] = former
	}
	if len(p.returned[dir]) == 0 || !p.Units.Settled(dir) {
		return err
	}
	former = p.returned[dir]
	delete(p.returned, dir)
	// From here on the files are kubelet's again.
	p.forgetUnit(ctx, dir)
	p.follow(ctx, dir, want)
	return errors.Join(err, p.Tree.Release(dir, former))
}

// follow makes systemd follow the files of the cgroup dir. After an error the
// files are set right only after systemd's next reload.
func (p *Plugin) follow(ctx context.Context, dir string, files map[string]string) {
	if err := p.Units.Set(dir, files); err != nil {
		logs.From(ctx).Error("systemd does not follow", zap.String("cgroup", dir), zap.Error(err))
	}
}

// correct makes systemd follow where it would restore an older value.
func (p *Plugin) correct(ctx context.Context, dir string, files map[string]string) {
	if err := p.Units.Correct(dir, files); err != nil {
		logs.From(ctx).Error("systemd does not follow", zap.String("cgroup", dir), zap.Error(err))
	}
}

func (p *Plugin) forgetUnit(ctx context.Context, dir string) {
	if err := p.Units.Forget(dir); err != nil {
		logs.From(ctx).Warn("drop-in stays", zap.String("cgroup", dir), zap.Error(err))
	}
}

// overwritten are the values that other programs wrote, by level or pod UID,
// and by file.
type overwritten map[string]map[string]foreignValue

type foreignValue struct {
	value string
	seen  time.Time
}

// remembered is how long an overwritten value is announced at least after it
// was last seen. Kubelet writes every minute.
const remembered = 10 * time.Minute

// note notes a value and reports whether it is new.
func (o overwritten) note(key, file, value string, now time.Time) (news bool) {
	if o[key] == nil {
		o[key] = make(map[string]foreignValue)
	}
	news = o[key][file].value != value
	o[key][file] = foreignValue{value: value, seen: now}
	return news
}

// keep forgets the values of files that the node state does not name.
func (o overwritten) keep(node contract.NodeState) {
	for key, files := range o {
		maps.DeleteFunc(files, func(file string, _ foreignValue) bool {
			_, level := node.Ancestors[key][file]
			_, pod := node.Pods[key].Cgroup[file]
			partitions := file == contract.FileExclusive && (!node.PartitionCPUs[key].IsEmpty() || !node.Pods[key].PartitionCPUs.IsEmpty())
			return !level && !pod && !partitions
		})
	}
}

// recent returns the values that were seen since, and forgets the rest.
func (o overwritten) recent(since time.Time) map[string]contract.Files {
	var out map[string]contract.Files
	for key, files := range o {
		for file, v := range files {
			if v.seen.Before(since) {
				delete(files, file)
				continue
			}
			if file == contract.FileExclusive {
				continue // its partition is announced if it is invalid
			}
			if out == nil {
				out = make(map[string]contract.Files)
			}
			if out[key] == nil {
				out[key] = make(contract.Files)
			}
			out[key][file] = v.value
		}
		if len(files) == 0 {
			delete(o, key)
		}
	}
	return out
}
