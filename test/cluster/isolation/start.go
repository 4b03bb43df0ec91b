// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// Starts is how long pods took from their creation until they were ready. Those without a claim are the control: the
// runtime and kubelet take longer for every pod the more containers a node has.
type Starts struct {
	Levels  []int                  // numbers of containers without a claim beside it, the first one 0
	Seconds map[string][][]float64 // by kind: for each level, each repetition
}

// StartKinds are the kinds that are compared, the control first.
func StartKinds() []string { return []string{None, Pool, Partition} }

// ClaimKinds are those of them that have a claim.
func ClaimKinds() []string { return StartKinds()[1:] }

// Goal is how many times as much the growth of a kind with a claim may be as that of the control.
func Goal(kind string) float64 {
	return map[string]float64{Pool: 1.5, Partition: 1.2}[kind]
}

// Median of the repetitions at a level, given by its index.
func (s Starts) Median(kind string, level int) float64 {
	sorted := slices.Sorted(slices.Values(s.Seconds[kind][level]))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// Growth is a level's median over that of the first level.
func (s Starts) Growth(kind string, level int) float64 {
	return s.Median(kind, level) / s.Median(kind, 0)
}

// Ratio of a kind's growth to that of the control: what the containers beside it cost a claim, 1 being nothing.
func (s Starts) Ratio(kind string, level int) float64 {
	return s.Growth(kind, level) / s.Growth(None, level)
}

// perPod is how many containers without a claim one pod has: the kubelet bounds pods, not containers.
const perPod = 10

// look is how often a start is looked at: it is what the times are exact to.
const look = 50 * time.Millisecond

// Starts measures at each level, whose numbers must rise and be multiples of ten, kinds in turn.
func (b *Bench) Starts(ctx context.Context, levels []int, repetitions int) (s Starts, err error) {
	s = Starts{Levels: levels, Seconds: map[string][][]float64{}}
	var crowd []string
	defer func() { err = errors.Join(err, b.objects().Remove(context.WithoutCancel(ctx), crowd...)) }()
	for i, level := range levels {
		var fresh []string
		for len(crowd)*perPod < level {
			name := fmt.Sprintf("isolation-crowd-%d", len(crowd))
			crowd, fresh = append(crowd, name), append(fresh, name)
			var containers []objects.Container
			for n := range perPod {
				containers = append(containers, objects.Container{Name: fmt.Sprintf("c%d", n), Args: []string{"sleep"}})
			}
			if err := b.objects().Create(ctx, name, containers...); err != nil {
				return s, err
			}
		}
		for _, name := range fresh {
			if err := b.objects().Ready(ctx, name, time.Second); err != nil {
				return s, err
			}
		}
		for r := range repetitions + 1 {
			if r == 0 && i > 0 {
				continue // only the first level is warmed up for
			}
			for _, kind := range inTurn(r) {
				took, err := b.start(ctx, kind, fmt.Sprintf("isolation-start-%d-%d-%s", level, r, kind))
				if err != nil {
					return s, fmt.Errorf("start, %s beside %d containers: %w", kind, level, err)
				}
				b.Log("start beside %d containers, %s: %.2f s", level, kind, took)
				if r == 0 {
					continue
				}
				for len(s.Seconds[kind]) <= i {
					s.Seconds[kind] = append(s.Seconds[kind], nil)
				}
				s.Seconds[kind][i] = append(s.Seconds[kind][i], took)
			}
		}
	}
	return s, nil
}

// inTurn are the kinds in another order for each repetition: once a minute kubelet removes what is left of former pods, which
// takes a while, and would meet the same kind again and again if the others take the rest of the minute.
func inTurn(repetition int) []string {
	kinds := StartKinds()
	first := repetition % len(kinds)
	return slices.Concat(kinds[first:], kinds[:first])
}

// start is one pod's start, in seconds; what it leaves behind is gone afterwards.
func (b *Bench) start(ctx context.Context, kind, pod string) (seconds float64, err error) {
	defer func() {
		ctx := context.WithoutCancel(ctx)
		if err = errors.Join(err, b.objects().Remove(ctx, pod)); err == nil {
			err = b.settled(ctx)
		}
	}()
	began := time.Now()
	if err := b.objects().Create(ctx, pod, b.container(kind, "sleep")); err != nil {
		return 0, err
	}
	err = b.objects().Ready(ctx, pod, look)
	return time.Since(began).Seconds(), err
}

// Check is nil if every level's ratio is within the goal.
func (s Starts) Check() error {
	var errs []error
	for _, kind := range ClaimKinds() {
		for i, level := range s.Levels {
			if ratio := s.Ratio(kind, i); ratio > Goal(kind) {
				errs = append(errs, fmt.Errorf("%s: beside %d containers a start takes %.2f times as long as beside none, %.2f times as much as without a claim, want at most %.1f",
					kind, level, s.Growth(kind, i), ratio, Goal(kind)))
			}
		}
	}
	return errors.Join(errs...)
}
