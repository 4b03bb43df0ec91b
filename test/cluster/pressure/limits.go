// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Names of the lines of a limits run. All but Other are containers of one pod.
const (
	Throttled = "throttled" // grows above its memory.high
	Free      = "free"      // grows as much, has no memory.high
	Offender  = "offender"  // grows above its memory.max
	Neighbour = "neighbour" // stays within its claim
	Other     = "other pod" // stays within its claim
)

// LimitNames returns the lines' names in the order in which they are shown.
func LimitNames() []string { return []string{Throttled, Free, Offender, Neighbour, Other} }

// Limits is what happened to containers that went over their values, and to the containers beside them.
type Limits struct {
	Current    []Line // memory.current
	HighMiB    float64
	MaxMiB     float64          // of Offender
	HighEvents map[string]int64 // high of memory.events, when last seen
	OOMKills   map[string]int64
	Rate       map[string]float64    // of Throttled and Free above memory.high, MiB/s
	Ended      map[string]string     // reason, for containers that ended
	Resident   map[string][2]float64 // anonymous memory, MiB: the highest and the last that were seen
}

const (
	limitsPod = "pressure-limits"
	otherPod  = "pressure-other"
)

// Limits makes the run with claims of size bytes and removes its objects. The limit of Throttled and Free is three
// times their claim; the memory.high of Throttled is in the middle: twice the claim. No container may swap: above
// memory.high there is nothing to reclaim.
func (b *Bench) Limits(ctx context.Context, size int) (l Limits, err error) {
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), limitsPod, otherPod)) }()
	grow := func(to int) []string {
		return []string{"grow", strconv.Itoa(to), strconv.Itoa(size / 16), "200ms", "sleep"}
	}
	limit := fmt.Sprintf(`{"limit":"%d"`, 3*size)
	within := []string{"touch", strconv.Itoa(size * 3 / 4), "sleep"}
	if err := b.create(ctx, otherPod, container{name: Neighbour, claim: size, args: within}); err != nil {
		return l, err
	}
	err = b.create(ctx, limitsPod,
		container{name: Neighbour, claim: size, args: within},
		container{name: Throttled, claim: size, memory: limit + `,"throttlingFactor":0.5}`, args: grow(size * 11 / 4)},
		container{name: Free, claim: size, memory: limit + "}", args: grow(size * 11 / 4)},
		container{name: Offender, claim: size, args: grow(2 * size)})
	if err != nil {
		return l, err
	}
	patterns := make([]string, 2)
	for i, name := range []string{limitsPod, otherPod} {
		p, err := b.pod(ctx, name)
		if err != nil {
			return l, err
		}
		// The cgroup driver systemd writes UIDs with underscores.
		patterns[i] = "/sys/fs/cgroup/kubepods*/*besteffort*/*pod" + strings.ReplaceAll(string(p.UID), "-", "?") + "*/*"
	}
	stop := b.watch(ctx, patterns, nil)
	err = b.goOver(ctx)
	pods := make([]*corev1.Pod, 2)
	for i, name := range []string{limitsPod, otherPod} {
		p, got := b.pod(ctx, name)
		pods[i], err = p, errors.Join(err, got)
	}
	samples, watched := stop()
	if err := errors.Join(err, watched); err != nil {
		return l, err
	}
	return l, l.fill(samples, pods[0], pods[1], size)
}

// goOver waits until the containers have gone over their values, and some time more for the effects.
func (b *Bench) goOver(ctx context.Context) error {
	if _, err := b.said(ctx, limitsPod, Free, "grow"); err != nil {
		return err
	}
	for pod, names := range map[string][]string{limitsPod: {Neighbour}, otherPod: {Neighbour}} {
		for _, name := range names {
			if _, err := b.said(ctx, pod, name, "touch"); err != nil {
				return err
			}
		}
	}
	err := eventually(ctx, "container "+Offender+" ended", func(ctx context.Context) error {
		p, err := b.pod(ctx, limitsPod)
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == Offender && c.State.Terminated != nil {
				return nil
			}
		}
		return fmt.Errorf("containers %+v", p.Status.ContainerStatuses)
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second): // for all other containers to show that they live on
		return nil
	}
}

func (l *Limits) fill(samples []sample, pod, other *corev1.Pod, size int) error {
	l.HighMiB, l.MaxMiB = 2*float64(size)/mib, float64(size)/mib
	l.HighEvents, l.OOMKills, l.Rate = map[string]int64{}, map[string]int64{}, map[string]float64{}
	l.Ended, l.Resident = map[string]string{}, map[string][2]float64{}
	for _, name := range LimitNames() {
		p, container := pod, name
		if name == Other {
			p, container = other, Neighbour
		}
		dir, err := directory(samples, p, container)
		if err != nil {
			return err
		}
		current := line(name, samples, dir, keyCurrent)
		l.Current = append(l.Current, current)
		l.HighEvents[name], l.OOMKills[name] = last(samples, dir, keyHigh), last(samples, dir, keyOOMKill)
		l.Rate[name] = rateAbove(current, l.HighMiB)
		anon := line(name, samples, dir, keyAnon)
		highest, now := 0.0, 0.0
		for _, p := range anon.Points {
			highest, now = max(highest, p.MiB), p.MiB
		}
		l.Resident[name] = [2]float64{highest, now}
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == container && c.State.Terminated != nil {
				l.Ended[name] = c.State.Terminated.Reason
			}
		}
	}
	return nil
}

// directory returns the container's cgroup among the sampled cgroups; it may be gone.
func directory(samples []sample, pod *corev1.Pod, container string) (string, error) {
	for _, c := range pod.Status.ContainerStatuses {
		_, id, _ := strings.Cut(c.ContainerID, "://")
		if c.Name != container || id == "" {
			continue
		}
		for _, s := range samples {
			for dir := range s.values {
				if strings.Contains(dir, id) {
					return dir, nil
				}
			}
		}
	}
	return "", fmt.Errorf("container %s of %s was in no sample", container, pod.Name)
}

// rateAbove returns how fast the line rose from level to its highest point, in MiB/s; 0 without two points above level.
func rateAbove(l Line, level float64) float64 {
	var from, to *Point
	for i := range l.Points {
		p := &l.Points[i]
		if p.MiB < level {
			continue
		}
		if from == nil {
			from = p
		}
		if to == nil || p.MiB > to.MiB {
			to = p
		}
	}
	if from == nil || to.Seconds == from.Seconds {
		return 0
	}
	return (to.MiB - from.MiB) / (to.Seconds - from.Seconds)
}

// Check returns nil if the containers that went over a value were slowed down or ended, and the rest did not suffer.
func (l Limits) Check() error {
	var errs []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, name := range LimitNames() {
		switch ended := l.Ended[name]; name {
		case Offender:
			expect(ended == "OOMKilled", "%s ended with %q, want OOMKilled", name, ended)
		default:
			expect(ended == "" && l.OOMKills[name] == 0, "%s ended with %q, %d processes killed", name, ended, l.OOMKills[name])
			r := l.Resident[name]
			expect(r[1] >= 0.95*r[0] && r[0] > 0, "%s has %.0f of %.0f MiB left", name, r[1], r[0])
		}
	}
	expect(l.HighEvents[Throttled] > 0, "%s: no event at memory.high", Throttled)
	expect(l.HighEvents[Free] == 0, "%s: %d events at memory.high, which it does not have", Free, l.HighEvents[Free])
	expect(l.Rate[Throttled] > 0 && l.Rate[Throttled] < l.Rate[Free]/2,
		"above memory.high %s grew by %.2f MiB/s, %s by %.2f: want less than half", Throttled, l.Rate[Throttled], Free, l.Rate[Free])
	highest := l.Resident[Throttled][0]
	expect(highest < 1.25*l.HighMiB, "%s reached %.0f MiB, far above memory.high of %.0f", Throttled, highest, l.HighMiB)
	return errors.Join(errs...)
}
