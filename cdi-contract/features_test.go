// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

func TestPlatformFeatures(t *testing.T) {
	score := []string{contract.FeatureOOMScore}
	policy := append(score, contract.FeatureMemoryPolicy)
	weighted := append(policy, contract.FeatureWeightedInterleave)
	require.ElementsMatch(t, slices.Concat(weighted, []string{contract.FeaturePartition, contract.FeatureIsolated, contract.FeatureQuota},
		contract.MachineFeatures()), contract.Features())
	var none []string
	for _, c := range []struct {
		runtime, version, nri, kernel string
		want                          []string
	}{
		{"containerd", "v2.3.7", "v0.12.0", "6.12.43+deb13-amd64", weighted},
		{"containerd", "v2.3.7", "v0.11.0", "6.9.0-rc1", weighted}, // as the stub guesses the NRI version
		{"containerd", "2.2.7", "v0.11.0", "6.12.0", score},
		{"containerd", "2.0.11", "unknown", "6.12.0", score},
		{"containerd", "1.7.28", "v0.6.1", "6.12.0", none},
		{"containerd", "2.2.7", "v0.12.5", "6.12.0", weighted},
		{"containerd", "2.10.0", "unknown", "7.0", weighted},
		{"cri-o", "1.37.0", "unknown", "6.8.0-45-generic", policy},
		{"cri-o", "1.36.3", "v0.11.0", "6.8.0-45-generic", score},
		{"cri-o", "1.32.0", "unknown", "6.1.0", score},
		{"cri-o", "1.31.9", "unknown", "6.1.0", none},
		{"other", "9.0", "v0.12.1-0.20260601000000-0123456789ab", "5.15.0", policy},
		{"other", "9.0", "unknown", "6.12.0", none},
		{"containerd", "2.3.0", "v0.12.0", "5.14.0-570.el9.x86_64", score},
		{"", "", "", "", none},
	} {
		require.Equal(t, append(slices.Clone(c.want), contract.FeatureQuota), contract.Platform{
			Runtime: c.runtime, RuntimeVersion: c.version, NRIVersion: c.nri, Kernel: c.kernel,
		}.Features(), c)
	}
}

func TestLacks(t *testing.T) {
	node := contract.Platform{Runtime: "containerd", RuntimeVersion: "v2.2.7", NRIVersion: "v0.11.0", Kernel: "6.8.0-45",
		Partitions: true, Machine: []string{contract.FeatureInterrupts}}
	require.Empty(t, node.Lacks(contract.FeatureOOMScore))
	require.Empty(t, node.Lacks(contract.FeaturePartition))
	require.Equal(t, "the runtime is containerd v2.2.7 with NRI v0.11.0, the feature needs NRI 0.12 (containerd 2.3, CRI-O 1.37)",
		node.Lacks(contract.FeatureMemoryPolicy))
	node.RuntimeVersion, node.Partitions = "v2.3.0", false
	require.Equal(t, "the kernel is Linux 6.8.0-45, the feature needs Linux 6.9", node.Lacks(contract.FeatureWeightedInterleave))
	require.Equal(t, "nri-actuator has made no cpuset partition on this node (Linux 6.8.0-45): "+
		"partitions need Linux 6.7, the machine's cgroup mount, and kubepods right below the mount's root", node.Lacks(contract.FeaturePartition))
	require.Equal(t, "nri-actuator has made no cpuset partition on this node (Linux 6.8.0-45): "+
		"partitions need Linux 6.7, the machine's cgroup mount, and kubepods right below the mount's root", node.Lacks(contract.FeatureIsolated))
	for release, lack := range map[string]string{
		"6.12.95+deb12": "the kernel is Linux 6.12.95+deb12, the feature needs Linux 7.0", "7.0.0-rc1": "", "7.3.4+deb13": "",
	} {
		require.Equal(t, lack, contract.Platform{Kernel: release, Partitions: true}.Lacks(contract.FeatureIsolated))
	}
	require.Empty(t, node.Lacks(contract.FeatureQuota))
	require.Empty(t, node.Lacks(contract.FeatureInterrupts))
	require.Equal(t, "nri-actuator could not write cpufreq/scaling_governor of CPUs: the machine has no such file, "+
		"or the chart's value actuator.machine.cpuPower is off", node.Lacks(contract.FeatureFrequency))
	require.Equal(t, "this program does not know the feature", node.Lacks("latency"))

	var a contract.Announcement
	a.SetPlatform(node)
	require.Equal(t, node, a.Platform())
	require.Empty(t, a.Lacks(contract.FeatureMemoryPolicy))
	require.Equal(t, node.Lacks(contract.FeatureWeightedInterleave), a.Lacks(contract.FeatureWeightedInterleave))
	// An actuator of a newer contract knows what it announces.
	a.Features = append(a.Features, "latency")
	require.Empty(t, a.Lacks("latency"))
	// An actuator of an older contract announces no kernel, and may not have a
	// feature that its platform has.
	a.Kernel, a.Features = "", []string{contract.FeatureOOMScore}
	require.Equal(t, "nri-actuator announces [oomScoreAdj] with containerd v2.3.0: upgrade nri-actuator, the runtime or the kernel",
		a.Lacks(contract.FeatureMemoryPolicy))
}

func TestNamesDevices(t *testing.T) {
	for version, want := range map[string]bool{
		"v2.3.7": true, "2.3.0": true, "v2.4.0-beta.1-12-gabc": true, "3.0": true,
		"v2.2.7": false, "1.7.28~ds1": false, "unknown": false, "": false,
	} {
		require.Equal(t, want, contract.Platform{Runtime: "containerd", RuntimeVersion: version}.NamesDevices(), version)
		require.False(t, contract.Platform{Runtime: "cri-o", RuntimeVersion: version}.NamesDevices())
	}
}
