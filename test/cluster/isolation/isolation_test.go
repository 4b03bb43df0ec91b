// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

func TestParseDomains(t *testing.T) {
	const text = `version 16
timestamp 4295
cpu0 0 0 0 0 0 0 1 2 3
domain0 3 0 0 0
domain1 f 0 0 0
cpu1 0 0 0 0 0 0 1 2 3
domain0 3 0 0 0
cpu2 0 0 0 0 0 0 1 2 3
cpu3 0 0 0 0 0 0 1 2 3
`
	domains, err := parseDomains(text)
	require.NoError(t, err)
	require.Equal(t, map[int]int{0: 2, 1: 1, 2: 0, 3: 0}, domains)
	for name, bad := range map[string]string{
		"empty": "", "no CPU": "version 16\n", "domain first": "domain0 3\ncpu0 1\n", "no number": "cpux 1\n", "negative": "cpu-1 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseDomains(bad)
			require.Error(t, err)
		})
	}
}

func FuzzParseDomains(f *testing.F) {
	f.Add("version 16\ncpu0 0 0\ndomain0 3\n")
	f.Add("cpu1\ndomain\ncpu1\n")
	f.Fuzz(func(t *testing.T, text string) {
		domains, err := parseDomains(text)
		require.Equal(t, err == nil, len(domains) > 0)
		for _, n := range slices.Collect(maps.Keys(domains)) {
			require.GreaterOrEqual(t, n, 0)
		}
	})
}

func TestParseLast(t *testing.T) {
	var reach Reach
	require.NoError(t, parseLast(`{"action":"hog","threads":2}
{"action":"observe","samples":1,"allowed":1}

{"action":"observe","samples":9,"allowed":4}
`, "observe", &reach))
	require.Equal(t, Reach{Samples: 9, Allowed: 4}, reach)
	for say, output := range map[string]string{
		"no line of observe": `{"action":"hog"}`, "no such file": `{"action":"cycle","error":"no such file"}`, "Killed": "Killed\n",
	} {
		require.ErrorContains(t, parseLast(output, "observe", &reach), say)
	}
	var c Cycle
	require.NoError(t, parseLast(`{"action":"cycle","samples":3,"p99":7,"p99.9":8,"p99.99":9,"max":10,"histogram":[[7,7,3]]}`, "cycle", &c))
	require.Equal(t, Cycle{Samples: 3, P99: 7, P999: 8, P9999: 9, Max: 10, Histogram: [][3]uint64{{7, 7, 3}}}, c)
}

func latencies() []Latency {
	all := []Latency{
		{Kind: None, CPUs: "0-3", Pod: Reach{9, 9}, Host: Reach{9, 9}, Domains: 2},
		{Kind: Pool, CPUs: "2-3", Pod: Reach{9, 0}, Host: Reach{9, 9}, Domains: 2},
		{Kind: Partition, CPUs: "2-3", Pod: Reach{9, 0}, Host: Reach{9, 0}, Domains: 1},
		{Kind: Isolated, CPUs: "2-3", Pod: Reach{9, 0}, Host: Reach{9, 0}, Isolated: "2-3"},
		{Kind: Quiet, CPUs: "2-3", Pod: Reach{9, 0}, Host: Reach{9, 0}, Domains: 1},
	}
	for i := range all {
		all[i].Alone = alone(all[i].Kind, cluster.KernelNewest)
		all[i].Cycle = Cycle{Samples: 100, P99: 1000, Waited: 50000}
		if i > 1 {
			all[i].Cycle.P99, all[i].Cycle.Waited = 10, 100
		}
	}
	return all
}

func TestCheckLatencies(t *testing.T) {
	cases := map[string]struct {
		change func([]Latency)
		say    string
	}{
		"as it should be":   {change: func([]Latency) {}},
		"nothing measured":  {func(all []Latency) { all[0].Cycle.Samples = 0 }, "none: no samples"},
		"nothing shown":     {func(all []Latency) { all[0].Pod.Allowed = 0 }, "none: the other pod"},
		"pool let a pod in": {func(all []Latency) { all[1].Pod.Allowed = 1 }, "pool: the other pod could use CPUs 2-3 in 1 of 9"},
		"partition let a process in": {
			func(all []Latency) { all[2].Host.Allowed = 2 },
			"partition: the host process could use CPUs 2-3 in 2 of 9",
		},
		"pool kept a process away":    {func(all []Latency) { all[1].Host.Allowed = 0 }, "pool: the host process"},
		"isolated is balanced":        {func(all []Latency) { all[3].Domains = 1 }, "isolated: CPUs 2-3"},
		"isolated are others":         {func(all []Latency) { all[3].Isolated = "3" }, `the kernel has "3" isolated`},
		"partition is isolated":       {func(all []Latency) { all[2].Isolated = "2-3" }, "partition: CPUs 2-3"},
		"partition is no better":      {func(all []Latency) { all[2].Cycle.P99 = 1000 }, "partition: p99 is 1000 ns"},
		"partition waits for a CPU":   {func(all []Latency) { all[3].Cycle.Waited = 50000 }, "isolated: waited 500ns each time"},
		"partition without balancing": {func(all []Latency) { all[2].Domains = 0 }, "scheduling domains 0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := latencies()
			c.change(all)
			if c.say == "" {
				require.NoError(t, CheckLatencies(all))
				return
			}
			require.ErrorContains(t, CheckLatencies(all), c.say)
		})
	}
}

func TestStarts(t *testing.T) {
	type kinds = map[string][]float64
	s := Starts{Kinds: []string{None, Pool, Partition, Static}, Levels: []Level{
		{
			Containers: 0, Repetitions: 1, Seconds: kinds{None: {2}, Pool: {4, 9, 3, 4}, Partition: {4}, Static: {1}},
			Driver: kinds{None: {.01}, Pool: {.1}, Partition: {.1}, Static: {0}},
		},
		{
			Containers: 20, Repetitions: 2, Seconds: kinds{None: {3, 2, 4}, Pool: {7, 6, 8}, Partition: {6.8, 7.6}, Static: {9}},
			Driver: kinds{None: {.01, .03}, Pool: {.2, .4, .1}, Partition: {.1, .2}, Static: {0}},
		},
	}}
	first, second := s.Levels[0], s.Levels[1]
	require.InDelta(t, 4, first.Median(Pool), 1e-9)
	require.InDelta(t, 7.2, second.Median(Partition), 1e-9)
	require.InDelta(t, 1.5, s.Growth(None, 1), 1e-9)
	require.InDelta(t, 1.75, s.Growth(Pool, 1), 1e-9)
	require.InDelta(t, 1.75/1.5, s.Ratio(Pool, 1), 1e-9)
	require.InDelta(t, 7.0/3, second.Cost(Pool, None), 1e-9)
	require.InDelta(t, 7.0/9, second.Cost(Pool, Static), 1e-9)
	require.True(t, first.Has(Pool))
	require.False(t, first.Has(Device))
	require.InDelta(t, 1.2, s.Ratio(Partition, 1), 1e-9)
	require.InDelta(t, .02/3, second.Part(None), 1e-9)
	require.InDelta(t, .2/3, second.Part(Pool), 1e-9)
	require.Equal(t, []float64{4, 9, 3, 4}, first.Seconds[Pool], "times stay in order")
	require.NoError(t, s.Check())
	second.Seconds[Partition] = []float64{7.5}
	require.ErrorContains(t, s.Check(), "partition: beside 20 containers a start takes 1.88 times as long as beside none, 1.25 times")
	second.Seconds[Partition], second.Driver[Partition] = []float64{7}, []float64{.33}
	require.ErrorContains(t, s.Check(),
		"partition: beside 20 containers the driver's daemons take 0.11 of a start without a claim, want at most 0.1")
}

// A level has the rounds that were measured, and three numbers of them are enough for the page.
func TestStarts_Add(t *testing.T) {
	type kinds = map[string][]float64
	round := func(containers int, none, pool float64) Level {
		return Level{
			Containers: containers, Repetitions: 1, Seconds: kinds{None: {none}, Pool: {pool}},
			Driver: kinds{None: {none / 10}, Pool: {pool / 10}}, CPU: kinds{None: {2 * none}, Pool: {2 * pool}},
		}
	}
	var s Starts
	for _, l := range []Level{round(0, 1, 2), round(0, 3, 9), round(0, 2, 7), round(0, 5, 4), round(20, 6, 7)} {
		s.add(l)
	}
	require.Equal(t, []Level{
		{
			Containers: 0, Repetitions: 4, Seconds: kinds{None: {1, 3, 2, 5}, Pool: {2, 9, 7, 4}},
			Driver: kinds{None: {.1, .3, .2, .5}, Pool: {.2, .9, .7, .4}}, CPU: kinds{None: {2, 6, 4, 10}, Pool: {4, 18, 14, 8}},
		},
		{
			Containers: 20, Repetitions: 1, Seconds: kinds{None: {6}, Pool: {7}},
			Driver: kinds{None: {.6}, Pool: {.7}}, CPU: kinds{None: {12}, Pool: {14}},
		},
	}, s.Levels)
	short := s.Summary()
	require.Equal(t, kinds{None: {1, 2.5, 5}, Pool: {2, 5.5, 9}}, short.Levels[0].Seconds)
	require.Equal(t, kinds{None: {2, 5, 10}, Pool: {4, 11, 18}}, short.Levels[0].CPU)
	require.Equal(t, 4, short.Levels[0].Repetitions)
	require.Equal(t, short, short.Summary())
}

func TestStarts_With(t *testing.T) {
	levels := func(repetitions int, second float64, containers ...int) (s Starts) {
		for _, n := range containers {
			s.Levels = append(s.Levels, Level{Containers: n, Repetitions: repetitions, Seconds: map[string][]float64{None: {second}}})
		}
		return s
	}
	earlier := levels(4, 1, 0, 80)
	require.Equal(t, earlier, Starts{}.With(earlier))
	require.Equal(t, earlier, earlier.With(Starts{}))
	require.Equal(t, slices.Concat(levels(4, 1, 0).Levels, levels(2, 2, 40).Levels, levels(4, 1, 80).Levels, levels(2, 2, 200).Levels),
		earlier.With(levels(2, 2, 40, 80, 200)).Levels, "80 was measured more often before")
	require.Equal(t, levels(4, 2, 0, 80), earlier.With(levels(4, 2, 0, 80)), "the newer of as many")
}

func TestSpentOf(t *testing.T) {
	s, err := spentOf(`# TYPE cpumem_actuator_call_seconds histogram
cpumem_actuator_call_seconds_bucket{call="CreateContainer",outcome="applied",le="2"} 7
cpumem_actuator_call_seconds_sum{call="CreateContainer",outcome="applied"} 0.5
cpumem_actuator_call_seconds_sum{call="StopContainer",outcome="no claim"} 0.25
cpumem_actuator_call_seconds_count{call="StopContainer",outcome="no claim"} 3
cpumem_frontend_prepare_seconds_sum{result="success"} 1
cpumem_frontend_prepare_seconds_count{result="success"} 4
process_cpu_seconds_total 2.5
process_start_time_seconds 7
`)
	require.NoError(t, err)
	require.InDelta(t, 1.75, s.calls, 1e-9)
	require.InDelta(t, 2.5, s.cpu, 1e-9)
	require.Equal(t, spent{1, 2}, spent{3, 7}.minus(spent{2, 5}))
	_, err = spentOf("cpumem_actuator_call_seconds_sum x\n")
	require.ErrorContains(t, err, "cpumem_actuator_call_seconds_sum x")
}

// Over all rounds each kind has each place equally often, and each ordered pair of kinds is in direct succession equally often.
func TestInTurn(t *testing.T) {
	all := []string{None, Device, Pool, Partition, Isolated, Quiet}
	for name, c := range map[string]struct {
		kinds, rounds int
		first         []string
	}{
		"two":   {2, 2, []string{None, Device}},
		"three": {3, 6, []string{None, Device, Pool}},
		"four":  {4, 4, []string{None, Device, Partition, Pool}},
		"five":  {5, 10, []string{None, Device, Isolated, Pool, Partition}},
		"six":   {6, 6, []string{None, Device, Quiet, Pool, Isolated, Partition}},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := all[:c.kinds]
			require.Equal(t, c.first, inTurn(kinds, 0))
			// Round 0 is a warm-up.
			for _, from := range []int{0, 1} {
				type succession struct{ before, after string }
				type position struct {
					kind  string
					place int
				}
				places, successions := map[position]int{}, map[succession]int{}
				for r := range c.rounds {
					turn := inTurn(kinds, from+r)
					require.ElementsMatch(t, kinds, turn)
					for i, kind := range turn {
						places[position{kind, i}]++
						if i > 0 {
							successions[succession{turn[i-1], kind}]++
						}
					}
				}
				require.Len(t, places, c.kinds*c.kinds)
				for at, times := range places {
					require.Equal(t, c.rounds/c.kinds, times, "%+v", at)
				}
				require.Len(t, successions, c.kinds*(c.kinds-1))
				for of, times := range successions {
					require.Equal(t, c.rounds/c.kinds, times, "%+v", of)
				}
			}
		})
	}
	require.Equal(t, []string{None}, inTurn(all[:1], 0))
	require.Equal(t, []string{None}, inTurn(all[:1], 1))
}

func TestContainer(t *testing.T) {
	b := &Bench{NUMA: 1, CPUs: 2}
	require.Nil(t, b.container(None, "hog").Claim)
	static := b.container(Static, "sleep")
	require.Nil(t, static.Claim)
	require.Equal(t, int64(2), static.Limits.Cpu().Value())
	require.False(t, static.Limits.Memory().IsZero(), "without a memory limit the pod would not be Guaranteed")
	const quiet = `"interrupts":"none","housekeeping":"none","quota":"none","wakeupLatency":0}`
	for _, c := range []struct{ kind, kernel, want string }{
		{Pool, cluster.KernelNewest, `"cpu":{"isolation":"none"}`},
		{Partition, cluster.KernelNewest, `"cpu":{"isolation":"partition"}`},
		{Isolated, cluster.KernelNewest, `"cpu":{"isolation":"isolated"}`},
		{Quiet, cluster.KernelBackports, `"cpu":{"isolation":"partition",` + quiet},
		{Quiet, cluster.KernelStable, `"cpu":{"isolation":"none",` + quiet},
	} {
		b.Kernel = c.kernel
		claim := b.container(c.kind, "sleep").Claim
		require.Equal(t, c.want, claim.Parameters)
		amount := claim.Amounts["cpu"]
		require.Equal(t, "2", amount.String())
	}
	require.Equal(t, time.Duration(500), Latency{Cycle: Cycle{Waited: 1000, Samples: 2}}.WaitedEach())
}
