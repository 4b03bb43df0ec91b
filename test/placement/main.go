// SPDX-License-Identifier: Apache-2.0

// The placement benchmark places the same random history of claims with this project
// and with kubelet's static CPU manager policy. It prints the table of
// docs/concepts/placement.md. It is a separate module because it compiles kubelet.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// scenario is a machine with zones, claims' sizes and an L3's size in CPUs.
type scenario struct {
	name    string
	machine topology.Machine
	zones   []zone
	sizes   []int
	l3      int
}

// variants are the kinds of claims. Kubelet's static policy has the option
// prefer-align-cpus-by-uncorecache in both, and full-pcpus-only with whole cores.
var variants = []variant{{name: "any CPUs"}, {name: "whole cores", wholeCores: true}}

func scenarios() []scenario {
	t2, t4, t5, big := topologytest.T2().Machine(), topologytest.T4().Machine(), topologytest.T5().Machine(), dual96()
	wide := append(upTo(24), 32, 32, 48, 48, 64, 64, 96, 96)
	return []scenario{
		{"T2, zones of 4 CPUs", t2, nodes(t2), upTo(4), 4},
		{"T5, hybrid, a zone of 32", t5, nodes(t5), upTo(16), 32},
		{"T4, zones of 64", t4, nodes(t4), upTo(24), 16},
		{"T4, one zone of 512", t4, whole(t4), wide, 16},
		{"2 × 96 cores, zones of 192", big, nodes(big), upTo(24), 16},
		{"2 × 96 cores, one zone of 384", big, whole(big), wide, 16},
	}
}

func upTo(n int) []int {
	var out []int
	for i := 1; i <= n; i++ {
		out = append(out, i)
	}
	return out
}

// dual96 returns a machine with two sockets of 96 cores, 2 threads per core and an
// L3 per 8 cores.
func dual96() topology.Machine {
	const perSocket, perL3 = 96, 8
	s := topologytest.Spec{PageSize: 4096}
	for socket := range 2 {
		s.Nodes = append(s.Nodes, topologytest.Node{ID: socket, Memory: 384 << 30})
	}
	for id := range 4 * perSocket {
		core := id % (2 * perSocket)
		s.CPUs = append(s.CPUs, topologytest.CPU{
			ID: id, Core: core, CoreID: core % perSocket, Cluster: topologytest.NoCluster, L3: core / perL3,
			Node: core / perSocket, Socket: core / perSocket,
		})
	}
	return s.Machine()
}

func nodes(m topology.Machine) []zone {
	var out []zone
	for _, n := range m.NUMANodes {
		out = append(out, zone{n.ID, n.CPUs})
	}
	return out
}

func whole(m topology.Machine) []zone { return []zone{{-1, m.Online()}} }

// size is the size of a run.
type size struct {
	seeds  uint64
	events int
}

// compare runs both placers with the scenario's histories.
func compare(s scenario, v variant, of size, countAllocations bool) (ours, theirs figures, err error) {
	for seed := range of.seeds {
		h := history(s, v, seed, of.events)
		f, err := run(newDriver(s, v), s.machine, h, countAllocations)
		if err != nil {
			return ours, theirs, fmt.Errorf("%s, seed %d: %w", s.name, seed, err)
		}
		ours.add(f)
		k, err := newKubelet(s.machine, v)
		if err != nil {
			return ours, theirs, err
		}
		if f, err = run(k, s.machine, h, countAllocations); err != nil {
			return ours, theirs, fmt.Errorf("%s, seed %d: %w", s.name, seed, err)
		}
		theirs.add(f)
	}
	return ours, theirs, nil
}

func main() {
	if err := report(size{seeds: 4, events: 2000}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// report prints the table, each figure as ours / kubelet's.
func report(of size) error {
	fmt.Println("| machine | claims of | claims | wider | split | whole L3 refused | sum | µs | allocations |")
	fmt.Println("|---|---|--:|--:|--:|--:|--:|--:|--:|")
	var ours, theirs figures
	for _, s := range scenarios() {
		for _, v := range variants {
			o, t, err := compare(s, v, of, false)
			if err != nil {
				return err
			}
			// Counting allocations stops the world, so time has its own run.
			oa, ta, err := compare(s, v, size{seeds: 1, events: of.events / 4}, true)
			if err != nil {
				return err
			}
			fmt.Println(row(s, v, o, t, oa, ta))
			ours.add(o)
			theirs.add(t)
		}
	}
	fmt.Printf("\nall: %d / %d\n", ours.fragmentation(), theirs.fragmentation())
	return nil
}

// row returns a line of the table. The figures oa and ta are of the run that counts allocations.
func row(s scenario, v variant, o, t, oa, ta figures) string {
	us := func(f figures) float64 { return float64(f.time.Nanoseconds()) / float64(f.claims) / 1000 }
	return fmt.Sprintf("| %s | %s | %d | %d / %d | %d / %d | %s | %d / %d | %.0f / %.0f = 1:%.0f | %d / %d |", s.name, v.name, o.claims,
		o.wider, t.wider, o.split, t.split, refusedCell(s, o, t), o.fragmentation(), t.fragmentation(),
		us(o), us(t), us(t)/us(o), int(oa.allocations)/oa.claims, int(ta.allocations)/ta.claims)
}

// refusedCell returns "-" if a claim for a whole L3 cannot be refused: no such claim came, or it takes its whole zone.
func refusedCell(s scenario, o, t figures) string {
	larger := slices.ContainsFunc(s.zones, func(z zone) bool { return z.cpus.Size() > s.l3 })
	if o.wholeL3s == 0 || !larger {
		return "-"
	}
	return fmt.Sprintf("%d / %d of %d", o.refused, t.refused, o.wholeL3s)
}
