// SPDX-License-Identifier: Apache-2.0

// Package protocol checks the protocol of docs/reference/contract.md with Spin. protocol.pml is the
// protocol as a specification. The package's test searches all its states, and breaks it
// to show that each property can fail. A [History] is what a node of package lab did:
// [Check] reports whether the specification allows it, so that specification and code agree.
package protocol

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

//go:embed protocol.pml
var model string

//go:embed properties.pml
var properties string

// Model returns the specification.
func Model() string { return model }

// Bounds are how much of a node a search covers.
type Bounds struct{ Pods, Frontends, Faults int }

// Found is the result of a search.
type Found struct {
	// States and Megabytes are the size of the search.
	States, Megabytes int
	// Violated is the property that does not hold, empty if all hold.
	Violated string
	// Output is Spin's report.
	Output string
}

// Installed returns an error unless the programs are there that a search needs.
func Installed() error {
	for program, pkg := range map[string]string{"spin": "spin", "gcc": "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the protocol is not checked: install the package %s (apt-get install spin gcc): %w", pkg, err)
		}
	}
	return nil
}

var (
	states   = regexp.MustCompile(`(?m)^ *(\d+) states, stored`)
	memory   = regexp.MustCompile(`(?m)^ *(\d+)[.\d]*\s+total actual memory usage`)
	violated = regexp.MustCompile(`assertion violated .*\|\|([A-Z][A-Z0-9]*)\)? \(at depth`)
)

// Search searches all states of the model within bounds, in the directory dir. The error
// says why it did not search all, unless a property is violated.
func Search(dir, model string, b Bounds) (Found, error) {
	return search(dir, model, "-O1",
		fmt.Sprintf("-DPODS=%d", b.Pods), fmt.Sprintf("-DFRONTENDS=%d", b.Frontends), fmt.Sprintf("-DFAULTS=%d", b.Faults))
}

// search searches with gcc's optimisation and options of Spin.
func search(dir, model, optimisation string, options ...string) (Found, error) {
	for name, text := range map[string]string{"protocol.pml": model, "properties.pml": properties} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return Found{}, err
		}
	}
	for _, command := range [][]string{
		append(append([]string{"spin"}, options...), "-a", "protocol.pml"),
		{"gcc", "-w", optimisation, "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c"},
	} {
		if _, err := run(dir, command...); err != nil {
			return Found{}, err
		}
	}
	// -E: what a stuck program leaves is a property of its own, at the end of each run.
	out, err := run(dir, "./pan", "-E", "-m1000000", "-w22")
	f := Found{Output: out, States: number(states, out), Megabytes: number(memory, out)}
	if match := violated.FindStringSubmatch(out); match != nil {
		f.Violated = match[1]
		return f, nil
	}
	if err == nil && (f.States == 0 || regexp.MustCompile(`errors: [1-9]|not completed|max search depth too small`).MatchString(out)) {
		err = errors.New("the search is not complete: " + out)
	}
	return f, err
}

func run(dir string, command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", command[0], err, out)
	}
	return string(out), nil
}

func number(pattern *regexp.Regexp, text string) int {
	match := pattern.FindStringSubmatch(text)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return 0
	}
	return n
}
