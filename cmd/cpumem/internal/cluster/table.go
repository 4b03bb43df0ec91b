// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// none stands for nothing in a table.
const none = "-"

// amount writes an amount of the capacity.
func amount(capacity string, n int64) string {
	if capacity == string(zones.CapacityCPU) {
		return fmt.Sprint(n)
	}
	return size.Format(n)
}

// free writes what claims can get: nothing if more is claimed than the zone has now. It
// rounds down, so that a claim of the shown amount fits.
func free(c Capacity) string {
	if c.Name == string(zones.CapacityCPU) {
		return fmt.Sprint(max(0, c.Free()))
	}
	return size.Floor(max(0, c.Free()))
}

// Table writes a line for each zone: free/total of each capacity, the free whole cores,
// and free/all L3s.
func Table(w io.Writer, nodes []Node) error {
	kinds := make(map[string]bool)
	for _, n := range nodes {
		for _, z := range n.Zones {
			for _, c := range z.Capacities {
				kinds[c.Name] = true
			}
		}
	}
	columns := slices.SortedFunc(maps.Keys(kinds), byKind)
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	header := "NODE\tZONE"
	for _, c := range columns {
		header += "\tFREE " + strings.ToUpper(c)
	}
	fmt.Fprintln(t, header+"\tCORES\tL3S\tCLAIMS\tTAINTS")
	for _, n := range nodes {
		for _, z := range n.Zones {
			line := n.Name + "\t" + z.Name
			for _, name := range columns {
				cell := none
				if c, has := z.Capacity(name); has {
					cell = free(c) + "/" + amount(name, c.Total)
				}
				line += "\t" + cell
			}
			cores, l3s := none, none
			if b := z.Blocks; b != nil {
				cores, l3s = fmt.Sprint(b.Cores), fmt.Sprintf("%d/%d", b.L3s, b.L3sTotal)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", line, cores, l3s, z.Claims, orNone(strings.Join(z.Taints, ",")))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return problems(w, nodes)
}

func problems(w io.Writer, nodes []Node) error {
	for _, n := range nodes {
		if n.Problem != "" {
			if _, err := fmt.Fprintf(w, "%s: no claim can go there: %s\n", n.Name, n.Problem); err != nil {
				return err
			}
		}
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// Picture draws a bar of the given width for each capacity of each zone: its claimed
// part as #, the rest as dots.
func Picture(w io.Writer, nodes []Node, width int) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i, n := range nodes {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintln(t, n.Name)
		for _, z := range n.Zones {
			label := z.Name
			for _, c := range z.Capacities {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s of %s free\n", label, c.Name, c.bar(width), free(c), amount(c.Name, c.Total))
				label = ""
			}
			if b := z.Blocks; b != nil {
				fmt.Fprintf(t, "  \twhole\t\t%d cores free, %d in one L3; %d of %d L3s free\n", b.Cores, b.CoresOfL3, b.L3s, b.L3sTotal)
			}
			for _, taint := range z.Taints {
				fmt.Fprintf(t, "  \ttaint\t%s\n", taint)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return problems(w, nodes)
}

// bar has a # for each full part, and at least one if something is claimed.
func (c Capacity) bar(width int) string {
	full := 0
	if c.Used > 0 && c.Total > 0 {
		full = max(1, min(width, int(float64(c.Used)/float64(c.Total)*float64(width))))
	}
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}
