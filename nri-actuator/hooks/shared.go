// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	var errs []error
	before := p.shared
	p.shared = make(map[string]contract.Files, len(before))
	done := make(map[string]bool)
	for _, c := range p.sorted() {
		p.learnLevels(c)
		if done[c.ask.PodUID] {
			continue
		}
		done[c.ask.PodUID] = true
		if err := p.writePod(ctx, c, node, before); err != nil && !errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, err)
		}
		if c.podErr != nil {
			continue
		}
		if _, err := p.restore(ctx, c.podDir, node.Pods[c.ask.PodUID].Cgroup); err != nil {
			errs = append(errs, fmt.Errorf("pod of container %s: %w", c.name, err))
		}
	}
	errs = append(errs, p.writeAncestors(ctx, node, before))
	for _, level := range levels {
		if p.levels == nil {
			break
		}
		restored, err := p.restore(ctx, p.levels[level], node.Ancestors[level])
		if err = errors.Join(err, p.Units.Set(p.levels[level], restored)); err != nil {
			errs = append(errs, fmt.Errorf("QoS level %q: %w", level, err))
		}
	}
	for dir := range before {
		// Pods that are not known any more; levels stay.
		if p.shared[dir] == nil && !slices.Contains(slices.Collect(maps.Values(p.levels)), dir) {
			p.Units.Forget(dir)
		}
	}
	return errors.Join(errs...)
}

// learnLevels finds the QoS levels. Any pod leads to them but those outside of
// kubepods, which other clients of the runtime make.
func (p *Plugin) learnLevels(c *container) {
	if p.levels == nil && c.podErr == nil {
		p.levels, _ = cgroups.Levels(c.podDir)
	}
}

// writePod writes the values of the container's pod.
func (p *Plugin) writePod(ctx context.Context, c *container, node contract.NodeState, before map[string]contract.Files) error {
	want := node.Pods[c.ask.PodUID].Cgroup
	if len(want) == 0 {
		return nil
	}
	err := c.podErr
	if err == nil {
		err = p.override(ctx, c.ask.PodUID, c.podDir, want, before)
	}
	if err != nil {
		return fmt.Errorf("pod of container %s: %w", c.name, err)
	}
	return nil
}

// writeAncestors writes the values of kubepods and of the QoS levels. A level
// that does not exist has no pod in it that could miss them.
func (p *Plugin) writeAncestors(ctx context.Context, node contract.NodeState, before map[string]contract.Files) error {
	var errs []error
	for _, level := range levels {
		want := node.Ancestors[level]
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
// was written last: what differs from it was written by someone else.
func (p *Plugin) override(ctx context.Context, key, dir string, want contract.Files, before map[string]contract.Files) error {
	ours := before[dir]
	found, err := p.writeFiles(ctx, dir, want, func() (map[string]string, error) { return p.Tree.Override(dir, want, ours) })
	for file, value := range found {
		if last, known := ours[file]; known && last != value {
			p.repaired(ctx, dir, file, value, want[file], p.overwritten.note(key, file, value, p.Clock()))
		}
	}
	if err != nil {
		return err
	}
	p.shared[dir] = want
	return nil
}

// restore gives back what is not wanted any more.
func (p *Plugin) restore(ctx context.Context, dir string, want contract.Files) (restored map[string]string, err error) {
	restored, err = p.Tree.Restore(dir, want)
	for file, value := range restored {
		logs.From(ctx).Info("given back", zap.String("cgroup", dir), zap.String("file", file), zap.String("value", value))
	}
	if errors.Is(err, cgroups.ErrGone) {
		return nil, nil
	}
	return restored, err
}

// overwritten are the values that others wrote, by QoS level or pod UID, and by
// file.
type overwritten map[string]map[string]foreignValue

type foreignValue struct {
	value string
	seen  time.Time
}

// remembered is how long a second writer is told of after its last write.
// Kubelet writes every minute.
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

// recent forgets what is old, and returns the rest.
func (o overwritten) recent(now time.Time) map[string]contract.Files {
	var out map[string]contract.Files
	for key, files := range o {
		for file, v := range files {
			if now.Sub(v.seen) > remembered {
				delete(files, file)
				continue
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
