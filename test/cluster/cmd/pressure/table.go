// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
)

// tables returns the results as Markdown.
func tables(size pressure.Sizes, r pressure.Reclaim, l pressure.Limits) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Claims of %d MiB on a NUMA node of %d MiB. The neighbour reads a sparse file of %d MiB; then it maps memory until "+
		"the claim without protection has lost most of its own.\n\n", size.Claim>>20, r.NUMAMiB, r.HogReads)
	b.WriteString("| protection of the claim | page cache before | after the read | kept " +
		"| anonymous memory before | after the mapping | kept |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, name := range pressure.Names() {
		label := map[string]string{
			pressure.Protected:   "the driver's, at every level",
			pressure.LeafOnly:    "the container's `memory.min` alone",
			pressure.Unprotected: "none",
		}[name]
		fmt.Fprintf(&b, "| %s | %.0f MiB | %.0f MiB | **%.0f %%** | %.0f MiB | %.0f MiB | **%.0f %%** |\n", label,
			r.CacheBefore[name], r.CacheAfter[name], 100*r.KeptCache(name), r.AnonBefore[name], r.AnonAfter[name], 100*r.KeptAnon(name))
	}
	fmt.Fprintf(&b, "\nClaims of %.0f MiB.\n\n", l.MaxMiB)
	b.WriteString("| container | `memory.high` | `memory.max` | wants | most it had | at the end | events at high | ended |\n" +
		"|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, name := range pressure.LimitNames() {
		high, limit, wants := "none", 3*l.MaxMiB, l.MaxMiB*11/4
		switch name {
		case pressure.Throttled:
			high = fmt.Sprintf("%.0f MiB", l.HighMiB)
		case pressure.Offender:
			limit, wants = l.MaxMiB, 2*l.MaxMiB
		case pressure.Neighbour, pressure.Other:
			limit, wants = l.MaxMiB, l.MaxMiB*3/4
		}
		ended := l.Ended[name]
		if ended == "" {
			ended = "runs on"
		}
		label := map[string]string{
			pressure.Throttled: "with `memory.high`", pressure.Free: "without", pressure.Offender: "goes over its claim",
			pressure.Neighbour: "the same pod's other container", pressure.Other: "another pod",
		}[name]
		fmt.Fprintf(&b, "| %s | %s | %.0f MiB | %.0f MiB | %.0f MiB | %.0f MiB | %d | %s |\n", label, high, limit, wants,
			l.Resident[name][0], l.Resident[name][1], l.HighEvents[name], ended)
	}
	fmt.Fprintf(&b, "\nAbove `memory.high` the one container grew %.0f times slower than the other did without.\n",
		l.Rate[pressure.Free]/l.Rate[pressure.Throttled])
	return b.String()
}
