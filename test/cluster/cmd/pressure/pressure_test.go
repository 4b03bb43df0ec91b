// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
)

func results() (pressure.Reclaim, pressure.Limits) {
	values := func(v float64) map[string]float64 {
		m := map[string]float64{}
		for _, name := range pressure.Names() {
			m[name] = v
		}
		return m
	}
	r := pressure.Reclaim{
		CacheBefore: values(100), CacheAfter: values(25), AnonBefore: values(80), AnonAfter: values(40),
		Reads: pressure.Mark{Name: "reads", Seconds: 20}, Maps: pressure.Mark{Name: "maps", Seconds: 30},
		End: pressure.Mark{Seconds: 40}, NUMAMiB: 2048, HogReads: 2560,
	}
	r.CacheAfter[pressure.Protected], r.AnonAfter[pressure.Protected] = 100, 80
	for _, name := range pressure.Names() {
		r.Cache = append(r.Cache, pressure.Line{Name: name, Points: []pressure.Point{{Seconds: 1, MiB: 100}, {Seconds: 25, MiB: 25}}})
		r.Anon = append(r.Anon, pressure.Line{Name: name, Points: []pressure.Point{{Seconds: 1, MiB: 80}, {Seconds: 35, MiB: 40}}})
	}
	l := pressure.Limits{
		HighMiB: 128, MaxMiB: 64, HighEvents: map[string]int64{pressure.Throttled: 5}, OOMKills: map[string]int64{},
		Rate:  map[string]float64{pressure.Throttled: 1, pressure.Free: 20},
		Ended: map[string]string{pressure.Offender: "OOMKilled"}, Resident: map[string][2]float64{},
	}
	for _, name := range pressure.LimitNames() {
		l.Resident[name] = [2]float64{50, 50}
		l.Current = append(l.Current, pressure.Line{Name: name, Points: []pressure.Point{{Seconds: 1, MiB: 10}, {Seconds: 9, MiB: 50}}})
	}
	return r, l
}

func TestDraw(t *testing.T) {
	r, l := results()
	l.Current[0].Points = nil // a container without samples
	picture := draw(charts(r, l))
	for _, want := range []string{"a. Page cache", "d. Going over", "reads", "memory.high 128 MiB", "another pod"} {
		require.Contains(t, picture, want)
	}
	require.NotContains(t, picture, "NaN")
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
}

func TestFromItsStart(t *testing.T) {
	l := fromItsStart(pressure.Line{Points: []pressure.Point{
		{Seconds: 5, MiB: 4}, {Seconds: 7, MiB: 5}, {Seconds: 8, MiB: 60}, {Seconds: 9, MiB: 160},
	}})
	require.Equal(t, []pressure.Point{{Seconds: 0, MiB: 5}, {Seconds: 1, MiB: 60}, {Seconds: 2, MiB: 160}}, l.Points)
	flat := pressure.Line{Points: []pressure.Point{{Seconds: 5, MiB: 4}}}
	require.Equal(t, []pressure.Point{{MiB: 4}}, fromItsStart(flat).Points)
}

func TestTables(t *testing.T) {
	r, l := results()
	text := tables(pressure.Sizes{Claim: 384 << 20}, r, l)
	for _, want := range []string{
		"Claims of 384 MiB on a NUMA node of 2048 MiB. The neighbour reads a sparse file of 2560 MiB; then it maps memory until the " +
			"claim without protection has lost most of its own.",
		"| protection of the claim | page cache before | after the read | kept | anonymous memory before | after the mapping | kept |",
		"| the driver's, at every level | 100 MiB | 100 MiB | **100 %** | 80 MiB | 80 MiB | **100 %** |",
		"| none | 100 MiB | 25 MiB | **25 %** | 80 MiB | 40 MiB | **50 %** |",
		"| goes over its claim | none | 64 MiB | 128 MiB | 50 MiB | 50 MiB | 0 | OOMKilled |",
		"20 times slower",
	} {
		require.Contains(t, text, want)
	}
	require.NoError(t, r.Check())
	require.NoError(t, l.Check())
}

// The document has the marks between which the command writes.
func TestDocumentHasMarks(t *testing.T) {
	const name = "memory-pressure.md"
	data, err := os.ReadFile(filepath.Join("../../../../docs/explanation", name))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, data, 0o644))
	require.NoError(t, document.Insert(file, author, "new\n"))
}
