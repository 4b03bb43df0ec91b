// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
)

// claims writes a line for each prepared request, and after all lines the
// reasons of claims.
func (d drawing) claims(claims []Claim) error {
	var rows []int
	// Escape sequences would count as columns: the table is made without signs.
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CLAIM\tZONE\tMEMS\tMEMORY\tHUGEPAGES\tCPUS")
	for i, c := range claims {
		for _, r := range c.Results {
			if r.Decision != nil {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c.name(r.Request), r.Zone, or(r.Decision.Mems.String(), "-"),
					r.memory(), hugepages(r.Decision.Hugepages), or(r.Decision.CPUs.String(), "-"))
				rows = append(rows, i)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(rows) > 0 {
		lines := slices.Collect(strings.Lines(table.String()))
		fmt.Fprintf(d, "\n%s  %s", strings.Repeat(" ", d.signs.length), lines[0])
		for i, row := range rows {
			fmt.Fprintf(d, "%s  %s", d.signs.claim(row), lines[i+1])
		}
	}
	d.devices(claims)
	d.rounded(claims)
	d.reasons(claims, Unschedulable, "unschedulable, their pods are pending:")
	d.reasons(claims, Refused, "refused by Prepare, their pods do not start:")
	d.reasons(claims, Allocated, "allocated, but not every pod can use the claim:")
	return nil
}

// devices writes a line for each device of another driver.
func (d drawing) devices(claims []Claim) {
	title := "\ndevices of other drivers:\n"
	for _, c := range claims {
		for _, r := range c.Devices {
			fmt.Fprintf(d, "%s%s%s: %s of %s\n", title, indent, c.name(r.Request), r.Device, r.Driver)
			title = ""
		}
	}
}

// rounded writes a line for each amount that the scheduler rounded up.
func (d drawing) rounded(claims []Claim) {
	title := "\nrounded up by the scheduler:\n"
	for _, c := range claims {
		for _, r := range c.Results {
			for _, name := range slices.Sorted(maps.Keys(r.RoundedFrom)) {
				fmt.Fprintf(d, "%s%s%s: %s %s instead of %s\n", title, indent, c.name(r.Request), name, r.Consumed[name], r.RoundedFrom[name])
				title = ""
			}
		}
	}
}

// name returns the claim's name, with request and number of pods if there are
// several.
func (c Claim) name(request string) string {
	name := c.Namespace + "/" + c.Name
	if len(c.Results) > 1 {
		name += " " + request
	}
	if len(c.Pods) > 1 {
		name += fmt.Sprintf(" (%d pods)", len(c.Pods))
	}
	return name
}

// memory returns the claimed amount and the values that follow from it.
func (r Request) memory() string {
	m := r.Decision.Memory
	if m == nil {
		return "-"
	}
	out := r.Consumed["memory"]
	for _, v := range []struct {
		name  string
		limit contract.Limit
		says  bool
	}{
		{"min", m.Min, m.Min > 0}, {"low", m.Low, m.Low > 0},
		{"high", m.High, m.High != contract.Max}, {"max", m.Max, m.Max != contract.Max},
	} {
		if v.says {
			out += " " + v.name + "=" + size.Limit(v.limit)
		}
	}
	return out
}

func hugepages(limits map[string]contract.Limit) string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(limits)) {
		out = append(out, s+"="+size.Limit(limits[s]))
	}
	return or(strings.Join(out, " "), "-")
}

// reasons writes each reason once, with its claims.
func (d drawing) reasons(claims []Claim, state State, title string) {
	names := make(map[string][]string)
	var reasons []string
	for _, c := range claims {
		if c.Result == state && c.Reason != "" {
			if names[c.Reason] == nil {
				reasons = append(reasons, c.Reason)
			}
			names[c.Reason] = append(names[c.Reason], c.Namespace+"/"+c.Name)
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintf(d, "\n%s\n", title)
	}
	for _, reason := range reasons {
		all := names[reason]
		label := all[0]
		if more := len(all) - 1; more > 0 {
			label = fmt.Sprintf("%s and %d more", all[0], more)
		}
		fmt.Fprintf(d, "%s%s: %s\n", indent, label, reason)
	}
}
