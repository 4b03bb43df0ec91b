// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// View has the options of a picture.
type View struct {
	// Width is the terminal's width in columns.
	Width int
	// Colour adds colours, as escape sequences of a terminal.
	Colour bool
}

// indent is before an L3, gap is between two L3s.
const (
	indent = "  "
	gap    = "   "
)

// Picture draws the result: a block for each zone with its L3s, each core as a
// group of threads, each thread as the sign of its use.
func (r Result) Picture(w io.Writer, v View) error {
	out := bufio.NewWriter(w)
	d := drawing{Writer: out, signs: r.signs(v.Colour), width: v.Width}
	m := r.Machine
	fmt.Fprintf(out, "%s, %s, %s, base pages of %s\n",
		count(m.Sockets, "socket"), count(m.NUMANodes, "NUMA node"), count(m.CPUs, "CPU"), contract.FormatPageSize(m.PageSize))
	for _, z := range r.Zones {
		fmt.Fprintf(out, "\n%s\n", z.header())
		d.l3s(z.L3s)
	}
	if len(r.OutsideZones) > 0 {
		fmt.Fprintf(out, "\nCPUs of no zone, none of which is offered\n")
		d.l3s(r.OutsideZones)
	}
	fmt.Fprintf(out, "\n%s\n", d.signs.legend())
	fmt.Fprintf(out, "shared pool: %s\n", or(r.CPUs.Shared.String(), "none"))
	if !r.CPUs.Offline.IsEmpty() {
		fmt.Fprintf(out, "offline, not drawn: %s\n", r.CPUs.Offline)
	}
	if err := d.claims(r.Claims); err != nil {
		return err
	}
	return out.Flush()
}

func (z Zone) header() string {
	parts := []string{z.Name}
	if z.CPU.Capacity > 0 {
		parts = append(parts, fmt.Sprintf("cpu %d/%d", z.CPU.Used, z.CPU.Capacity))
	}
	if z.Memory.Capacity > 0 {
		memory := fmt.Sprintf("memory %s/%s", size.Format(z.Memory.Used), size.Format(z.Memory.Capacity))
		if z.MemoryType != topology.MemoryDRAM {
			memory += fmt.Sprintf(" (%s)", z.MemoryType)
		}
		parts = append(parts, memory)
	}
	for _, s := range slices.Sorted(maps.Keys(z.Hugepages)) {
		u := z.Hugepages[s]
		parts = append(parts, fmt.Sprintf("hugepages_%s %s/%s", s, size.Format(u.Used), size.Format(u.Capacity)))
	}
	return strings.Join(append(parts, "mems "+or(z.Mems.String(), "none")), gap)
}

type drawing struct {
	*bufio.Writer
	signs signs
	width int
}

// block is an L3: its label and its cores.
type block struct {
	label string
	// cores are ready to print; widths are their widths in columns.
	cores  []string
	widths []int
}

func (b block) width() int {
	w := len(b.label)
	for _, c := range b.widths {
		w += 1 + c
	}
	return w
}

// l3s draws L3s: several on a line where they fit, else each on lines of its
// own.
func (d drawing) l3s(l3s []L3) {
	blocks := d.blocks(l3s)
	widest := 0
	for _, b := range blocks {
		widest = max(widest, b.width())
	}
	columns := max(1, (d.width-len(indent)+len(gap))/(widest+len(gap)))
	for row := range slices.Chunk(blocks, columns) {
		d.WriteString(indent)
		for i, b := range row {
			d.block(b)
			if i < len(row)-1 {
				d.WriteString(strings.Repeat(" ", widest-b.width()) + gap)
			}
		}
		d.WriteString("\n")
	}
}

// block draws one L3, on several lines if necessary.
func (d drawing) block(b block) {
	d.WriteString(b.label)
	column := len(indent) + len(b.label)
	for i, c := range b.cores {
		if column+1+b.widths[i] > d.width && i > 0 && b.width()+len(indent) > d.width {
			d.WriteString("\n" + indent + strings.Repeat(" ", len(b.label)))
			column = len(indent) + len(b.label)
		}
		d.WriteString(" " + c)
		column += 1 + b.widths[i]
	}
}

// blocks labels L3s by the properties in which they differ.
func (d drawing) blocks(l3s []L3) []block {
	nodes, types := make(map[int]bool), make(map[string]bool)
	for _, l := range l3s {
		nodes[l.Node], types[string(l.Type)] = true, true
	}
	var labels []string
	longest := 0
	for _, l := range l3s {
		label := fmt.Sprintf("L3 of %d", l.ID)
		if len(nodes) > 1 {
			label = fmt.Sprintf("node %d, ", l.Node) + label
		}
		if len(types) > 1 {
			label += ", " + string(l.Type)
		}
		labels = append(labels, label+":")
		longest = max(longest, len(label)+1)
	}
	out := make([]block, 0, len(l3s))
	for i, l := range l3s {
		b := block{label: labels[i] + strings.Repeat(" ", longest-len(labels[i]))}
		for _, threads := range l.Cores {
			core, width := d.signs.core(threads)
			b.cores, b.widths = append(b.cores, core), append(b.widths, width)
		}
		out = append(out, b)
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}
