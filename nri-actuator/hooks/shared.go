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

// Cgroups of pods and of their ancestors belong to kubelet, which writes them as
// well: what they had before is given back, and what others write over the node
// state is told.

// levels of the tree, in the order in which they are written.
var levels = [...]string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}

// writeTree brings all known pods and their ancestors to the node state.
func (p *Plugin) writeTree(ctx context.Context, node contract.NodeState) error {
	before := p.shared
	p.shared = make(map[string]contract.Files, len(before))
	pods := make(map[string]bool, len(p.pods))
	all := p.sorted()
	for _, c := range all {
		p.learnLevels(c)
	}
	p.findExclusive(ctx, before)
	// From the top: the kernel takes a partition's CPUs from what the ancestors
	// have.
	exclusive := p.exclusive(node)
	errs := []error{p.giveBack(ctx, before, exclusive), p.writeAncestors(ctx, node, exclusive, before)}
	for _, c := range all {
		if c.podErr == nil && pods[c.podDir] {
			continue
		}
		want := podFiles(c, node, exclusive)
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
		if err := p.restore(ctx, dir, withExclusive(node.Ancestors[level], exclusive[dir])); err != nil && !errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, fmt.Errorf("QoS level %q: %w", level, err))
		}
	}
	p.overwritten.keep(node)
	return errors.Join(errs...)
}

// learnLevels finds the QoS levels. Any pod leads to them but those outside of
// kubepods, which other clients of the runtime make.
func (p *Plugin) learnLevels(c *container) {
	if p.levels == nil && c.podErr == nil {
		p.levels, _ = cgroups.Levels(c.podDir)
	}
}

// podFiles are the values of the container's pod.
func podFiles(c *container, node contract.NodeState, exclusive map[string]string) contract.Files {
	return withExclusive(node.Pods[c.ask.PodUID].Cgroup, exclusive[c.podDir])
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

// writeAncestors writes the values of kubepods and of the QoS levels. A level
// that does not exist has no pod in it that could miss them.
func (p *Plugin) writeAncestors(ctx context.Context, node contract.NodeState, exclusive map[string]string, before map[string]contract.Files) error {
	var errs []error
	for _, level := range levels {
		want := withExclusive(node.Ancestors[level], exclusive[p.levels[level]])
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

// override writes to the cgroup dir of a QoS level or a pod, key. before is what
// was written last: what differs from it was written by someone else, unless
// systemd is behind and may have written an older value.
func (p *Plugin) override(ctx context.Context, key, dir string, want contract.Files, before map[string]contract.Files) error {
	ours := before[dir]
	if !p.Units.Settled(dir) {
		ours = nil
	}
	found, err := p.Tree.Override(dir, want, ours)
	// Only now: systemd writes the files itself, and what they had before
	// would not be found any more.
	p.follow(ctx, dir, want)
	for file, value := range found {
		if last, known := ours[file]; known && last != value {
			p.repaired(ctx, dir, file, value, want[file], p.overwritten.note(key, file, value, p.Clock()))
			// Who writes the file may have told systemd as well.
			p.Units.Again(dir)
			p.follow(ctx, dir, want)
		}
	}
	if err != nil {
		// What was not written must not pass for ours: what is found there the
		// next time would be kept as someone else's, and given back to stay.
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

// restore gives back what is not wanted any more. The former values are kept
// with the cgroup until systemd has them as well (I4).
func (p *Plugin) restore(ctx context.Context, dir string, want contract.Files) error {
	maps.DeleteFunc(p.returned[dir], func(file, _ string) bool { return want[file] != "" })
	// What waits for systemd is written once, and nothing waits with it.
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
	// From now on they are whoever's they were.
	p.forgetUnit(ctx, dir)
	p.follow(ctx, dir, want)
	return errors.Join(err, p.Tree.Release(dir, former))
}

// follow has systemd follow what is written into the cgroup dir. What it cannot
// be told is set right after its next reload only.
func (p *Plugin) follow(ctx context.Context, dir string, files map[string]string) {
	if err := p.Units.Set(dir, files); err != nil {
		logs.From(ctx).Error("systemd does not follow", zap.String("cgroup", dir), zap.Error(err))
	}
}

// correct has systemd follow where it would bring back an older value.
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

// overwritten are the values that others wrote, by QoS level or pod UID, and by
// file.
type overwritten map[string]map[string]foreignValue

type foreignValue struct {
	value string
	seen  time.Time
}

// remembered is how long at least a second writer is told of after its last
// write. Kubelet writes every minute.
const remembered = 10 * time.Minute

// note notes a value and tells whether it is news.
func (o overwritten) note(key, file, value string, now time.Time) (news bool) {
	if o[key] == nil {
		o[key] = make(map[string]foreignValue)
	}
	news = o[key][file].value != value
	o[key][file] = foreignValue{value: value, seen: now}
	return news
}

// keep forgets what was written over values that are not wanted any more.
func (o overwritten) keep(node contract.NodeState) {
	for key, files := range o {
		maps.DeleteFunc(files, func(file string, _ foreignValue) bool {
			_, level := node.Ancestors[key][file]
			_, pod := node.Pods[key].Cgroup[file]
			partitions := file == contract.FileExclusive && (node.Exclusive[key] != "" || node.Pods[key].Exclusive != "")
			return !level && !pod && !partitions
		})
	}
}

// recent forgets what was not seen again since, and returns the rest.
func (o overwritten) recent(since time.Time) map[string]contract.Files {
	var out map[string]contract.Files
	for key, files := range o {
		for file, v := range files {
			if v.seen.Before(since) {
				delete(files, file)
				continue
			}
			if file == contract.FileExclusive {
				continue // a partition that suffers by it is told of
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
