// SPDX-License-Identifier: Apache-2.0

// Package inspect reads the machine and the CDI directory as the daemons do,
// for the operator's tool. It changes nothing and needs neither daemon nor API
// server.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

// Directory is the content of the contract's files in a CDI directory.
type Directory struct {
	Claims []contract.ClaimRecord
	Node   *contract.NodeState
	// Actuator is the announcement, nil while the actuator is not running.
	Actuator *contract.Announcement
	// Problems are files that cannot be read and rules that do not hold.
	Problems []error
	// Measurements is empty before [Directory.Measure].
	Measurements Measurements
}

// The daemons write one file after the other, so that two files contradict each other for a
// moment. Read waits for about a second until they agree.
const (
	maxReadings = 5
	readAgain   = 250 * time.Millisecond
)

// Read reads the directory at path, again while it has problems, and keeps the problems that
// stay. Only a directory that cannot be listed is an error; every other fault is a problem
// in the result.
func Read(path string) (Directory, error) {
	var former []string
	for reading := 1; ; reading++ {
		d, err := readOnce(path)
		if err != nil || len(d.Problems) == 0 {
			return d, err
		}
		if reading == maxReadings {
			d.Problems = slices.DeleteFunc(d.Problems, func(p error) bool { return !slices.Contains(former, p.Error()) })
			return d, nil
		}
		former = texts(d.Problems)
		time.Sleep(readAgain)
	}
}

func readOnce(path string) (Directory, error) {
	dir := cdidir.At(path)
	infos, err := dir.List()
	if err != nil {
		return Directory{}, err
	}
	var d Directory
	for _, e := range infos {
		uid, ours := contract.ClaimUIDOfFile(e.Name())
		if !ours {
			continue
		}
		if uid == "" {
			d.problem("%s: not the name of a claim file", e.Name())
			continue
		}
		data, err := dir.Read(e.Name())
		if err == nil {
			var r contract.ClaimRecord
			if r, err = contract.DecodeClaim(e.Name(), data); err == nil {
				d.Claims = append(d.Claims, r)
				continue
			}
		}
		d.problem("%s: %w", e.Name(), err)
	}
	data, err := dir.Read(contract.NodeFile)
	if err == nil {
		var s contract.NodeState
		if s, err = contract.DecodeNode(data); err == nil {
			d.Node = &s
		}
	}
	if err != nil {
		d.problem("%s: %w", contract.NodeFile, err)
	}
	a, err := contract.ReadAnnouncement(path)
	switch {
	case err != nil:
		d.problem("actuator: %w", err)
	case !a.Connected:
		d.problem("%w", ErrNotConnected)
		fallthrough
	default:
		d.Actuator = &a
	}
	d.check()
	return d, nil
}

// Problems that have a check of their own in package doctor.
var (
	ErrNotConnected = errors.New("actuator: not connected to the container runtime")
	ErrOtherBoot    = errors.New("claim of another boot")
)

func (d *Directory) problem(format string, args ...any) {
	d.Problems = append(d.Problems, fmt.Errorf(format, args...))
}

// check checks the rules between files: I1, and that node state and claims
// belong together.
func (d *Directory) check() {
	holder, outsidePool := make(map[int]string), make(map[int]bool)
	for _, c := range d.Claims {
		for _, cpu := range c.CPUs().List() {
			if other, held := holder[cpu]; held {
				d.problem("CPU %d is held by two claims, %s and %s", cpu, other, nameOf(c))
			}
			holder[cpu] = nameOf(c)
		}
		for _, r := range c.Results {
			for _, cpu := range r.Decision.CPUs.List() {
				outsidePool[cpu] = r.Decision.Partition == ""
			}
		}
	}
	if d.Node == nil {
		return
	}
	for _, c := range d.Claims {
		if c.BootID != d.Node.BootID {
			d.problem("%w: %s was prepared during boot %s, the node state is of boot %s",
				ErrOtherBoot, nameOf(c), c.BootID, d.Node.BootID)
		}
	}
	for _, cpu := range d.Node.Shared.CPUs.List() {
		// The node state's pool has partition CPUs: the kernel takes them out.
		if outsidePool[cpu] {
			d.problem("CPU %d is held by claim %s and in the shared pool", cpu, holder[cpu])
		}
	}
	d.checkPartitions()
	for _, pod := range slices.Sorted(maps.Keys(d.Node.Pods)) {
		for _, claim := range d.Node.Pods[pod].Claims {
			if !slices.ContainsFunc(d.Claims, func(r contract.ClaimRecord) bool { return r.UID == claim }) {
				d.problem("the node state lists the claim with UID %s for the pod with UID %s: the claim has no readable file", claim, pod)
			}
		}
	}
}

// nameOf returns how problems name a claim: as the table does, and as its file is named.
func nameOf(c contract.ClaimRecord) string {
	return fmt.Sprintf("%s/%s (%s)", c.Namespace, c.Name, c.UID)
}

// Valid returns the problems as one error.
func (d Directory) Valid() error { return errors.Join(d.Problems...) }

// Selected is the content of a directory, for programs.
type Selected struct {
	Claims    []contract.ClaimRecord `json:"claims"`
	NodeState *contract.NodeState    `json:"nodeState"`
	Actuator  *contract.Announcement `json:"actuator"`
	Problems  []string               `json:"problems"`
	// Receipts are named like the results' devices.
	Receipts map[string]receipt.Receipt `json:"receipts"`
}

// Selected returns the content with the claims that claim selects, as in
// [Directory.Explain].
func (d Directory) Selected(claim string) Selected {
	out := Selected{Claims: []contract.ClaimRecord{}, NodeState: d.Node, Actuator: d.Actuator, Problems: texts(d.Problems),
		Receipts: make(map[string]receipt.Receipt)}
	for _, c := range d.Claims {
		if selects(claim, c) {
			out.Claims = append(out.Claims, c)
			for i := range c.Results {
				name := contract.Key{ClaimUID: c.UID, Index: i}.DeviceName()
				if r, measured := d.Measurements.Receipts[name]; measured {
					out.Receipts[name] = r
				}
			}
		}
	}
	return out
}

// texts returns the texts of errors, an empty list for none.
func texts(errs []error) []string {
	all := make([]string, len(errs))
	for i, err := range errs {
		all[i] = err.Error()
	}
	return all
}

// selects reports whether claim is empty, the claim's namespace/name, or its UID.
func selects(claim string, c contract.ClaimRecord) bool {
	return claim == "" || claim == c.UID || claim == c.Namespace+"/"+c.Name
}

// Explain writes for people the claims' values, the pool and the problems;
// claim selects a claim by namespace/name or UID, empty all.
func (d Directory) Explain(w io.Writer, claim string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CLAIM\tREQUEST\tZONE\tCPUS\tMEMS\tMEMORY min/low/high/max\tHUGEPAGES\tPOD UIDS")
	for _, c := range d.Claims {
		if !selects(claim, c) {
			continue
		}
		for _, r := range c.Results {
			fmt.Fprintf(t, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Namespace, c.Name, r.Request, r.Device,
				cpusOf(r.Decision), or(r.Decision.Mems.String(), "all"),
				memory(r.Decision.Memory), hugepages(r.Decision.Hugepages), podsOf(c))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if d.Node != nil {
		fmt.Fprintf(w, "\nshared pool: cpus %s, mems %s (generation %d)\n", d.Node.PoolCPUs(), d.Node.Shared.Mems, d.Node.Generation)
	}
	d.explainPartitions(w)
	d.explainQuiet(w, claim)
	if a := d.Actuator; a != nil {
		fmt.Fprintf(w, "actuator: %s %s, connected %t, generation %d applied, guard %s\n",
			contract.Excerpt(a.Runtime, maxText), contract.Excerpt(a.RuntimeVersion, maxText), a.Connected, a.Generation,
			contract.Excerpt(or(a.Guard, "off"), maxText))
	}
	for _, p := range d.Problems {
		fmt.Fprintf(w, "problem: %v\n", p)
	}
	return nil
}

// maxText bounds a text of the actuator, in bytes. The runtime chooses its own name and version.
const maxText = 300

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func memory(m *contract.Memory) string {
	if m == nil {
		return "-"
	}
	return strings.Join([]string{size.Limit(m.Min), size.Limit(m.Low), size.Limit(m.High), size.Limit(m.Max)}, "/")
}

func hugepages(h map[string]contract.Limit) string {
	var parts []string
	for _, page := range slices.Sorted(maps.Keys(h)) {
		parts = append(parts, page+"="+size.Limit(h[page]))
	}
	return or(strings.Join(parts, ","), "-")
}

func podsOf(c contract.ClaimRecord) string {
	var uids []string
	for _, p := range c.Pods {
		uids = append(uids, p.UID)
	}
	return strings.Join(uids, ",")
}
