// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReclaimCheck(t *testing.T) {
	before := map[string]float64{Protected: 100, LeafOnly: 100, Unprotected: 100}
	kept := map[string]float64{Protected: 100, LeafOnly: 10, Unprotected: 10}
	with := func(name string, value float64) map[string]float64 {
		m := maps.Clone(kept)
		m[name] = value
		return m
	}
	cases := map[string]struct {
		cache, anon map[string]float64
		kills       int64
		say         string
	}{
		"as it should be":                 {cache: kept, anon: kept},
		"protected lost page cache":       {cache: with(Protected, 90), anon: kept, say: "kept 0.90 of its page cache"},
		"protected was swapped out":       {cache: kept, anon: with(Protected, 50), say: "0.50 of its anonymous memory"},
		"no pressure on page cache":       {cache: with(Unprotected, 60), anon: kept, say: "pressure was too low"},
		"the leaf alone protected itself": {cache: kept, anon: with(LeafOnly, 90), say: "leaf only: kept"},
		"somebody was killed":             {cache: kept, anon: kept, kills: 1, say: "1 processes of claims were killed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := Reclaim{CacheBefore: before, AnonBefore: before, CacheAfter: c.cache, AnonAfter: c.anon, OOMKills: c.kills}.Check()
			if c.say == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.say)
		})
	}
}

func TestLimitsCheck(t *testing.T) {
	cases := map[string]struct {
		change func(*Limits)
		say    string
	}{
		"as it should be":       {change: func(*Limits) {}},
		"offender lives":        {func(l *Limits) { delete(l.Ended, Offender) }, "want OOMKilled"},
		"neighbour died":        {func(l *Limits) { l.Ended[Neighbour] = "OOMKilled" }, "neighbour ended"},
		"other pod lost pages":  {func(l *Limits) { l.Resident[Other] = [2]float64{50, 20} }, "other pod has 20 of 50"},
		"throttled died":        {func(l *Limits) { l.OOMKills[Throttled] = 1 }, "throttled ended"},
		"no event":              {func(l *Limits) { l.HighEvents[Throttled] = 0 }, "no event"},
		"not slowed":            {func(l *Limits) { l.Rate[Throttled] = 11 }, "less than half"},
		"never above":           {func(l *Limits) { l.Rate[Throttled] = 0 }, "less than half"},
		"far above memory.high": {func(l *Limits) { l.Resident[Throttled] = [2]float64{190, 190} }, "far above"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := Limits{
				HighMiB: 128, MaxMiB: 64, HighEvents: map[string]int64{Throttled: 9}, OOMKills: map[string]int64{Offender: 1},
				Rate: map[string]float64{Throttled: 1, Free: 20}, Ended: map[string]string{Offender: "OOMKilled"},
				Resident: map[string][2]float64{
					Throttled: {133, 133}, Free: {176, 176}, Offender: {62, 0}, Neighbour: {48, 48}, Other: {48, 48},
				},
			}
			c.change(&l)
			if c.say == "" {
				require.NoError(t, l.Check())
				return
			}
			require.ErrorContains(t, l.Check(), c.say)
		})
	}
}
