// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// effective returns the CPUs that the kernel lets each started container use, by
// container.
func (n *Node) effective(containers []*Container) map[string]contract.CPUSet {
	out := make(map[string]contract.CPUSet)
	for _, c := range containers {
		if c.started {
			out[c.ID] = contracttest.CPUs(c.ReadCgroup("cpuset.cpus.effective"))
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
	if !n.partitions() {
		return
	}
	for _, level := range []string{"", "burstable", "besteffort"} {
		require.Equal(n.t, state.PartitionCPUs[level].String(),
			n.ReadCgroup(filepath.Join("kubepods", level), contract.FileExclusive), "I3, I4: level %q", level)
	}
	for _, dir := range n.cgroups.dirs() {
		uid, pod := strings.CutPrefix(path.Base(dir), "pod")
		if !pod || !contract.ValidUID(uid) {
			continue
		}
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
