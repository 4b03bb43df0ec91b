// SPDX-License-Identifier: Apache-2.0

package receipt_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

const schedstat = `version 16
timestamp 4295894216
cpu0 0 0 0 0 0 0 70 10 100
domain0 00000003 0 0 0
cpu1 0 0 0 0 0 0 80 20 200
cpu10 0 0 0 0 0 0 90 30 300
`

func files(of map[string]string) fstest.MapFS {
	all := make(fstest.MapFS)
	for name, text := range of {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func TestReadMachine(t *testing.T) {
	sys := files(map[string]string{
		"kernel/irq/24/actions": "nvme0q1,nvme0q2\n", "kernel/irq/24/per_cpu_count": "1,0,4294967295\n",
		"kernel/irq/25/actions": "\n", "kernel/irq/25/per_cpu_count": "9,9,9\n",
		"kernel/irq/26/actions": "gone\n",
	})
	m, err := receipt.ReadMachine(sys, files(map[string]string{"schedstat": schedstat}))
	require.NoError(t, err)
	require.Equal(t, receipt.Machine{
		Interrupts: map[string]receipt.Interrupt{"24": {Handlers: []string{"nvme0q1", "nvme0q2"}, Counts: []uint32{1, 0, 1<<32 - 1}}},
		CPUs: map[int]receipt.CPU{
			0: {Waited: 10, Switches: 100}, 1: {Waited: 20, Switches: 200}, 10: {Waited: 30, Switches: 300},
		},
	}, m)

	m, err = receipt.ReadMachine(files(nil), files(map[string]string{"schedstat": schedstat}))
	require.NoError(t, err, "a machine without interrupts in sysfs")
	require.Empty(t, m.Interrupts)
}

func TestReadMachine_Faults(t *testing.T) {
	for name, c := range map[string]struct {
		counts, schedstat, says string
		absent                  bool
	}{
		"no file":           {absent: true, says: "schedstat"},
		"no CPU":            {schedstat: "version 16\n", says: "has no CPU: is the kernel built without CONFIG_SCHEDSTATS?"},
		"few words":         {schedstat: "cpu0 0 0\n", says: `"cpu0 0 0\n" is not the line of a CPU`},
		"a name":            {schedstat: "cpux 0 0 0 0 0 0 1 2 3\n", says: "is not the line of a CPU"},
		"no number":         {schedstat: "cpu0 0 0 0 0 0 0 1 x 3\n", says: "has a word that is not a counter"},
		"negative":          {schedstat: "cpu0 0 0 0 0 0 0 1 2 -3\n", says: "has a word that is not a counter"},
		"a count too large": {schedstat: schedstat, counts: "4294967296", says: `interrupt "24": per_cpu_count: "4294967296" is not a count`},
	} {
		t.Run(name, func(t *testing.T) {
			sys := files(map[string]string{"kernel/irq/24/actions": "disk", "kernel/irq/24/per_cpu_count": "1"})
			if c.counts != "" {
				sys["kernel/irq/24/per_cpu_count"].Data = []byte(c.counts)
			}
			proc := files(nil)
			if !c.absent {
				proc = files(map[string]string{"schedstat": c.schedstat})
			}
			_, err := receipt.ReadMachine(sys, proc)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestReadThrottling(t *testing.T) {
	const pod, other = "kubepods/poda", "kubepods/podb"
	stat := func(times, microseconds string) string {
		return "usage_usec 7\nnr_periods 3\nnr_throttled " + times + "\nthrottled_usec " + microseconds + "\n"
	}
	cgroups := files(map[string]string{
		pod + "/cpu.stat": stat("1", "100"), pod + "/memory.max": "max",
		pod + "/claimed/cpu.stat": stat("2", "200"), pod + "/claimed/cpuset.cpus": "2-3\n",
		pod + "/beside/cpu.stat": stat("1000", "1"), pod + "/beside/cpuset.cpus": "0-1\n",
		pod + "/sandbox/cpu.stat": stat("1000", "1"), pod + "/sandbox/cpuset.cpus": "\n",
		// A container with CPUs of two results of the pod, and one that has other CPUs of the node as well.
		pod + "/both/cpu.stat": stat("8", "800"), pod + "/both/cpuset.cpus": "2-3,5\n",
		pod + "/pool/cpu.stat": stat("1000", "1"), pod + "/pool/cpuset.cpus": "0-3\n",
		other + "/cpu.stat": stat("4", "400"),
		"cpu.stat":          "usage_usec 1\n",
	})
	claims := []contract.ClaimRecord{{
		UID: "c", Pods: []contract.PodRecord{{UID: "a"}, {UID: "b"}, {UID: "absent"}},
		Results: []contract.ResultRecord{
			{Decision: contract.Decision{CPUs: contracttest.CPUs("2-3"), Quota: contract.QuotaNone}},
			{Decision: contract.Decision{CPUs: contracttest.CPUs("5")}},
		},
	}}
	dir := func(p contract.PodRecord) string { return "kubepods/pod" + p.UID }
	got, err := receipt.ReadThrottling(cgroups, claims, dir)
	require.NoError(t, err)
	require.Equal(t, map[contract.Key]receipt.Throttling{{ClaimUID: "c"}: {Times: 15, Microseconds: 1500}}, got)

	cgroups[pod+"/claimed/cpu.stat"].Data = []byte("nr_throttled many\n")
	claims[0].Namespace, claims[0].Name = "ns", "name"
	_, err = receipt.ReadThrottling(cgroups, claims, dir)
	require.EqualError(t, err, `throttling of claim ns/name: kubepods/poda/claimed/cpu.stat: "nr_throttled many\n" is not a counter`)
}

// gone is a file system in which the cgroup of a file goes while the file is open.
type gone struct {
	fs.FS
	name string
}

func (g gone) Open(name string) (fs.File, error) {
	if name == g.name {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.ENODEV}
	}
	return g.FS.Open(name)
}

// A container that ends during a look does not change what is measured of the pod's other containers.
func TestReadThrottlingOfAContainerThatEnds(t *testing.T) {
	cgroups := files(map[string]string{
		"pod/cpu.stat": "nr_throttled 1\n", "pod/a/cpu.stat": "nr_throttled 2\n", "pod/a/cpuset.cpus": "2\n",
		"pod/b/cpu.stat": "nr_throttled 4\n", "pod/b/cpuset.cpus": "2\n",
	})
	claims := []contract.ClaimRecord{{UID: "c", Pods: []contract.PodRecord{{}}, Results: []contract.ResultRecord{
		{Decision: contract.Decision{CPUs: contracttest.CPUs("2"), Quota: contract.QuotaNone}},
	}}}
	for name, times := range map[string]uint64{"pod/cpu.stat": 6, "pod/a/cpu.stat": 5, "pod/a/cpuset.cpus": 5, "pod": 1} {
		got, err := receipt.ReadThrottling(gone{cgroups, name}, claims, func(contract.PodRecord) string { return "pod" })
		require.NoError(t, err, name)
		require.Equal(t, times, got[contract.Key{ClaimUID: "c"}].Times, name)
	}
}

// Whatever the files of a container's cgroup hold, reading them ends with counters or an error.
func FuzzReadThrottling(f *testing.F) {
	f.Add("nr_throttled 2\nthrottled_usec 200\n", "2-3\n")
	f.Add("nr_throttled -1\n", "3-2")
	f.Fuzz(func(t *testing.T, stat, cpus string) {
		claims := []contract.ClaimRecord{{UID: "c", Pods: []contract.PodRecord{{}}, Results: []contract.ResultRecord{
			{Decision: contract.Decision{CPUs: contracttest.CPUs("2-3"), Quota: contract.QuotaNone}},
		}}}
		got, err := receipt.ReadThrottling(files(map[string]string{"pod/a/cpu.stat": stat, "pod/a/cpuset.cpus": cpus}),
			claims, func(contract.PodRecord) string { return "pod" })
		if err == nil {
			require.Len(t, got, 1)
			own, err := contract.ParseCPUs(strings.TrimSpace(cpus))
			require.NoError(t, err)
			require.True(t, own == contracttest.CPUs("2-3") || got[contract.Key{ClaimUID: "c"}] == receipt.Throttling{})
		}
	})
}

// Whatever the kernel's files hold, reading them ends with counters or an error.
func FuzzReadMachine(f *testing.F) {
	f.Add("1,2,3\n", schedstat)
	f.Add("", "cpu0")
	f.Add("1,,2", "cpu-1 0 0 0 0 0 0 1 2 3")
	f.Fuzz(func(t *testing.T, counts, stat string) {
		m, err := receipt.ReadMachine(
			files(map[string]string{"kernel/irq/1/actions": "disk", "kernel/irq/1/per_cpu_count": counts}),
			files(map[string]string{"schedstat": stat}))
		if err == nil {
			require.NotEmpty(t, m.CPUs)
			require.NotEmpty(t, m.Interrupts["1"].Counts)
		}
	})
}
