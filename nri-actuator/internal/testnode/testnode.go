// SPDX-License-Identifier: Apache-2.0

// Package testnode is a node for the actuator's tests: a CDI directory as the
// frontend writes it, and a directory tree in place of cgroups.
package testnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// Node is one node.
type Node struct {
	t require.TestingT
	// CDI is the CDI directory, Cgroup the cgroup mount.
	CDI, Cgroup string
	// State is the node state that was written last.
	State contract.NodeState
	// partitions are the CPUs of granted partitions, by cgroup.
	partitions map[string]contract.CPUSet
}

// UID returns the n-th object UID.
func UID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// New makes a node below dir: 16 CPUs, all in the shared pool, two NUMA nodes.
func New(t require.TestingT, dir string) *Node {
	n := &Node{t: t, CDI: filepath.Join(dir, "cdi"), Cgroup: filepath.Join(dir, "cgroup"), partitions: map[string]contract.CPUSet{}}
	require.NoError(t, os.MkdirAll(n.CDI, 0o755))
	for _, level := range []string{"", "burstable", "besteffort"} {
		n.AddCgroup(filepath.Join("kubepods", level))
	}
	require.NoError(t, os.WriteFile(filepath.Join(n.Cgroup, "cgroup.controllers"), nil, 0o644))
	// The cgroup files for the actuator's dry run.
	const probe = "kubepods/dra.cpumem.probe"
	n.AddCgroup(probe + "/partition")
	n.SetFile(probe, "cgroup.subtree_control", "")
	n.SetFile(probe+"/partition", "cpuset.cpus.effective", "0-15")
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

// MakePartition does what the kernel does when kind is written to a cgroup's
// partition file. The kernel grants the partition if cpuset.cpus.exclusive of
// all cgroups above has its CPUs, and no other partition has one of the CPUs.
// Otherwise it refuses the partition in the file's content.
func (n *Node) MakePartition(dir, kind string) {
	cpus := contracttest.CPUs(n.File(dir, contract.FileExclusive))
	granted := !cpus.IsEmpty()
	for up := filepath.Dir(dir); up != "."; up = filepath.Dir(up) {
		granted = granted && cpus.IsSubsetOf(contracttest.CPUs(n.File(up, contract.FileExclusive)))
	}
	for other, has := range n.partitions {
		if _, err := os.Stat(filepath.Join(n.Cgroup, other)); err == nil && other != dir && cpus.Overlaps(has) {
			granted = false
		}
	}
	delete(n.partitions, dir)
	if !granted {
		n.SetFile(dir, contract.FilePartition, kind+" invalid (Invalid cpu list in cpuset.cpus.exclusive)")
		return
	}
	n.partitions[dir] = cpus
	n.SetFile(dir, contract.FilePartition, kind)
}

// AddCgroup makes a cgroup with the files that the actuator writes, in the
// kernel's initial state. Only cpuset.cpus, which a runtime would write, has all
// CPUs.
func (n *Node) AddCgroup(dir string) {
	files := map[string]string{
		"cpuset.cpus": "0-15", "cpuset.mems": "0-1",
		contract.FileExclusive: "", contract.FilePartition: "member",
		"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max",
	}
	for _, size := range []string{"2MB", "1GB"} {
		files["hugetlb."+size+".max"], files["hugetlb."+size+".rsvd.max"] = "max", "max"
	}
	require.NoError(n.t, os.MkdirAll(filepath.Join(n.Cgroup, dir), 0o755))
	for file, content := range files {
		n.SetFile(dir, file, content)
	}
}

// RemoveCgroup removes a cgroup.
func (n *Node) RemoveCgroup(dir string) {
	require.NoError(n.t, os.RemoveAll(filepath.Join(n.Cgroup, dir)))
}

// SetFile writes a cgroup file as another program would.
func (n *Node) SetFile(dir, file, content string) {
	require.NoError(n.t, os.WriteFile(filepath.Join(n.Cgroup, dir, file), []byte(content+"\n"), 0o644))
}

// RemoveFile removes a cgroup file, as on a kernel without it.
func (n *Node) RemoveFile(dir, file string) {
	require.NoError(n.t, os.Remove(filepath.Join(n.Cgroup, dir, file)))
}

// File returns the content of a cgroup file.
func (n *Node) File(dir, file string) string {
	data, err := os.ReadFile(filepath.Join(n.Cgroup, dir, file))
	require.NoError(n.t, err)
	return strings.TrimSpace(string(data))
}

// Overlap reports whether two CPU lists share a CPU.
func Overlap(a, b string) bool { return contracttest.CPUs(a).Overlaps(contracttest.CPUs(b)) }
