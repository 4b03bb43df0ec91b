// SPDX-License-Identifier: Apache-2.0

// Package cpulayout says in a few characters which CPUs of a zone share a core
// and which share an L3, and counts the whole cores and L3s that are free. The
// frontend publishes the layout as an attribute of the device (resourceslices),
// so that a reader of ResourceSlices and claims alone can see what is left in
// one piece.
package cpulayout

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Layout is a rule that gives the core and the L3 of a CPU by the CPU's id. The
// kernel numbers the CPUs of most machines by such a rule: the second threads
// follow all first threads, or the threads of a core follow each other, and the
// cores of an L3 follow each other.
type Layout struct {
	// CPUs may be claimed.
	CPUs contract.CPUSet
	// A CPU's core is id % CPUsBefore / Threads. CPUsBefore is the number of
	// CPUs before the second threads, 0 where the threads of a core follow each
	// other. Threads is 1 where they do not.
	CPUsBefore, Threads int
	// A core's L3 is core / Cores. Cores is 0 where all CPUs share one L3.
	Cores int
}

// MaxLength is the largest length of a layout's text, in bytes: an attribute is no
// longer (resource.k8s.io/v1, DeviceAttributeMaxValueLength).
const MaxLength = 64

// Find returns the layout of a zone. all are the zone's online CPUs, claimable
// the CPUs of it that may be claimed. found is false for a zone without claimable
// CPUs, with cores of different sizes, with a numbering that no rule gives, or with
// a layout longer than MaxLength.
func Find(all []topology.CPU, claimable contract.CPUSet) (l Layout, found bool) {
	threads := make(map[int][]int)
	cores := make(map[int]map[int]bool)
	for _, cpu := range all {
		threads[cpu.Core] = append(threads[cpu.Core], cpu.ID)
		if cores[cpu.L3] == nil {
			cores[cpu.L3] = make(map[int]bool)
		}
		cores[cpu.L3][cpu.Core] = true
	}
	if claimable.IsEmpty() {
		return Layout{}, false
	}
	first := slices.Sorted(slices.Values(threads[all[0].Core]))
	for _, ids := range threads {
		if len(ids) != len(first) {
			return Layout{}, false
		}
	}
	l = Layout{CPUs: claimable, Threads: 1}
	switch {
	case len(first) == 1:
	case first[1] == first[0]+1:
		l.Threads = len(first)
	default:
		l.CPUsBefore = first[1] - first[0]
	}
	if len(cores) > 1 {
		for _, of := range cores {
			l.Cores = max(l.Cores, len(of))
		}
	}
	if !l.fits(all) || len(l.String()) > MaxLength {
		return Layout{}, false
	}
	return l, true
}

// fits reports whether CPUs share a core and an L3 by the rule exactly if they do on
// the machine.
func (l Layout) fits(all []topology.CPU) bool {
	// The machine's number for each of the rule's, and the rule's for each of the machine's.
	core, l3 := make(pairs), make(pairs)
	for _, cpu := range all {
		if !core.add(cpu.Core, l.core(cpu.ID)) || !l3.add(cpu.L3, l.l3(cpu.ID)) {
			return false
		}
	}
	return true
}

// pairs are numbers of two kinds, each of which has one partner of the other kind.
type pairs map[pair]int

type pair struct {
	kind, number int
}

// add reports whether the two numbers are partners of each other alone.
func (p pairs) add(a, b int) bool {
	ofA, ofB := pair{0, a}, pair{1, b}
	partnerOfA, seenA := p[ofA]
	partnerOfB, seenB := p[ofB]
	p[ofA], p[ofB] = b, a
	return (!seenA || partnerOfA == b) && (!seenB || partnerOfB == a)
}

func (l Layout) core(cpu int) int {
	if l.CPUsBefore > 0 {
		cpu %= l.CPUsBefore
	}
	return cpu / l.Threads
}

func (l Layout) l3(cpu int) int {
	if l.Cores == 0 {
		return 0
	}
	return l.core(cpu) / l.Cores
}

// String writes the CPUs and the rule, as "0-31,64-95 core=cpu%64 l3=core/8". CPUs
// at equal distances have their distance: "0-62/2".
func (l Layout) String() string {
	core, l3 := "cpu", "0"
	if l.CPUsBefore > 0 {
		core = fmt.Sprintf("cpu%%%d", l.CPUsBefore)
	}
	if l.Threads > 1 {
		core = fmt.Sprintf("cpu/%d", l.Threads)
	}
	if l.Cores > 0 {
		l3 = fmt.Sprintf("core/%d", l.Cores)
	}
	return fmt.Sprintf("%s core=%s l3=%s", runs(l.CPUs.List()), core, l3)
}

// runs writes ascending ids as runs of one distance, which is the smallest between
// any two neighbours.
func runs(ids []int) string {
	step := math.MaxInt
	for i := range len(ids) - 1 {
		step = min(step, ids[i+1]-ids[i])
	}
	var out []string
	for first, last := 0, 0; first < len(ids); first = last + 1 {
		for last = first; last+1 < len(ids) && ids[last+1]-ids[last] == step; last++ {
		}
		switch {
		case first == last:
			out = append(out, strconv.Itoa(ids[first]))
		case step == 1:
			out = append(out, fmt.Sprintf("%d-%d", ids[first], ids[last]))
		default:
			out = append(out, fmt.Sprintf("%d-%d/%d", ids[first], ids[last], step))
		}
	}
	return strings.Join(out, ",")
}

var (
	layoutForm = regexp.MustCompile(`^(\S+) core=cpu(?:%([1-9][0-9]{0,5})|/([1-9][0-9]{0,5}))? l3=(?:0|core/([1-9][0-9]{0,5}))$`)
	runForm    = regexp.MustCompile(`^([0-9]{1,5})(?:-([0-9]{1,5})(?:/([1-9][0-9]{0,4}))?)?$`)
)

// Parse reads what String wrote.
func Parse(text string) (Layout, error) {
	parts := layoutForm.FindStringSubmatch(text)
	if len(text) > MaxLength || parts == nil {
		return Layout{}, fmt.Errorf("layout %q: want CPUs, core and l3, as in %q",
			contract.Excerpt(text, MaxLength), "0-31,64-95 core=cpu%64 l3=core/8")
	}
	var ids []int
	for run := range strings.SplitSeq(parts[1], ",") {
		ends := runForm.FindStringSubmatch(run)
		if ends == nil {
			return Layout{}, fmt.Errorf("layout %q: CPUs %q: want as in %q", text, run, "0-62/2")
		}
		first, step := number(ends[1], 0), number(ends[3], 1)
		for id := first; id <= number(ends[2], first); id += step {
			ids = append(ids, id)
		}
	}
	if len(ids) > maxCPUs {
		return Layout{}, fmt.Errorf("layout %q: %d CPUs, the largest machine has %d", text, len(ids), maxCPUs)
	}
	return Layout{
		CPUs: contract.CPUs(ids...), CPUsBefore: number(parts[2], 0), Threads: number(parts[3], 1), Cores: number(parts[4], 0),
	}, nil
}

// maxCPUs is above the kernel's largest NR_CPUS.
const maxCPUs = 1 << 14

// number returns digits as an int, or other if digits is empty. layoutForm and runForm
// bound how many digits there are.
func number(digits string, other int) int {
	if n, err := strconv.Atoi(digits); err == nil {
		return n
	}
	return other
}

// Blocks are what claims can still get of a zone's CPUs in one piece.
type Blocks struct {
	// Cores are the whole cores. A core with a thread that may not be claimed is none.
	Cores int `json:"cores"`
	// L3s are the L3s of which no claim holds a CPU, L3sTotal all L3s.
	L3s      int `json:"l3s"`
	L3sTotal int `json:"l3sTotal"`
	// CoresOfL3 is the largest number of free whole cores that share an L3: the
	// largest claim of whole cores that stays in one.
	CoresOfL3 int `json:"coresOfL3"`
}

// Within returns the blocks that claims can get of a zone with so many free CPUs: the
// scheduler keeps some for the shared pool. threads is the number of threads of the
// largest core.
func (b Blocks) Within(free, threads int) Blocks {
	cores := max(0, free) / max(1, threads)
	b.Cores, b.CoresOfL3 = min(b.Cores, cores), min(b.CoresOfL3, cores)
	return b
}

// Place is where a CPU is: its core and L3, by any numbering, and the number of the
// core's threads.
type Place struct{ Core, L3, Threads int }

// Free counts what is free while claims hold the CPUs of held. threads is the number
// of threads of a core.
func (l Layout) Free(held contract.CPUSet, threads int) Blocks {
	return Count(l.CPUs, held, func(id int) Place { return Place{l.core(id), l.l3(id), threads} })
}

// Count counts what is free of CPUs while claims hold the CPUs of held. A core with
// threads outside of cpus is never whole.
func Count(cpus, held contract.CPUSet, place func(cpu int) Place) Blocks {
	free := make(map[Place]int)
	untouched := make(map[int]bool)
	for _, id := range cpus.List() {
		at := place(id)
		if _, seen := untouched[at.L3]; !seen {
			untouched[at.L3] = true
		}
		if held.Contains(id) {
			untouched[at.L3] = false
		} else {
			free[at]++
		}
	}
	b := Blocks{L3sTotal: len(untouched)}
	cores := make(map[int]int)
	for at, n := range free {
		if n == at.Threads {
			b.Cores++
			cores[at.L3]++
			b.CoresOfL3 = max(b.CoresOfL3, cores[at.L3])
		}
	}
	for _, is := range untouched {
		if is {
			b.L3s++
		}
	}
	return b
}
