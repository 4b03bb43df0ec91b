// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// Starts is how long pods took from their creation until they were ready, by the node's clock. Pods without a claim are the control: the
// more containers a node has, the longer the runtime and kubelet take for every pod.
type Starts struct {
	Kinds  []string `json:"kinds"`  // what is compared, the control first
	Levels []Level  `json:"levels"` // in rising order of their containers
}

// Level is the starts beside one number of containers without a claim.
type Level struct {
	Containers  int                  `json:"containers"`
	Repetitions int                  `json:"repetitions"` // starts of each kind
	Seconds     map[string][]float64 `json:"seconds"`     // by kind and repetition
	// Driver is how many of these seconds this driver's daemons took for their calls, in the same order. It is 0 in a
	// cluster without this driver.
	Driver map[string][]float64 `json:"driver"`
	// CPU is the CPU time of this driver's daemons during these seconds, in the same order. Levels of former versions lack it.
	CPU map[string][]float64 `json:"cpu,omitempty"`
}

// Summary returns the starts with three numbers in place of the repetitions: the least, the median and the most. All methods
// answer as before.
func (s Starts) Summary() Starts {
	summary := func(all map[string][]float64) map[string][]float64 {
		if all == nil {
			return nil
		}
		short := make(map[string][]float64, len(all))
		for kind, times := range all {
			short[kind] = []float64{slices.Min(times), median(times), slices.Max(times)}
		}
		return short
	}
	out := Starts{Kinds: s.Kinds}
	for _, l := range s.Levels {
		out.Levels = append(out.Levels, Level{l.Containers, l.Repetitions, summary(l.Seconds), summary(l.Driver), summary(l.CPU)})
	}
	return out
}

// With returns the levels of both. Of a level that both have it takes the one with more repetitions, and newer's if they have
// as many. An earlier level may lack kinds.
func (s Starts) With(newer Starts) Starts {
	out := Starts{Kinds: newer.Kinds, Levels: slices.Clone(newer.Levels)}
	for _, l := range s.Levels {
		i := slices.IndexFunc(out.Levels, func(n Level) bool { return n.Containers == l.Containers })
		switch {
		case i < 0:
			out.Levels = append(out.Levels, l)
		case l.Repetitions > out.Levels[i].Repetitions:
			out.Levels[i] = l
		}
	}
	slices.SortFunc(out.Levels, func(a, b Level) int { return a.Containers - b.Containers })
	return out
}

const (
	// Goal is the greatest Ratio that a kind of this driver may have.
	Goal = 1.2
	// PartGoal is the greatest Part that a kind of this driver may have.
	PartGoal = 0.1
)

// Median returns the median of a kind's repetitions, in seconds.
func (l Level) Median(kind string) float64 { return median(l.Seconds[kind]) }

// Has reports whether the kind was measured at the level.
func (l Level) Has(kind string) bool { return len(l.Seconds[kind]) > 0 }

// MedianCPU returns the median of the CPU times during the starts of a kind, in seconds. The level must have CPU times of it.
func (l Level) MedianCPU(kind string) float64 { return median(l.CPU[kind]) }

// Cost is a kind's median divided by another's.
func (l Level) Cost(kind, to string) float64 { return l.Median(kind) / l.Median(to) }

// Part is the median of the seconds that the driver's daemons took, divided by the median of the starts without a claim.
// Unlike Cost it has nothing of what kubelet, the runtime and the scheduler take, which differs from start to start.
func (l Level) Part(kind string) float64 { return median(l.Driver[kind]) / l.Median(None) }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// Growth is a level's median divided by the first level's median; level is an index of Levels.
func (s Starts) Growth(kind string, level int) float64 {
	return s.Levels[level].Median(kind) / s.Levels[0].Median(kind)
}

// Ratio is a kind's growth divided by the control's growth: what the containers beside it cost a claim. 1 is no cost.
func (s Starts) Ratio(kind string, level int) float64 {
	return s.Growth(kind, level) / s.Growth(None, level)
}

// PerPod is how many containers without a claim one pod has: the kubelet bounds pods, not containers.
const PerPod = 10

// look is the interval at which a start is checked, by the host's clock. A time by the node's clock can be that much too long.
const look = 50 * time.Millisecond

// Starts measures the kinds, the control first, in turn at each level. The levels must rise and be multiples of PerPod. After an
// error Starts returns what was measured of each kind equally often.
func (b *Bench) Starts(ctx context.Context, kinds []string, levels []int, repetitions int) (s Starts, err error) {
	s = Starts{Kinds: kinds}
	if _, b.free, err = b.cpus(ctx); err != nil {
		return s, err
	}
	var crowd []string
	defer func() { err = errors.Join(err, b.objects().Remove(context.WithoutCancel(ctx), crowd...)) }()
	for i, containers := range levels {
		for len(crowd)*PerPod < containers {
			name := fmt.Sprintf("isolation-crowd-%d", len(crowd))
			crowd = append(crowd, name)
			if err := b.crowd(ctx, name); err != nil {
				return s, err
			}
		}
		if i == 0 {
			if _, err := b.round(ctx, kinds, containers, 0); err != nil {
				return s, err
			}
		}
		for r := range repetitions {
			round, err := b.round(ctx, kinds, containers, r+1)
			if err != nil {
				return s, err
			}
			s.add(round)
		}
	}
	return s, nil
}

// crowd makes a pod of containers without a claim. One pod at a time: an emulated node that starts many at once has none of
// them ready for a long time.
func (b *Bench) crowd(ctx context.Context, name string) error {
	var containers []objects.Container
	for n := range PerPod {
		containers = append(containers, objects.Container{Name: fmt.Sprintf("c%d", n), Args: []string{"sleep"}})
	}
	if err := b.objects().Create(ctx, name, containers...); err != nil {
		return err
	}
	return b.objects().Ready(ctx, name, time.Second)
}

// round measures one start of each kind. Round 0 is a warm-up, whose result is not used.
func (b *Bench) round(ctx context.Context, kinds []string, containers, number int) (Level, error) {
	type byKind = map[string][]float64
	l := Level{Containers: containers, Repetitions: 1, Seconds: byKind{}, Driver: byKind{}, CPU: byKind{}}
	for _, kind := range inTurn(kinds, number) {
		took, driver, err := b.start(ctx, kind, fmt.Sprintf("isolation-start-%d-%d-%s", containers, number, kind))
		if err != nil {
			return Level{}, fmt.Errorf("start, %s beside %d containers: %w", kind, containers, err)
		}
		b.Log("start beside %d containers, %s: %.2f s, of these the driver's daemons %.3f s; their CPU time %.2f s",
			containers, kind, took, driver.calls, driver.cpu)
		l.Seconds[kind], l.Driver[kind], l.CPU[kind] = []float64{took}, []float64{driver.calls}, []float64{driver.cpu}
	}
	return l, nil
}

// add adds a round to the last level, or as a new level.
func (s *Starts) add(round Level) {
	if len(s.Levels) == 0 || s.Levels[len(s.Levels)-1].Containers != round.Containers {
		s.Levels = append(s.Levels, round)
		return
	}
	l := &s.Levels[len(s.Levels)-1]
	l.Repetitions++
	for kind := range round.Seconds {
		l.Seconds[kind] = append(l.Seconds[kind], round.Seconds[kind]...)
		l.Driver[kind] = append(l.Driver[kind], round.Driver[kind]...)
		l.CPU[kind] = append(l.CPU[kind], round.CPU[kind]...)
	}
}

// inTurn returns the kinds in the order of a round. Over as many rounds as there are kinds, or twice as many if their number is
// odd, each kind has each place equally often, and within a round directly follows each other kind equally often. Once a minute
// kubelet spends a while on removing what is left of former pods; with one order this could meet the same kind again and again.
// Late work of a removed pod may slow down the next start; if kinds always had the same kind before them, this would be the same
// kind's start.
func inTurn(kinds []string, round int) []string {
	n := len(kinds)
	turn := make([]string, n)
	for place := range n {
		// The first row of a balanced Latin square is 0, 1, n-1, 2, n-2 and so on. Each other row is one more, modulo n.
		at := (place + 1) / 2
		if place%2 == 0 {
			at = n - at
		}
		turn[place] = kinds[(at+round)%n]
	}
	// The rows of an odd number are balanced together with their reverses.
	if n%2 == 1 && round/n%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

// start measures one pod's start in seconds of the node's clock, and what the driver's daemons spent meanwhile. It returns when
// all that the pod leaves behind is gone.
func (b *Bench) start(ctx context.Context, kind, pod string) (seconds float64, driver spent, err error) {
	defer func() {
		ctx := context.WithoutCancel(ctx)
		if err = errors.Join(err, b.objects().Remove(ctx, pod)); err == nil {
			err = b.settled(ctx)
		}
	}()
	before, err := b.spent(ctx)
	if err != nil {
		return 0, spent{}, err
	}
	began, err := b.clock(ctx)
	if err != nil {
		return 0, spent{}, err
	}
	if err := b.create(ctx, kind, pod); err != nil {
		return 0, spent{}, err
	}
	if err := b.objects().Ready(ctx, pod, look); err != nil {
		return 0, spent{}, err
	}
	ready, err := b.clock(ctx)
	if err != nil {
		return 0, spent{}, err
	}
	after, err := b.spent(ctx)
	// The clock has hundredths of a second. A difference of two floating-point numbers would have more digits.
	return math.Round(100*(ready-began)) / 100, after.minus(before), err
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
		for i, l := range s.Levels {
			if ratio := s.Ratio(kind, i); ratio > Goal {
				errs = append(errs, fmt.Errorf("%s: beside %d containers a start takes %.2f times as long as beside none, "+
					"%.2f times as much as without a claim, want at most %.1f",
					kind, l.Containers, s.Growth(kind, i), ratio, Goal))
			}
			if part := l.Part(kind); part > PartGoal {
				errs = append(errs, fmt.Errorf("%s: beside %d containers the driver's daemons take %.2f of a start without a claim, want at most %.1f",
					kind, l.Containers, part, PartGoal))
			}
		}
	}
	return errors.Join(errs...)
}
