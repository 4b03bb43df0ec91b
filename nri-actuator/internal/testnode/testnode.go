// SPDX-License-Identifier: Apache-2.0

// Package testnode is a node for the actuator's tests: a CDI directory as the
// frontend writes it, and the model of the kernel with the cgroups.
package testnode

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// Node is one node.
type Node struct {
	t require.TestingT
	// CDI is the CDI directory.
	CDI string
	// State is the node state that was written last.
	State contract.NodeState
	// MayLoseCPUs reports whether the test makes the kernel lose CPUs. A test that does
	// without it fails at its end.
	MayLoseCPUs bool
	// Closes, if set, is called when the mount of OpenMount is closed.
	Closes  func()
	cgroups hierarchy
}

// UID returns the n-th object UID.
func UID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// New makes a node with Linux 6.12 and its CDI directory below dir: 16 CPUs, all in the
// shared pool, two NUMA nodes.
func New(t require.TestingT, dir string) *Node { return NewOn(t, dir, kerneltest.Linux612) }

// NewOn makes a node with another kernel.
func NewOn(t require.TestingT, dir string, release kerneltest.Release) *Node {
	n := &Node{t: t, CDI: filepath.Join(dir, "cdi")}
	require.NoError(t, os.MkdirAll(n.CDI, 0o755))
	n.boot(release)
	n.State = contract.NodeState{
		V: contract.Version, BootID: "boot", Shared: contract.Shared{CPUs: contracttest.CPUs("0-15"), Mems: contracttest.NUMANodes("0-1")},
		Pods: map[string]contract.PodState{}, Ancestors: map[string]contract.Files{},
	}
	n.Change(func(*contract.NodeState) {})
	return n
}

// Change writes the next generation of the node state.
func (n *Node) Change(change func(*contract.NodeState)) {
	change(&n.State)
	n.State.Generation++
	data, err := contract.EncodeNode(n.State)
	require.NoError(n.t, err)
	n.WriteFile(contract.NodeFile, data)
}

// WriteFile replaces a file of the CDI directory.
func (n *Node) WriteFile(name string, data []byte) {
	require.NoError(n.t, atomicfile.Write(n.CDI, name, data, 0o600))
}

// Prepare writes a claim of the pod, with one result for each decision. The pool
// shrinks first, then the claim file appears. It returns the variables that the
// claim's devices inject.
func (n *Node) Prepare(podUID, claimUID string, decisions ...contract.Decision) []string {
	record := contract.ClaimRecord{V: contract.Version, Namespace: "ns", Name: "claim", UID: claimUID, BootID: "boot"}
	var env []string
	for i, d := range decisions {
		d.V = contract.Version
		record.Results = append(record.Results, contract.ResultRecord{
			Request: "r", Pool: "node", Device: fmt.Sprintf("numa%d", i), Decision: d})
		entry, err := d.Env(contract.Key{ClaimUID: claimUID, Index: i})
		require.NoError(n.t, err)
		env = append(env, entry)
	}
	n.Change(func(s *contract.NodeState) {
		pod := s.Pods[podUID]
		pod.Claims = append(pod.Claims, claimUID)
		for _, d := range decisions {
			if d.Partition == "" {
				s.Shared.CPUs = s.Shared.CPUs.Difference(d.CPUs)
				continue
			}
			pod.PartitionCPUs = pod.PartitionCPUs.Union(d.CPUs)
			s.PartitionCPUs = map[string]contract.CPUSet{"": s.PartitionCPUs[""].Union(d.CPUs)}
			s.PartitionCPUs["burstable"] = s.PartitionCPUs[""]
		}
		s.Pods[podUID] = pod
	})
	data, err := contract.EncodeClaim(record)
	require.NoError(n.t, err)
	n.WriteFile(contract.ClaimFile(claimUID), data)
	return env
}

// Unprepare removes a pod's only claim. The pool grows by cpus.
func (n *Node) Unprepare(podUID, claimUID, cpus string) {
	require.NoError(n.t, atomicfile.Remove(n.CDI, contract.ClaimFile(claimUID)))
	n.Change(func(s *contract.NodeState) {
		delete(s.Pods, podUID)
		released := contracttest.CPUs(cpus)
		s.Shared.CPUs = s.Shared.CPUs.Union(released)
		for level, held := range s.PartitionCPUs {
			if s.PartitionCPUs[level] = held.Difference(released); s.PartitionCPUs[level].IsEmpty() {
				delete(s.PartitionCPUs, level)
			}
		}
	})
}

// Free returns the CPUs that no claim has.
func (n *Node) Free() string {
	return n.State.PoolCPUs().String()
}

// Overlap reports whether two CPU lists share a CPU.
func Overlap(a, b string) bool { return contracttest.CPUs(a).Overlaps(contracttest.CPUs(b)) }
