// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

// quietDirectory has claim A, which asks for quiet CPUs, and claim B, whose CPU limit
// throttles it.
func quietDirectory(t *testing.T) inspect.Directory {
	dir := t.TempDir()
	a, b := claim(claimA, "2"), claim(claimB, "3")
	a.Results[0].Decision.Requires = []string{contract.FeatureHousekeeping, contract.FeatureInterrupts, contract.FeatureQuota}
	a.Results[0].Decision.Quota = contract.QuotaNone
	a.Results[0].Quiet = contract.Quiet{NoInterrupts: true, Device: "nic*", NoWorkQueues: true}
	b.Results[0].Quiet = contract.Quiet{LimitMilli: 500}
	writeFiles(t, dir, contract.NodeState{
		V: contract.Version, BootID: "boot", Shared: contract.Shared{CPUs: contracttest.CPUs("0-1"), Mems: contracttest.NUMANodes("0")},
		Pods: map[string]contract.PodState{podUID: {Claims: []string{claimA, claimB}}},
	}, nil, a, b)
	d, err := inspect.Read(dir)
	require.NoError(t, err)
	return d
}

func quietLines(t *testing.T, d inspect.Directory, claim string) []string {
	var out strings.Builder
	require.NoError(t, d.Explain(&out, claim))
	var lines []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "quiet: ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// A85: the tool shows what a claim asks for, what is known against it, and what was measured.
func TestExplainQuiet(t *testing.T) {
	const of = "quiet: claim default/claim-a, CPUs 2: "
	const asked = of + "interrupts of nic* only, no unbound work queues, no CPU limit"
	const limit = "quiet: claim default/claim-b, CPUs 3: but a CPU limit of 500m throttles a container that has CPUs 3 alone: " +
		"leave the limit out, or set the claim parameter cpu.quota to none"
	plugin := t.TempDir()
	host := inspect.Host{
		PluginDir: plugin,
		Sys: fstest.MapFS{
			"kernel/irq/24/actions": {Data: []byte("disk\n")}, "kernel/irq/24/per_cpu_count": {Data: []byte("0,0,9,0\n")},
		},
		Proc: fstest.MapFS{"schedstat": {Data: []byte("cpu2 0 0 0 0 0 0 0 3000 4\n")}},
		Cgroups: fstest.MapFS{
			"system.slice/irqbalance.service/cgroup.events": {Data: []byte("populated 1\nfrozen 0\n")},
			"kubepods/pod" + podUID + "/cpu.stat":           {Data: []byte("nr_throttled 0\n")},
		},
	}
	d := quietDirectory(t)
	require.Equal(t, []string{asked, limit}, quietLines(t, d, ""))

	// The frontend has not begun to measure.
	d = d.Measure(host)
	const irqbalance = of + "irqbalance is running on this node: it may bring interrupts back until nri-actuator looks again; " +
		"give it the claimable CPUs as IRQBALANCE_BANNED_CPULIST, or stop it"
	require.Equal(t, []string{asked, irqbalance, limit}, quietLines(t, d, ""))
	require.Empty(t, d.Selected("").Receipts)

	name := contract.Key{ClaimUID: claimA}.DeviceName()
	require.NoError(t, receipt.File{Dir: plugin}.Write(receipt.Book{
		BootID: "boot", Entries: map[string]receipt.Entry{name: {
			CPUs: contract.CPUs(2), Since: time.Date(2026, 11, 25, 6, 0, 0, 0, time.UTC),
			Start: receipt.Counters{Interrupts: map[string]uint32{"24": 2}, Waited: 1000, Switches: 1},
		}},
	}))
	d = quietDirectory(t).Measure(host)
	require.Equal(t, []string{asked, irqbalance, of + "but interrupts came to its CPUs from disk (7); since 2026-11-25T06:00:00Z: " +
		"7 interrupts of devices, threads waited 2µs and were switched to 3 times, throttled 0 times (0s), partition lost 0 times"},
		quietLines(t, d, claimA))
	require.EqualValues(t, 7, d.Selected("").Receipts[name].Interrupts)
	require.Empty(t, d.Selected(claimB).Receipts)

	// What cannot be measured is said, and is no problem of the directory.
	require.NoError(t, os.WriteFile(filepath.Join(plugin, receipt.FileName), []byte("{"), 0o600))
	d = quietDirectory(t).Measure(host)
	require.NoError(t, d.Valid())
	lines := quietLines(t, d, claimA)
	require.Contains(t, lines[len(lines)-1], "quiet: not measured: "+filepath.Join(plugin, receipt.FileName))
}

// The throttling is read where the pods are. Where they are not seen, nothing is measured.
func TestMeasureThrottling(t *testing.T) {
	const systemd = "kubepods.slice/kubepods-podcccccccc_0000_0000_0000_000000000003.slice/cpu.stat"
	result := contract.Key{ClaimUID: claimA}.DeviceName()
	plugin := t.TempDir()
	require.NoError(t, receipt.File{Dir: plugin}.Write(receipt.Book{
		BootID: "boot", Entries: map[string]receipt.Entry{result: {CPUs: contract.CPUs(2)}},
	}))
	directory := quietDirectory(t)
	for name, tc := range map[string]struct {
		actuator *contract.Announcement
		cpuStat  string
		err      string
	}{
		"cgroupfs":                         {&contract.Announcement{Kubepods: "kubepods"}, "kubepods/pod" + podUID + "/cpu.stat", ""},
		"cgroupfs, the actuator is away":   {nil, "kubepods/pod" + podUID + "/cpu.stat", ""},
		"systemd":                          {&contract.Announcement{Kubepods: "kubepods.slice"}, systemd, ""},
		"systemd, the actuator is away":    {nil, systemd, ""},
		"systemd, the actuator saw no pod": {&contract.Announcement{}, systemd, ""},
		"another mount": {
			&contract.Announcement{Kubepods: "kubepods"}, "cpu.stat", "the cgroup mount has no kubepods: --cgroup-root",
		},
		"another mount, the actuator is away": {
			nil, "cpu.stat", "and no kubelet.slice/kubelet-kubepods.slice: --cgroup-root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := directory
			d.Actuator = tc.actuator
			d = d.Measure(inspect.Host{
				PluginDir: plugin, Sys: fstest.MapFS{}, Proc: fstest.MapFS{"schedstat": {Data: []byte("cpu2 0 0 0 0 0 0 0 3000 4\n")}},
				Cgroups: fstest.MapFS{tc.cpuStat: {Data: []byte("nr_throttled 3\n")}},
			})
			if tc.err != "" {
				require.ErrorContains(t, d.Measurements.Err, tc.err)
				require.Empty(t, d.Measurements.Receipts)
				return
			}
			require.NoError(t, d.Measurements.Err)
			require.EqualValues(t, 3, d.Measurements.Receipts[result].Throttling.Times)
		})
	}
}
