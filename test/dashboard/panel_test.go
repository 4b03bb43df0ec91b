// SPDX-License-Identifier: Apache-2.0

package main

import (
	"html"
	"os"
	"strings"
	"testing"
	"time"

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
	for at := s.from; !at.After(s.to); at = at.Add(s.step) {
		require.NoError(t, store(t.Context(), database, []byte(`# TYPE cpumem_frontend_zone_free gauge
cpumem_frontend_zone_free{resource="cpu",zone="numa-1"} 3
# TYPE go_goroutines gauge
go_goroutines 7
`), map[string]string{"node": "node0"}, at))
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
			assert.Len(t, all[i].lines[0].points, 7)
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
