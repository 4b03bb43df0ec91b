// SPDX-License-Identifier: Apache-2.0

package quiet_test

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// sys is the sysfs of a machine with two cores of two threads, a network card and a disk.
func sys() fstest.MapFS {
	files := fstest.MapFS{}
	add := func(name, content string) { files[name] = &fstest.MapFile{Data: []byte(content + "\n")} }
	add("kernel/irq/9/actions", "")
	add("kernel/irq/24/actions", "disk,usb")
	add("kernel/irq/25/actions", "eth0-rx-0")
	add("kernel/irq/26/actions", "eth0-rx-1")
	add("devices/system/cpu/online", "0-3")
	add("devices/system/cpu/cpufreq/policy0/x", "")
	for id, siblings := range map[string]string{"0": "0,2", "1": "1,3", "2": "0,2", "3": "1,3"} {
		dir := "devices/system/cpu/cpu" + id + "/"
		add(dir+"topology/thread_siblings_list", siblings)
		add(dir+"cpufreq/scaling_available_governors", "performance schedutil ")
		add(dir+"cpufreq/cpuinfo_min_freq", "800000")
		add(dir+"cpufreq/cpuinfo_max_freq", "3500000")
		add(dir+"cpufreq/affected_cpus", id)
	}
	return files
}

func TestRead(t *testing.T) {
	f := quiet.Read(sys())
	require.NoError(t, f.Err)
	require.ElementsMatch(t, [][]string{{"disk", "usb"}, {"eth0-rx-0"}, {"eth0-rx-1"}}, f.Interrupts)
	require.Len(t, f.CPUs, 4)
	require.Equal(t, quiet.CPU{
		Governors: []string{"performance", "schedutil"}, Min: 800000, Max: 3500000, Core: contracttest.CPUs("1,3"), Clock: contracttest.CPUs("3"),
	}, f.CPUs[3])

	files := sys()
	delete(files, "devices/system/cpu/cpu3/topology/thread_siblings_list")
	files["devices/system/cpu/cpu3/cpufreq/affected_cpus"].Data = []byte("2 3\n")
	f = quiet.Read(files)
	require.NoError(t, f.Err)
	require.Equal(t, contracttest.CPUs("2-3"), f.CPUs[3].Clock)
	require.True(t, f.CPUs[3].Core.IsEmpty(), "an offline CPU has no list of siblings")

	for _, errno := range []syscall.Errno{syscall.EBUSY, syscall.ENODEV} {
		offline := refusing{sys(), "devices/system/cpu/cpu3/cpufreq/scaling_available_governors", errno}
		f = quiet.Read(offline)
		require.NoError(t, f.Err, "an offline CPU keeps its files")
		require.Len(t, f.CPUs, 3)
		require.NotContains(t, f.CPUs, 3)
	}
	require.Error(t, quiet.Read(refusing{sys(), "devices/system/cpu/cpu3/cpufreq/scaling_available_governors", syscall.EIO}).Err)

	files = sys()
	delete(files, "devices/system/cpu/cpu1/cpufreq/scaling_available_governors")
	f = quiet.Read(files)
	require.NoError(t, f.Err)
	require.NotContains(t, f.CPUs, 1, "it does not scale")
	files["devices/system/cpu/cpu2/cpufreq/cpuinfo_max_freq"].Data = []byte("fast")
	require.ErrorContains(t, quiet.Read(files).Err, "frequency of CPU 2")
	require.ErrorContains(t, quiet.Read(fstest.MapFS{}).Err, "CPUs: ")
}

// A device that is down has no interrupts. Another claim's pattern must not get them when they come.
func TestDevicesThatMatchTheSame(t *testing.T) {
	facts := quiet.Facts{Interrupts: [][]string{{"eth0-rx-0"}, {"eth0-rx-1"}}}
	for _, c := range []struct {
		pattern, other string
		refused        bool
	}{
		{"*", "eth1-*", true},
		{"eth?-*", "eth1-*", true},
		{"eth*", "eth1-*", true},
		{"eth0-*", "eth?-tx-*", false},
		{"eth0-*", "*-rx-0", true}, // an interrupt that is there
		{"eth0-*", "eth1-*", false},
		{"*eth0*", "*eth1*", false},
		{"eth0-*", "*hci*", false},
		{"eth0-rx-?", "eth0-*", true},
		{"eth0-rx-0", "eth0-rx-?", true},
		{"eth0-rx-0", "eth0-rx-1", false},
		{"eth0-rx-?", "eth0-tx-?", false},
	} {
		err := quiet.Check(contract.Quiet{Device: c.pattern}, contracttest.CPUs("1"), holder("2", contract.Quiet{Device: c.other}), nil, facts)
		require.Equal(t, c.refused, err != nil, "%s beside %s: %v", c.pattern, c.other, err)
	}
}

func wish(files map[string]string) contract.Quiet { return contract.Quiet{Files: files} }

func holder(cpus string, q contract.Quiet) []contract.ClaimRecord {
	return []contract.ClaimRecord{{Results: []contract.ResultRecord{{Quiet: q, Decision: contract.Decision{CPUs: contracttest.CPUs(cpus)}}}}}
}

// A83: what the machine lacks is refused with what it has.
func TestCheck(t *testing.T) {
	facts := quiet.Read(sys())
	for name, c := range map[string]struct {
		wish   contract.Quiet
		cpus   string
		others []contract.ClaimRecord
		facts  quiet.Facts
		err    string
	}{
		"asks for nothing, and no facts": {cpus: "1", facts: quiet.Facts{Err: errors.New("unreadable")}},
		"no facts": {
			wish: contract.Quiet{Device: "a"}, cpus: "1", facts: quiet.Facts{Err: errors.New("unreadable")}, err: "unreadable",
		},
		"a machine of a file, whose interrupts are unknown": {wish: contract.Quiet{Device: "a"}, cpus: "1", facts: quiet.Facts{Unknown: true}},
		"a device": {wish: contract.Quiet{Device: "eth0-rx-*"}, cpus: "1", facts: facts},
		"another device": {
			wish: contract.Quiet{Device: "usb"}, cpus: "1", facts: facts, others: holder("2", contract.Quiet{Device: "eth0-rx-*"}),
		},
		"an unknown device": {
			wish: contract.Quiet{Device: "eth1-*"}, cpus: "1", facts: facts,
			err: `cpu.interrupts: no interrupt of this machine has a name that matches device "eth1-*"; there are disk, eth0-rx-0, eth0-rx-1, usb`,
		},
		"a device of another claim": {
			wish: contract.Quiet{Device: "eth0-*-1"}, cpus: "1", facts: facts, others: holder("2", contract.Quiet{Device: "eth0-rx-*"}),
			err: `device "eth0-*-1" matches interrupt eth0-rx-1, ` +
				`which another claim on this node, or another request of this claim, has (device "eth0-rx-*")`,
		},
		"a device that is down, of another claim": {
			wish: contract.Quiet{Device: "*"}, cpus: "1", facts: facts, others: holder("2", contract.Quiet{Device: "eth1-*"}),
			err: `device "*" matches all names of device "eth1-*", which another claim on this node`,
		},
		"another device that is down": {
			wish: contract.Quiet{Device: "eth0-*"}, cpus: "1", facts: facts, others: holder("2", contract.Quiet{Device: "eth1-*"}),
		},
		"a device of another claim, with bytes for a terminal": {
			wish: contract.Quiet{Device: "e"}, cpus: "1", others: holder("2", contract.Quiet{Device: "e"}),
			facts: quiet.Facts{Interrupts: [][]string{{"e", "\x1b[2J"}}},
			err:   `device "e" matches interrupt e ?[2J, which another claim`,
		},
		"frequency": {
			wish: wish(map[string]string{
				contract.FileGovernor: "performance", contract.FileMinFrequency: "800000", contract.FileMaxFrequency: "3500000",
			}),
			cpus: "1,3", facts: facts,
		},
		"a governor that is not there": {
			wish: wish(map[string]string{contract.FileGovernor: "powersave"}), cpus: "1", facts: facts,
			err: `cpu.governor: "powersave", want one of ["performance" "schedutil"], which CPU 1 has`,
		},
		"too slow": {
			wish: wish(map[string]string{contract.FileMinFrequency: "799999"}), cpus: "1", facts: facts,
			err: "cpu.minFrequency: 799.999MHz, want 800MHz to 3500MHz, which CPU 1 has",
		},
		"too fast": {
			wish: wish(map[string]string{contract.FileMaxFrequency: "3500001"}), cpus: "1", facts: facts,
			err: "cpu.maxFrequency: 3500.001MHz, want 800MHz to 3500MHz, which CPU 1 has",
		},
		"no frequencies": {
			wish: wish(map[string]string{contract.FileGovernor: "performance"}), cpus: "7", facts: facts,
			err: "CPU 7 has no frequency scaling on this machine",
		},
		"another governor on the sibling": {
			wish: wish(map[string]string{contract.FileGovernor: "performance"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileGovernor: "schedutil"})),
			err:    `cpu.governor: "performance" contradicts "schedutil", which another claim or request has for CPUs 2: they share`,
		},
		"another governor on another core": {
			wish: wish(map[string]string{contract.FileGovernor: "performance"}), cpus: "0", facts: facts,
			others: holder("1,3", wish(map[string]string{contract.FileGovernor: "schedutil"})),
		},
		"the sibling is slower": {
			wish: wish(map[string]string{contract.FileMinFrequency: "2000000"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileMaxFrequency: "1000000"})),
			err:    "cpu.minFrequency 2000MHz contradicts cpu.maxFrequency 1000MHz",
		},
		"the sibling is faster": {
			wish: wish(map[string]string{contract.FileMaxFrequency: "1000000"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileMinFrequency: "2000000"})),
			err:    "cpu.minFrequency 2000MHz contradicts cpu.maxFrequency 1000MHz",
		},
		"the sibling has another minimum": {
			wish: wish(map[string]string{contract.FileMinFrequency: "2000000"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileMinFrequency: "1000000"})),
			err:    "cpu.minFrequency 2000MHz contradicts 1000MHz",
		},
		"the sibling has another maximum": {
			wish: wish(map[string]string{contract.FileMaxFrequency: "2000000"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileMaxFrequency: "3000000"})),
			err:    "cpu.maxFrequency 2000MHz contradicts 3000MHz",
		},
		"the sibling has the same minimum": {
			wish: wish(map[string]string{contract.FileMinFrequency: "2000000"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileMinFrequency: "2000000"})),
		},
		"the sibling agrees": {
			wish: wish(map[string]string{contract.FileMaxFrequency: "2000000"}), cpus: "0", facts: facts,
			others: holder("2", wish(map[string]string{contract.FileMinFrequency: "2000000"})),
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := quiet.Check(c.wish, contracttest.CPUs(c.cpus), c.others, nil, c.facts)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}

// A frequency is of a clock, and no other claim and no pod may have CPUs of the clock.
func TestClockOfOthers(t *testing.T) {
	files := sys()
	for _, id := range []string{"1", "2", "3"} {
		files["devices/system/cpu/cpu"+id+"/cpufreq/affected_cpus"].Data = []byte("1 2 3\n")
	}
	facts, slow := quiet.Read(files), wish(map[string]string{contract.FileMaxFrequency: "1000000"})
	own := []contract.ResultRecord{{Decision: contract.Decision{CPUs: contracttest.CPUs("2")}}}
	for name, c := range map[string]struct {
		cpus string
		own  []contract.ResultRecord
		err  string
	}{
		"all CPUs of the clock":                       {cpus: "1-3"},
		"two requests have all CPUs":                  {cpus: "1,3", own: own},
		"a clock of its own":                          {cpus: "0"},
		"another claim may have a CPU of the clock":   {cpus: "0-1,3", err: "CPU 1 has one clock with CPUs 2, which the claim does not have"},
		"other claims may have the rest of the clock": {cpus: "3", err: "CPU 3 has one clock with CPUs 1-2, which the claim does not have"},
		"two requests have a part of the clock":       {cpus: "3", own: own, err: "CPU 3 has one clock with CPUs 1, which"},
	} {
		t.Run(name, func(t *testing.T) {
			err := quiet.Check(slow, contracttest.CPUs(c.cpus), nil, c.own, facts)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
	require.NoError(t, quiet.Check(contract.Quiet{NoInterrupts: true, Device: "disk"}, contracttest.CPUs("3"), nil, nil, facts))
}

// Two requests of one claim cannot have one device: the actuator gives an interrupt to one of them.
func TestDeviceOfTwoRequests(t *testing.T) {
	own := []contract.ResultRecord{{Quiet: contract.Quiet{Device: "eth0-*"}, Decision: contract.Decision{CPUs: contracttest.CPUs("2")}}}
	err := quiet.Check(contract.Quiet{Device: "eth0-rx-1"}, contracttest.CPUs("3"), nil, own, quiet.Read(sys()))
	require.ErrorContains(t, err, "which another claim on this node, or another request of this claim, has")
}

// A message about a machine with many interrupts stays short.
func TestManyInterrupts(t *testing.T) {
	var f quiet.Facts
	for n := range 3000 {
		f.Interrupts = append(f.Interrupts, []string{"nvme0q" + strconv.Itoa(n)})
	}
	err := quiet.Check(contract.Quiet{Device: "eth0"}, contracttest.CPUs("1"), nil, nil, f)
	require.ErrorContains(t, err, "nvme0q0, nvme0q1, nvme0q10, ")
	require.ErrorContains(t, err, "and 2992 more")
	require.Less(t, len(err.Error()), 600)
}

func TestMachine(t *testing.T) {
	online := contracttest.CPUs("0-7")
	slow := map[string]string{contract.FileWakeupLatency: "20"}
	claims := append(holder("2", contract.Quiet{NoInterrupts: true, Device: "eth0-*", Files: slow}),
		append(holder("3", contract.Quiet{NoWorkQueues: true}), append(holder("4-5", contract.Quiet{NoInterrupts: true, Files: slow}),
			holder("6", contract.Quiet{Files: map[string]string{contract.FileGovernor: "performance"}})...)...)...)
	require.Equal(t, contract.Machine{
		InterruptCPUs:    contracttest.CPUs("0-1,3,6-7"),
		DeviceInterrupts: []contract.DeviceInterrupts{{Pattern: "eth0-*", CPUs: contracttest.CPUs("2")}},
		CPUs: []contract.CPUFiles{
			{CPUs: contracttest.CPUs("2,4-5"), Files: slow},
			{CPUs: contracttest.CPUs("6"), Files: map[string]string{contract.FileGovernor: "performance"}},
		},
		WorkQueueCPUs: contracttest.CPUs("0-2,4-7"),
	}, quiet.Machine(online, claims))
	require.Empty(t, quiet.Machine(online, holder("2-5", contract.Quiet{})), "nothing changes for claims that ask for nothing")
}

func FuzzRead(f *testing.F) {
	f.Add("disk,usb", "performance", "800000", "0-1")
	f.Fuzz(func(t *testing.T, actions, governors, khz, list string) {
		facts := quiet.Read(fstest.MapFS{
			"kernel/irq/24/actions": {Data: []byte(actions)},
			"devices/system/cpu/cpu0/cpufreq/scaling_available_governors": {Data: []byte(governors)},
			"devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq":            {Data: []byte(khz)},
			"devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq":            {Data: []byte(khz)},
			"devices/system/cpu/cpu0/cpufreq/affected_cpus":               {Data: []byte(list)},
		})
		err := quiet.Check(contract.Quiet{Device: "*"}, contracttest.CPUs("0"), nil, nil, facts)
		require.True(t, facts.Err != nil || err != nil || len(facts.Interrupts) > 0, "a device matches an interrupt or is refused")
		if facts.Err == nil {
			want, err := strconv.ParseInt(strings.TrimSpace(khz), 10, 64)
			require.NoError(t, err)
			require.Equal(t, want, facts.CPUs[0].Max)
			for _, l := range strings.Fields(list) {
				together, err := contract.ParseCPUs(l)
				require.NoError(t, err)
				require.True(t, together.IsSubsetOf(facts.CPUs[0].Clock))
			}
		}
	})
}

// refusing is a sysfs in which the kernel refuses to read a file.
type refusing struct {
	fs.FS
	file  string
	errno syscall.Errno
}

func (r refusing) ReadFile(name string) ([]byte, error) {
	if name == r.file {
		return nil, &fs.PathError{Op: "read", Path: name, Err: r.errno}
	}
	return fs.ReadFile(r.FS, name)
}
