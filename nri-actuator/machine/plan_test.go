// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
)

const (
	defaultFile = "irq/default_smp_affinity"
	disk        = "irq/24/smp_affinity_list"
	net         = "irq/25/smp_affinity_list"
	latency     = "cpu/cpu2/power/pm_qos_resume_latency_us"
	workQueues  = "workqueue/cpumask"
)

// interrupts are a disk's, a network card's and one without a handler.
func interrupts() []machine.Interrupt {
	return []machine.Interrupt{{Number: 9}, {Number: 24, Names: []string{"disk"}}, {Number: 25, Names: []string{"eth0-rx-0"}}}
}

func offCPUs(allowed string) contract.Machine {
	return contract.Machine{InterruptCPUs: contracttest.CPUs(allowed)}
}

func TestPlan(t *testing.T) {
	files := func(change map[string]string) map[string]string {
		all := map[string]string{
			defaultFile: "0-3", "irq/9/smp_affinity_list": "0-3", disk: "0-3", net: "2", latency: "0", workQueues: "0-3",
		}
		maps.Copy(all, change)
		return all
	}
	diskSaved := machine.Saved{Former: "0-3", Written: "0-1", Names: []string{"disk"}}
	for name, c := range map[string]struct {
		want  contract.Machine
		saved map[string]machine.Saved
		files map[string]string
		steps []string
		keep  map[string]machine.Saved
	}{
		"nothing wanted, nothing saved": {files: files(nil)},
		"interrupts leave the CPUs, and one that has no other CPU gets all that are allowed": {
			want: offCPUs("0-1"), files: files(nil),
			steps: []string{disk + " = 0-1", net + " = 0-1", "irq/9/smp_affinity_list = 0-1", defaultFile + " = 0-1"},
			keep: map[string]machine.Saved{
				defaultFile:               {Former: "0-3", Written: "0-3", Pending: "0-1"},
				disk:                      {Former: "0-3", Written: "0-3", Pending: "0-1", Names: []string{"disk"}},
				"irq/9/smp_affinity_list": {Former: "0-3", Written: "0-3", Pending: "0-1"},
				net:                       {Former: "2", Written: "2", Pending: "0-1", Names: []string{"eth0-rx-0"}},
			},
		},
		"what is there already stays": {
			want: offCPUs("0-1"), files: map[string]string{disk: "0-1"}, saved: map[string]machine.Saved{disk: diskSaved},
			keep: map[string]machine.Saved{disk: diskSaved},
		},
		"an interrupt that is elsewhere stays, and is known": {
			want: offCPUs("0-1"), files: map[string]string{disk: "1"},
			keep: map[string]machine.Saved{disk: {Former: "1", Written: "1", Names: []string{"disk"}}},
		},
		"an interrupt that is known did not come with the reduced default": {
			files: map[string]string{defaultFile: "1", disk: "1"}, saved: map[string]machine.Saved{
				defaultFile: {Former: "0", Written: "1"}, disk: {Former: "1", Written: "1", Names: []string{"disk"}},
			},
			steps: []string{defaultFile + " = 0 (given back)"},
			keep: map[string]machine.Saved{
				defaultFile: {Former: "0", Written: "1", Pending: "0"},
				disk:        {Former: "1", Written: "1", Names: []string{"disk"}},
			},
		},
		"a larger set comes from the former value": {
			want: offCPUs("0-2"), files: map[string]string{disk: "0-1"}, saved: map[string]machine.Saved{disk: diskSaved},
			steps: []string{disk + " = 0-2"},
			keep:  map[string]machine.Saved{disk: {Former: "0-3", Written: "0-1", Pending: "0-2", Names: []string{"disk"}}},
		},
		"another program's value is a former value": {
			want: offCPUs("0-1"), files: map[string]string{disk: "1-2"}, saved: map[string]machine.Saved{disk: diskSaved},
			steps: []string{disk + " = 1"},
			keep:  map[string]machine.Saved{disk: {Former: "1-2", Written: "1-2", Pending: "1", Names: []string{"disk"}}},
		},
		"the former value is given back": {
			files: map[string]string{disk: "0-1"}, saved: map[string]machine.Saved{disk: diskSaved},
			steps: []string{disk + " = 0-3 (given back)"},
			keep:  map[string]machine.Saved{disk: {Former: "0-3", Written: "0-1", Pending: "0-3", Names: []string{"disk"}}},
		},
		"another program's value stays at the end": {
			files: map[string]string{disk: "1"}, saved: map[string]machine.Saved{disk: diskSaved},
		},
		"an interrupt that is gone is forgotten": {saved: map[string]machine.Saved{"irq/30/smp_affinity_list": {Former: "0-3", Written: "0-1"}}},
		"an interrupt that cannot be read is not forgotten": {
			saved: map[string]machine.Saved{disk: diskSaved}, keep: map[string]machine.Saved{disk: diskSaved},
		},
		"an interrupt whose device was renamed gets its former value": {
			files: map[string]string{net: "0-1"},
			saved: map[string]machine.Saved{net: {Former: "0-3", Written: "0-1", Names: []string{"eth7-rx-0"}}},
			steps: []string{net + " = 0-3 (given back)"},
			keep:  map[string]machine.Saved{net: {Former: "0-3", Written: "0-1", Pending: "0-3", Names: []string{"eth0-rx-0"}}},
		},
		"a claim's interrupt whose device was renamed gets its former value beside a reduced default": {
			files: map[string]string{defaultFile: "0-1", disk: "0-3", net: "3"},
			saved: map[string]machine.Saved{
				defaultFile: {Former: "0-3", Written: "0-1"}, net: {Former: "2", Written: "3", Names: []string{"eth7-rx-0"}},
			},
			steps: []string{net + " = 2 (given back)", defaultFile + " = 0-3 (given back)"},
			keep: map[string]machine.Saved{
				disk:        {Former: "0-3", Written: "0-3", Names: []string{"disk"}},
				net:         {Former: "2", Written: "3", Pending: "2", Names: []string{"eth0-rx-0"}},
				defaultFile: {Former: "0-3", Written: "0-1", Pending: "0-3"},
			},
		},
		"another interrupt with the number keeps what another program wrote": {
			files: map[string]string{net: "1"},
			saved: map[string]machine.Saved{net: {Former: "0-3", Written: "0-1", Names: []string{"usb"}}},
		},
		"an interrupt that came with the reduced default gets the former default": {
			files: map[string]string{defaultFile: "0-1", disk: "0-1"}, saved: map[string]machine.Saved{defaultFile: {Former: "0-3", Written: "0-1"}},
			steps: []string{disk + " = 0-3 (given back)", defaultFile + " = 0-3 (given back)"},
			keep: map[string]machine.Saved{
				disk:        {Former: "0-3", Written: "0-1", Pending: "0-3", Names: []string{"disk"}},
				defaultFile: {Former: "0-3", Written: "0-1", Pending: "0-3"},
			},
		},
		"a device's interrupts come to the claim": {
			want: contract.Machine{
				InterruptCPUs:    contracttest.CPUs("0-1"),
				DeviceInterrupts: []contract.DeviceInterrupts{{Pattern: "eth0-*", CPUs: contracttest.CPUs("3")}},
			},
			files: map[string]string{disk: "0-1", net: "0"}, steps: []string{net + " = 3"},
			keep: map[string]machine.Saved{
				disk: {Former: "0-1", Written: "0-1", Names: []string{"disk"}},
				net:  {Former: "0", Written: "0", Pending: "3", Names: []string{"eth0-rx-0"}},
			},
		},
		"files of CPUs": {
			want: contract.Machine{CPUs: []contract.CPUFiles{{
				CPUs: contracttest.CPUs("2"), Files: map[string]string{contract.FileWakeupLatency: contract.NoWakeupLatency},
			}}},
			files: files(nil), steps: []string{latency + " = n/a"},
			keep: map[string]machine.Saved{latency: {Former: "0", Written: "0", Pending: "n/a"}},
		},
		"a CPU that does not exist": {
			want: contract.Machine{CPUs: []contract.CPUFiles{{
				CPUs: contracttest.CPUs("7"), Files: map[string]string{contract.FileWakeupLatency: contract.NoWakeupLatency},
			}}},
			files: files(nil),
		},
		"work queues": {
			want: contract.Machine{WorkQueueCPUs: contracttest.CPUs("0,3")}, files: files(nil), steps: []string{workQueues + " = 0,3"},
			keep: map[string]machine.Saved{workQueues: {Former: "0-3", Written: "0-3", Pending: "0,3"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, keep := machine.Plan(c.want, c.saved, machine.State{Files: c.files, Interrupts: interrupts()})
			require.Equal(t, c.steps, text(steps))
			if c.keep == nil {
				c.keep = map[string]machine.Saved{}
			}
			require.Equal(t, c.keep, keep)
		})
	}
}

func text(steps []machine.Step) []string {
	var all []string
	for _, s := range steps {
		line := s.File + " = " + s.Content
		if s.GiveBack {
			line += " (given back)"
		}
		all = append(all, line)
	}
	return all
}

func TestFixed(t *testing.T) {
	want := offCPUs("0-1")
	want.DeviceInterrupts = []contract.DeviceInterrupts{{Pattern: "eth0-*", CPUs: contracttest.CPUs("3")}}
	seen := machine.State{Interrupts: interrupts()}
	effective := map[string]string{"irq/9/smp_affinity_list": "3", disk: "1-2", net: "3"}
	require.Equal(t, map[string]string{"24 disk": "2"}, machine.Fixed(want, seen, effective), "without a handler none comes")
	effective[net] = "2"
	require.Equal(t, map[string]string{"24 disk": "2", "25 eth0-rx-0": "2"}, machine.Fixed(want, seen, effective))
	require.Empty(t, machine.Fixed(contract.Machine{}, seen, effective))
}

// kernel is a machine of files, some of which another program writes or the kernel refuses.
type kernel struct {
	files   map[string]string
	refuses map[string]bool
	saved   map[string]machine.Saved
}

// apply follows a plan, and stops after some writes, as a process that is killed.
func (k *kernel) apply(want contract.Machine, stop int) {
	steps, keep := machine.Plan(want, k.saved, machine.State{Files: k.files, Interrupts: interrupts()})
	k.saved = keep
	after := maps.Clone(keep)
	for n, s := range steps {
		if n == stop {
			return
		}
		if k.refuses[s.File] {
			continue
		}
		k.files[s.File] = s.Content
		v := keep[s.File]
		v.Written, v.Pending = s.Content, ""
		after[s.File] = v
		if s.GiveBack {
			delete(after, s.File)
		}
	}
	k.saved = after
}

// TestEverythingIsGivenBack checks that no order of claims, crashes and refusals loses a
// former value (I3), and that no interrupt which can be moved is on a quiet CPU (I5).
func TestEverythingIsGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := func(label string) string {
			return contract.CPUs(rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 1, 4, rapid.ID[int]).Draw(t, label)...).String()
		}
		k := &kernel{files: map[string]string{latency: "0", workQueues: "0-3"}, refuses: make(map[string]bool)}
		for _, file := range []string{defaultFile, "irq/9/smp_affinity_list", disk, net} {
			k.files[file] = cpus("former " + file)
			k.refuses[file] = file != defaultFile && rapid.IntRange(0, 4).Draw(t, "refuses "+file) == 0
		}
		before := maps.Clone(k.files)
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			var want contract.Machine
			if rapid.Bool().Draw(t, "interrupts") {
				want.InterruptCPUs = contracttest.CPUs(cpus("allowed"))
				if rapid.Bool().Draw(t, "device") {
					want.DeviceInterrupts = []contract.DeviceInterrupts{{Pattern: "eth0-*", CPUs: contracttest.CPUs(cpus("device CPUs"))}}
				}
			}
			if rapid.Bool().Draw(t, "latency") {
				want.CPUs = []contract.CPUFiles{{CPUs: contract.CPUs(2), Files: map[string]string{contract.FileWakeupLatency: "20"}}}
			}
			if rapid.Bool().Draw(t, "work queues") {
				want.WorkQueueCPUs = contracttest.CPUs(cpus("work queue CPUs"))
			}
			if stop := rapid.IntRange(0, 5).Draw(t, "writes before the crash"); stop < 5 {
				k.apply(want, stop)
			}
			k.apply(want, -1)
			for _, file := range []string{disk, "irq/9/smp_affinity_list"} {
				is := contracttest.CPUs(k.files[file])
				if !want.InterruptCPUs.IsEmpty() && !k.refuses[file] && !is.IsSubsetOf(want.InterruptCPUs) {
					t.Fatalf("%s is %s, allowed are %s", file, is, want.InterruptCPUs)
				}
			}
			steps, _ := machine.Plan(want, k.saved, machine.State{Files: k.files, Interrupts: interrupts()})
			steps = slices.DeleteFunc(steps, func(s machine.Step) bool { return k.refuses[s.File] })
			if len(steps) > 0 {
				t.Fatalf("not stable: %s", fmt.Sprint(text(steps)))
			}
		}
		k.apply(contract.Machine{}, -1)
		k.apply(contract.Machine{}, -1) // an interrupt is known until the default is back
		require.Equal(t, before, k.files)
		require.Empty(t, k.saved)
	})
}
