// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// This file has the kernel's part in cpuset partitions. Plain files take any value,
// so judge looks at them later: after each write but the actuator's, and before each
// check.

// offerPartitions makes the cgroup that the actuator's dry run finds.
func (n *Node) offerPartitions() {
	if !n.o.Partitions {
		return
	}
	const probe = "kubepods/" + contract.Vendor + ".probe"
	n.makeCgroup(probe+"/partition", map[string]string{"cpuset.cpus.effective": n.machine.Online().String()})
	n.writeCgroup(probe, "cgroup.subtree_control", "")
}

// judge ends the partitions that the kernel would not grant.
func (n *Node) judge() {
	if !n.o.Partitions {
		return
	}
	for _, dir := range append(n.parted("kubepods/pod*/*"), n.parted("kubepods/*/pod*/*")...) {
		kind := n.ReadCgroup(dir, contract.FilePartition)
		if !slices.Contains(contract.PartitionKinds(), kind) {
			continue
		}
		if reason := n.obstacle(dir); reason != "" {
			n.writeCgroup(dir, contract.FilePartition, kind+" invalid ("+reason+")")
		}
	}
}

// obstacle returns why the container's cgroup dir cannot be a partition, empty if it
// can. Each ancestor must have the CPUs as exclusive CPUs, no sibling of dir or of
// an ancestor may have them so, and no sibling of dir may run on them.
func (n *Node) obstacle(dir string) string {
	own := contracttest.CPUs(n.ReadCgroup(dir, contract.FileExclusive))
	if own.IsEmpty() {
		return "no CPUs in " + contract.FileExclusive
	}
	for at := dir; at != "kubepods"; at = filepath.Dir(at) {
		up := filepath.Dir(at)
		if missing := own.Difference(contracttest.CPUs(n.ReadCgroup(up, contract.FileExclusive))); !missing.IsEmpty() {
			return up + " lacks " + missing.String()
		}
		for _, beside := range n.parted(up + "/*") {
			if beside == at {
				continue
			}
			if own.Overlaps(contracttest.CPUs(n.ReadCgroup(beside, contract.FileExclusive))) ||
				at == dir && own.Overlaps(contracttest.CPUs(n.ReadCgroup(beside, "cpuset.cpus"))) {
				return beside + " has some of " + own.String()
			}
		}
	}
	return ""
}

// parted returns the cgroups of a pattern that have the files of partitions.
func (n *Node) parted(pattern string) []string {
	files, err := filepath.Glob(filepath.Join(n.Cgroup, pattern, contract.FilePartition))
	require.NoError(n.t, err)
	dirs := make([]string, len(files))
	for i, file := range files {
		dirs[i], err = filepath.Rel(n.Cgroup, filepath.Dir(file))
		require.NoError(n.t, err)
	}
	return dirs
}

// granted returns the CPUs of the container's partition, none without a partition.
func (c *Container) granted() contract.CPUSet {
	if !c.n.o.Partitions || !c.started || !slices.Contains(contract.PartitionKinds(), c.ReadCgroup(contract.FilePartition)) {
		return contract.CPUSet{}
	}
	return contracttest.CPUs(c.ReadCgroup(contract.FileExclusive))
}

// effective returns the CPUs that the kernel lets each started container use, by
// container: its cpuset without the CPUs of other containers' partitions.
func (n *Node) effective(containers []*Container) map[string]contract.CPUSet {
	out := make(map[string]contract.CPUSet)
	for _, c := range containers {
		if !c.started {
			continue
		}
		out[c.ID] = contracttest.CPUs(c.ReadCgroup("cpuset.cpus"))
		if out[c.ID].IsEmpty() {
			out[c.ID] = n.machine.Online()
		}
	}
	for _, c := range containers {
		if gone := c.granted(); !gone.IsEmpty() {
			for id := range out {
				if id != c.ID {
					out[id] = out[id].Difference(gone)
				}
			}
		}
	}
	return out
}

// checkPartitionCPUs checks I4: in the node file, the partition CPUs of a level or pod
// are the union of the partition CPUs below it. below has these unions, from the
// claim files.
func (n *Node) checkPartitionCPUs(state contract.NodeState, below map[string]contract.CPUSet) {
	n.t.Helper()
	levels := map[string]contract.CPUSet{}
	for at, held := range below {
		if !contract.ValidUID(at) {
			levels[at] = held
		}
	}
	require.Len(n.t, state.PartitionCPUs, len(levels), "I4: %v", state.PartitionCPUs)
	for level, held := range levels {
		require.Equal(n.t, held, state.PartitionCPUs[level], "I4: partition CPUs of level %q", level)
	}
	for uid, p := range state.Pods {
		require.Equal(n.t, below[uid], p.PartitionCPUs, "I4: partition CPUs of pod %s", uid)
	}
}

// checkAncestors checks that levels and pods have the partition CPUs of the node
// file, thus none without claims (I3, I4). A pod without containers may have fewer.
func (n *Node) checkAncestors(state contract.NodeState) {
	n.t.Helper()
	if !n.o.Partitions {
		return
	}
	for _, level := range []string{"", "burstable", "besteffort"} {
		require.Equal(n.t, state.PartitionCPUs[level].String(),
			n.ReadCgroup(filepath.Join("kubepods", level), contract.FileExclusive), "I3, I4: level %q", level)
	}
	for _, dir := range append(n.parted("kubepods/pod*"), n.parted("kubepods/*/pod*")...) {
		_, uid, _ := strings.Cut(filepath.Base(dir), "pod")
		stray := contracttest.CPUs(n.ReadCgroup(dir, contract.FileExclusive)).Difference(state.Pods[uid].PartitionCPUs)
		require.Empty(n.t, stray.String(), "I3, I4: %s", dir)
	}
	for _, c := range n.runtime.list() {
		if len(c.devices) > 0 {
			require.Equal(n.t, state.Pods[c.Pod.UID].PartitionCPUs.String(),
				n.ReadCgroup(c.Pod.cgroup(), contract.FileExclusive), "I4: pod of %s", c.ID)
		}
	}
}

// Feature waits until the actuator announces the feature, or lacks it if not want.
func (n *Node) Feature(feature string, want bool) {
	n.t.Helper()
	n.eventually("the actuator to announce "+feature, func() error {
		a, err := n.Announcement()
		if err == nil && slices.Contains(a.Features, feature) != want {
			err = fmt.Errorf("it has %q", a.Features)
		}
		return err
	})
}
