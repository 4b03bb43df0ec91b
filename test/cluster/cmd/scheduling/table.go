// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// table returns the results as Markdown.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| a pod asks for | nodes | zones of a node | claims before | slices of a node | pods each second | " +
		"scheduler's CPU for a pod |\n" +
		"|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.1f KiB | %.1f | %.1f ms |\n", r.kind, r.nodes, r.zones, r.allocated,
			float64(r.slices)/1024, r.podsPerSecond(), float64(r.cpuPerPod().Microseconds())/1000)
	}
	return b.String()
}
