// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestMachineValidate(t *testing.T) {
	cpus := contracttest.CPUs
	for name, c := range map[string]struct {
		machine contract.Machine
		err     string
	}{
		"nothing":    {},
		"everything": {machine: goldenNodes()["node-machine"].Machine},
		"devices without other interrupts": {
			machine: contract.Machine{DeviceInterrupts: []contract.DeviceInterrupts{{Pattern: "a", CPUs: cpus("1")}}},
			err:     "machine: deviceInterrupts without interruptCPUs",
		},
		"a device without CPUs": {
			machine: contract.Machine{InterruptCPUs: cpus("0"), DeviceInterrupts: []contract.DeviceInterrupts{{Pattern: "a"}}},
			err:     `machine: deviceInterrupts "a" without cpus`,
		},
		"a bad pattern": {
			machine: contract.Machine{InterruptCPUs: cpus("0"), DeviceInterrupts: []contract.DeviceInterrupts{{Pattern: "[", CPUs: cpus("1")}}},
			err:     `pattern "[": want 1 to 64 printable characters`,
		},
		"files without CPUs": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{Files: quiet().Files}}},
			err:     `machine: cpus "" with 4 files`,
		},
		"CPUs without files": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{CPUs: cpus("1")}}},
			err:     `machine: cpus "1" with 0 files`,
		},
		"a CPU in two entries": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{CPUs: cpus("1-2"), Files: quiet().Files}, {CPUs: cpus("2"), Files: quiet().Files}}},
			err:     "want CPUs of no other entry",
		},
		"another file": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{CPUs: cpus("1"), Files: map[string]string{"online": "0"}}}},
			err:     `machine: cpus 1: file "online" is not on the contract's list`,
		},
		"a path out of the directory": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{CPUs: cpus("1"), Files: map[string]string{"../cpu2/online": "0"}}}},
			err:     "is not on the contract's list",
		},
		"latency 0, which allows any": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{CPUs: cpus("1"), Files: map[string]string{contract.FileWakeupLatency: "0"}}}},
			err:     `power/pm_qos_resume_latency_us: "0" does not have`,
		},
		"a governor with a newline": {
			machine: contract.Machine{CPUs: []contract.CPUFiles{{CPUs: cpus("1"), Files: map[string]string{contract.FileGovernor: "a\nb"}}}},
			err:     "cpufreq/scaling_governor",
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := goldenNodes()["node-idle"]
			node.Machine = c.machine
			_, err := contract.EncodeNode(node)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "node state: ")
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}

func TestPodQuota(t *testing.T) {
	for quota, valid := range map[string]bool{
		"max 100000": true, "450000 100000": true, "1 1": true,
		"max": false, "0 100000": false, "450000": false, "-1 100000": false, "max 100000\n": false, "max 0": false, " 1 1": false,
	} {
		node := goldenNodes()["node-machine"]
		pod := node.Pods[podUID]
		pod.Quota = quota
		node.Pods = map[string]contract.PodState{podUID: pod}
		require.Equal(t, valid, node.Validate() == nil, quota)
		pod.Requires = nil
		node.Pods = map[string]contract.PodState{podUID: pod}
		require.Error(t, node.Validate(), "%s that nothing needs", quota)
	}
}

func TestQuietCheck(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*contract.ResultRecord)
		err  string
	}{
		"as it is": {edit: func(*contract.ResultRecord) {}},
		"a device and all other interrupts": {
			edit: func(r *contract.ResultRecord) { r.Quiet.NoInterrupts = false },
			err:  `quiet: device "eth0-rx-*" without noInterrupts`,
		},
		"a bad device": {edit: func(r *contract.ResultRecord) { r.Quiet.Device = "a/b" }, err: `quiet: device: pattern "a/b"`},
		"another file": {edit: func(r *contract.ResultRecord) { r.Quiet.Files = map[string]string{"online": "0"} }, err: `quiet: file "online"`},
		"no CPUs": {
			edit: func(r *contract.ResultRecord) { r.Decision.CPUs, r.Decision.Quota = contract.CPUSet{}, "" },
			err:  "need a decision with cpus",
		},
		"a feature that nothing needs": {
			edit: func(r *contract.ResultRecord) {
				r.Decision.Requires = []string{contract.FeatureQuota, contract.FeatureInterrupts}
			},
			err: `quiet: needs feature "frequency" in requires`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := goldenClaims()["claim-quiet"]
			c.edit(&r.Results[0])
			if c.err == "" {
				require.NoError(t, r.Validate())
			} else {
				require.ErrorContains(t, r.Validate(), c.err)
			}
		})
	}
	limited := goldenClaims()["claim-quiet"]
	limited.Pods[0].CPULimit.Milli = 0
	require.ErrorContains(t, limited.Validate(), "CPU limit of 0m, want more than 0")
}

func TestCheckPattern(t *testing.T) {
	for pattern, valid := range map[string]bool{
		"eth0-rx-*": true, "virtio0-input.?": true, "*": true, strings.Repeat("a", 64): true,
		"": false, "a b": false, "a/b": false, "[": false, "nvme[01]q*": false, `a\\b`: false, "é": false,
		strings.Repeat("a", 65): false, "a\n": false,
	} {
		require.Equal(t, valid, contract.CheckPattern(pattern) == nil, pattern)
	}
	match := contract.DeviceInterrupts{Pattern: "virtio*-input.0"}
	require.True(t, match.Match([]string{"ahci", "virtio3-input.0"}))
	require.False(t, match.Match([]string{"virtio3-output.0", "xvirtio3-input.0"}))
	require.False(t, match.Match(nil))
}
