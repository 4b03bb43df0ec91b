// SPDX-License-Identifier: Apache-2.0

// Package doctor checks what the driver needs of a node and of a cluster, before and
// after the installation. Each check gives what it found, and for a fault what mends
// it. The package calls no server: the command gives it the objects of a cluster, and the
// file system of a node.
package doctor

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// State is the result of a check.
type State string

// States of checks.
const (
	OK State = "ok"
	// Warning: the driver works, with less than it could have.
	Warning State = "warning"
	// Fault: claims do not get what they ask for.
	Fault State = "fault"
	// Unknown: the command cannot see it.
	Unknown State = "unknown"
)

// Check is the result of one check.
type Check struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	// Mend is what to do, empty if nothing is to be done.
	Mend string `json:"mend,omitempty"`
}

// Faults returns the number of faults.
func Faults(checks []Check) int {
	n := 0
	for _, c := range checks {
		if c.State == Fault {
			n++
		}
	}
	return n
}

// Table writes a line for each check, and below it what mends the check.
func Table(w io.Writer, checks []Check) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "CHECK\tSTATE\tFOUND")
	for _, c := range checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, c.State, c.Found)
		if c.Mend != "" {
			fmt.Fprintf(t, "\t\tmend: %s\n", c.Mend)
		}
	}
	return t.Flush()
}
