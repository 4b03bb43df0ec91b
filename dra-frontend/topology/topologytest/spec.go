// SPDX-License-Identifier: Apache-2.0

// Package topologytest has machines for tests: the machines of the acceptance
// cases, real machines and random machines. Each machine is a description that
// becomes the files that a kernel would show for it, so tests of every layer go
// through the real reader.
package topologytest

import (
	"fmt"
	"testing/fstest"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
)

type (
	// CPU is a CPU of a described machine.
	CPU = description.CPU
	// Node is a NUMA node of a described machine.
	Node = description.Node
	// DAX is a memory device of a described machine.
	DAX = description.DAX
)

// Constants of package description.
const (
	NoCache   = description.NoCache
	NoCluster = description.NoCluster

	CXL       = description.CXL
	CXLMapped = description.CXLMapped
	NVD       = description.NVD
	HMEM      = description.HMEM
)

// Spec describes a machine.
type Spec description.Spec

// Machine reads the spec with the real reader; errors panic.
func (s Spec) Machine() topology.Machine {
	m, err := topology.Discover(s.Roots(), s.PageSize)
	if err != nil {
		panic(fmt.Sprintf("topologytest: %v", err))
	}
	return m
}

// Roots returns the file trees of the machine.
func (s Spec) Roots() topology.Roots {
	return topology.Roots{Sys: index(s.Sys()), Proc: index(s.Proc())}
}

// Proc returns the tree of /proc.
func (s Spec) Proc() fstest.MapFS { return mapFS(description.Spec(s).Proc()) }

// Sys returns the tree of /sys.
func (s Spec) Sys() fstest.MapFS { return mapFS(description.Spec(s).Sys()) }
