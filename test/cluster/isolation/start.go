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

// Starts is how long pods took from their creation until they were ready. Pods without a claim are the control: the
// more containers a node has, the longer the runtime and kubelet take for every pod.
type Starts struct {
	Kinds   []string               `json:"kinds"`   // what is compared, the control first
	Levels  []int                  `json:"levels"`  // numbers of containers without a claim beside the pod, the first is 0
	Seconds map[string][][]float64 `json:"seconds"` // by kind, level's index and repetition
	// Driver is how many of these seconds this driver's daemons took for their calls, in the same order. It is 0 in a
	// cluster without this driver.
	Driver map[string][][]float64 `json:"driver"`
}

// Summary returns the starts with three numbers in place of the repetitions: the least, the median and the most. All methods
// answer as before.
func (s Starts) Summary() Starts {
	summary := func(all map[string][][]float64) map[string][][]float64 {
		short := make(map[string][][]float64, len(all))
		for kind, levels := range all {
			for _, times := range levels[:len(s.Levels)] {
				short[kind] = append(short[kind], []float64{slices.Min(times), median(times), slices.Max(times)})
			}
		}
		return short
	}
	return Starts{Kinds: s.Kinds, Levels: s.Levels, Seconds: summary(s.Seconds), Driver: summary(s.Driver)}
}

const (
	// Goal is the greatest Ratio that a kind of this driver may have.
	Goal = 1.2
	// PartGoal is the greatest Part that a kind of this driver may have.
	PartGoal = 0.1
)

// Median returns the median of a level's repetitions, in seconds; level is an index of Levels.
func (s Starts) Median(kind string, level int) float64 {
	return median(s.Seconds[kind][level])
}

// Part is the median of the seconds that the driver's daemons took, divided by the median of the starts without a claim at the
// same level. Unlike Cost it has nothing of what kubelet, the runtime and the scheduler take, which differs from start to start.
func (s Starts) Part(kind string, level int) float64 {
	return median(s.Driver[kind][level]) / s.Median(None, level)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// Growth is a level's median divided by the first level's median.
func (s Starts) Growth(kind string, level int) float64 {
	return s.Median(kind, level) / s.Median(kind, 0)
}

// Ratio is a kind's growth divided by the control's growth: what the containers beside it cost a claim. 1 is no cost.
func (s Starts) Ratio(kind string, level int) float64 {
	return s.Growth(kind, level) / s.Growth(None, level)
}

// PerPod is how many containers without a claim one pod has: the kubelet bounds pods, not containers.
const PerPod = 10

// look is the interval at which a start is checked, and so the resolution of the times.
const look = 50 * time.Millisecond

// Cost is a kind's median divided by the control's median at the same level.
func (s Starts) Cost(kind string, level int) float64 {
	return s.Median(kind, level) / s.Median(None, level)
}

// Starts measures the kinds, the control first, in turn at each level. The levels must rise and be multiples of PerPod. After an
// error Starts returns the levels that were measured as a whole.
func (b *Bench) Starts(ctx context.Context, kinds []string, levels []int, repetitions int) (s Starts, err error) {
	s = Starts{Kinds: kinds, Seconds: map[string][][]float64{}, Driver: map[string][][]float64{}}
	if _, b.free, err = b.cpus(ctx); err != nil {
		return s, err
	}
	var crowd []string
	defer func() { err = errors.Join(err, b.objects().Remove(context.WithoutCancel(ctx), crowd...)) }()
	for i, level := range levels {
		for len(crowd)*PerPod < level {
			name := fmt.Sprintf("isolation-crowd-%d", len(crowd))
			crowd = append(crowd, name)
			var containers []objects.Container
			for n := range PerPod {
				containers = append(containers, objects.Container{Name: fmt.Sprintf("c%d", n), Args: []string{"sleep"}})
			}
			if err := b.objects().Create(ctx, name, containers...); err != nil {
				return s, err
			}
			// One pod at a time: an emulated node that starts many at once has none of them ready for a long time.
			if err := b.objects().Ready(ctx, name, time.Second); err != nil {
				return s, err
			}
		}
		for r := range repetitions + 1 {
			if r == 0 && i > 0 {
				continue // one warm-up, at the first level
			}
			for _, kind := range inTurn(kinds, r) {
				took, driver, err := b.start(ctx, kind, fmt.Sprintf("isolation-start-%d-%d-%s", level, r, kind))
				if err != nil {
					return s, fmt.Errorf("start, %s beside %d containers: %w", kind, level, err)
				}
				b.Log("start beside %d containers, %s: %.2f s, of these the driver's daemons %.3f s", level, kind, took, driver)
				if r == 0 {
					continue
				}
				for len(s.Seconds[kind]) <= i {
					s.Seconds[kind], s.Driver[kind] = append(s.Seconds[kind], nil), append(s.Driver[kind], nil)
				}
				s.Seconds[kind][i] = append(s.Seconds[kind][i], took)
				s.Driver[kind][i] = append(s.Driver[kind][i], driver)
			}
		}
		s.Levels = append(s.Levels, level)
	}
	return s, nil
}

// inTurn returns the kinds, in another order for each repetition. Once a minute kubelet spends a while on removing what
// is left of former pods; with one order this could meet the same kind again and again.
func inTurn(kinds []string, repetition int) []string {
	first := repetition % len(kinds)
	return slices.Concat(kinds[first:], kinds[:first])
}

// start measures one pod's start and the part of the driver's daemons in it, in seconds, and returns when all that the pod leaves
// behind is gone.
func (b *Bench) start(ctx context.Context, kind, pod string) (seconds, driver float64, err error) {
	defer func() {
		ctx := context.WithoutCancel(ctx)
		if err = errors.Join(err, b.objects().Remove(ctx, pod)); err == nil {
			err = b.settled(ctx)
		}
	}()
	before, err := b.driverSeconds(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := b.create(ctx, kind, pod); err != nil {
		return 0, 0, err
	}
	if err := b.objects().Ready(ctx, pod, look); err != nil {
		return 0, 0, err
	}
	seconds = time.Since(began).Seconds()
	after, err := b.driverSeconds(ctx)
	return seconds, after - before, err
}

// create makes a pod of the kind. The peer's pod and claims are those of the user's file.
func (b *Bench) create(ctx context.Context, kind, pod string) error {
	if kind == Peer {
		return b.objects().CreateFrom(ctx, b.PeerPod, pod)
	}
	return b.objects().Create(ctx, pod, b.container(kind, "sleep"))
}

// Check returns nil if the ratio and the part of this driver's kinds are within the goals at every level.
func (s Starts) Check() error {
	var errs []error
	for _, kind := range s.Kinds {
		if kind != Pool && kind != Partition {
			continue
		}
		for i, level := range s.Levels {
			if ratio := s.Ratio(kind, i); ratio > Goal {
				errs = append(errs, fmt.Errorf("%s: beside %d containers a start takes %.2f times as long as beside none, "+
					"%.2f times as much as without a claim, want at most %.1f",
					kind, level, s.Growth(kind, i), ratio, Goal))
			}
			if part := s.Part(kind, i); part > PartGoal {
				errs = append(errs, fmt.Errorf("%s: beside %d containers the driver's daemons take %.2f of a start without a claim, want at most %.1f",
					kind, level, part, PartGoal))
			}
		}
	}
	return errors.Join(errs...)
}
