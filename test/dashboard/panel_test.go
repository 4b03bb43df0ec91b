// SPDX-License-Identifier: Apache-2.0

package main

import (
	"html"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What two scrapes gave is in the picture: each panel of the chart, the line of a zone with
// its legend, and no line where nothing was scraped.
func TestPicture(t *testing.T) {
	text, err := os.ReadFile("../../charts/dra-driver-cpumem/files/dashboard.json")
	require.NoError(t, err)
	all, err := readPanels(text)
	require.NoError(t, err)
	database, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, database.Close()) }()
	s := span{from: time.UnixMilli(1_000_000), to: time.UnixMilli(1_060_000), step: 10 * time.Second}
	before := map[uint64]labels.Labels{}
	for at := s.from; !at.After(s.to); at = at.Add(s.step) {
		these := map[uint64]labels.Labels{}
		text := "# TYPE go_goroutines gauge\ngo_goroutines 7\n"
		if at.Before(s.to) { // The last scrape finds no zone any more.
			text += "# TYPE cpumem_frontend_zone_free gauge\ncpumem_frontend_zone_free{resource=\"cpu\",zone=\"numa-1\"} 3\n"
		}
		require.NoError(t, store(t.Context(), database, []byte(text), map[string]string{"node": "node0"}, at, these))
		require.NoError(t, end(t.Context(), database, before, these, at))
		before = these
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	for i := range all {
		all[i].lines, err = evaluate(t.Context(), engine, database, all[i], s)
		require.NoError(t, err, all[i].Title)
		if all[i].Title == "Free CPUs" {
			require.Len(t, all[i].lines, 1)
			assert.Equal(t, "node0 numa-1", all[i].lines[0].name)
			assert.Len(t, all[i].lines[0].points, 6)
		} else {
			assert.Empty(t, all[i].lines, all[i].Title)
		}
	}
	picture := draw(all, s)
	assert.Equal(t, 1, strings.Count(picture, "<polyline"))
	assert.True(t, strings.Contains(picture, ">node0 numa-1<"), "the legend")
	empty := 0
	for _, p := range all {
		assert.True(t, strings.Contains(picture, ">"+html.EscapeString(p.Title)+"<"), p.Title)
		if p.Type != "row" {
			empty++
		}
	}
	assert.Equal(t, empty-1, strings.Count(picture, ">no data<"))
}

func TestPieces(t *testing.T) {
	at := func(second int64, v float64) promql.FPoint { return promql.FPoint{T: 1000 * second, F: v} }
	for name, c := range map[string]struct {
		points []promql.FPoint
		want   [][]promql.FPoint
	}{
		"none":            {},
		"one":             {points: []promql.FPoint{at(0, 1)}, want: [][]promql.FPoint{{at(0, 1)}}},
		"whole":           {points: []promql.FPoint{at(0, 1), at(5, 2)}, want: [][]promql.FPoint{{at(0, 1), at(5, 2)}}},
		"a value missing": {points: []promql.FPoint{at(0, 1), at(10, 2)}, want: [][]promql.FPoint{{at(0, 1)}, {at(10, 2)}}},
		"no number at the ends and between": {
			points: []promql.FPoint{at(0, math.NaN()), at(5, 1), at(10, math.NaN()), at(15, math.Inf(1)), at(20, 2), at(25, 3), at(30, math.NaN())},
			want:   [][]promql.FPoint{{at(5, 1)}, {at(20, 2), at(25, 3)}},
		},
		"no number at all": {points: []promql.FPoint{at(0, math.NaN())}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, pieces(line{points: c.points}, 5*time.Second))
		})
	}
}

func TestAmount(t *testing.T) {
	for want, c := range map[string]struct {
		v    float64
		unit string
	}{
		"0":       {0, "bytes"},
		"512 MiB": {512 << 20, "bytes"},
		"1.5 GiB": {3 << 29, "bytes"},
		"20 %":    {0.2, "percentunit"},
		"5 ms":    {0.005, "s"},
		"2 s":     {2, "s"},
		"0.5/s":   {0.5, "ops"},
		"4":       {4, "short"},
	} {
		assert.Equal(t, want, amount(c.v, c.unit))
	}
}
