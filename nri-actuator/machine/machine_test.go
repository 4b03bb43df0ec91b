// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
)

// host is a machine in plain files, as the kernel has them.
type host struct {
	t    *testing.T
	dirs machine.Dirs
	cdi  string
}

func newHost(t *testing.T) host {
	dir := t.TempDir()
	h := host{t: t, dirs: machine.Dirs{IRQ: dir + "/irq", CPU: dir + "/cpu", WorkQueue: dir + "/workqueue"}, cdi: dir + "/cdi"}
	require.NoError(t, os.Mkdir(h.cdi, 0o700))
	h.write("irq/default_smp_affinity", "f")
	h.write("irq/9/smp_affinity_list", "0-3")
	h.write("irq/24/smp_affinity_list", "0-3")
	h.write("irq/24/effective_affinity_list", "2")
	h.write("irq/24/disk/state", "")
	h.write("cpu/cpu0/power/pm_qos_resume_latency_us", "0")
	h.write("cpu/cpu2/power/pm_qos_resume_latency_us", "0")
	h.write("workqueue/cpumask", "f")
	return h
}

func (h host) path(name string) string {
	top, rest, _ := strings.Cut(name, "/")
	return filepath.Join(map[string]string{"irq": h.dirs.IRQ, "cpu": h.dirs.CPU, "workqueue": h.dirs.WorkQueue, "cdi": h.cdi}[top], rest)
}

func (h host) write(name, content string) {
	require.NoError(h.t, os.MkdirAll(filepath.Dir(h.path(name)), 0o755))
	require.NoError(h.t, os.WriteFile(h.path(name), []byte(content+"\n"), 0o644))
}

func (h host) read(name string) string {
	data, err := os.ReadFile(h.path(name))
	require.NoError(h.t, err)
	return strings.TrimSpace(string(data))
}

// start starts an actuator of the boot.
func (h host) start(boot string) *machine.Host { return machine.New(h.dirs, cdidir.At(h.cdi), boot) }

func quietCPU2() contract.Machine {
	return contract.Machine{
		InterruptCPUs: contracttest.CPUs("0-1,3"), WorkQueueCPUs: contracttest.CPUs("0-1,3"),
		CPUs: []contract.CPUFiles{{CPUs: contracttest.CPUs("2"), Files: map[string]string{contract.FileWakeupLatency: "20"}}},
	}
}

// A83: values are written, and former values given back.
func TestApplyAndGiveBack(t *testing.T) {
	h := newHost(t)
	require.Equal(t, []string{contract.FeatureInterrupts, contract.FeatureHousekeeping, contract.FeatureWakeupLatency},
		h.start("boot").Features(), "this machine has no frequencies")
	r := h.start("boot").Apply(quietCPU2())
	require.Empty(t, r.Faults)
	require.Empty(t, r.Fixed, "the interrupt moves when it comes the next time")
	require.Equal(t, "0000000b", h.read("irq/default_smp_affinity"))
	require.Equal(t, "0-1,3", h.read("irq/24/smp_affinity_list"))
	require.Equal(t, "20", h.read("cpu/cpu2/power/pm_qos_resume_latency_us"))
	require.Equal(t, "0", h.read("cpu/cpu0/power/pm_qos_resume_latency_us"))
	require.Equal(t, "0000000b", h.read("workqueue/cpumask"))

	// An actuator that is started again knows the former values (I4).
	require.Empty(t, h.start("boot").Apply(quietCPU2()).Faults)
	r = h.start("boot").Apply(contract.Machine{})
	require.Empty(t, r.Faults)
	require.Empty(t, r.Fixed)
	require.Equal(t, "0000000f", h.read("irq/default_smp_affinity"))
	require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
	require.Equal(t, "0", h.read("cpu/cpu2/power/pm_qos_resume_latency_us"))
	require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
}

// Linux 6.9 and later show the work queues' CPUs without isolated CPUs: what another
// program asked for is the former value.
func TestRequestedWorkQueues(t *testing.T) {
	h := newHost(t)
	h.write("workqueue/cpumask", "7") // CPU 3 is isolated
	h.write("workqueue/cpumask_requested", "f")
	content, err := h.dirs.Read("workqueue/cpumask")
	require.NoError(t, err)
	require.Equal(t, "0-3", content)
}

func TestMasks(t *testing.T) {
	for list, mask := range map[string]string{
		"0-3": "0000000f", "": "00000000", "31-32": "00000001,80000000", "0,64": "00000001,00000000,00000001",
	} {
		h := newHost(t)
		require.NoError(t, h.dirs.Write("workqueue/cpumask", list))
		require.Equal(t, mask, h.read("workqueue/cpumask"))
		content, err := h.dirs.Read("workqueue/cpumask")
		require.NoError(t, err)
		require.Equal(t, list, content)
	}
	h := newHost(t)
	h.write("irq/default_smp_affinity", "xyz")
	_, err := h.dirs.Read("irq/default_smp_affinity")
	require.ErrorContains(t, err, `CPU mask "xyz"`)
	_, err = h.dirs.Read("irq/../cpu/cpu0/power/pm_qos_resume_latency_us")
	require.Error(t, err, "no path leaves its directory")
}

func TestApplyWithoutDirectories(t *testing.T) {
	h := newHost(t)
	h.dirs = machine.Dirs{}
	bare := h.start("boot")
	require.Empty(t, bare.Features())
	require.Empty(t, bare.Apply(contract.Machine{}))
	r := bare.Apply(quietCPU2())
	require.Empty(t, r.Fixed)
	require.Len(t, r.Faults, 4)
	require.EqualError(t, r.Faults[0].Err, "interrupts: directory of interrupts: file does not exist")
	require.EqualError(t, r.Faults[1].Err, "read cpu/cpu2/power/pm_qos_resume_latency_us: "+
		"cpu/cpu2/power/pm_qos_resume_latency_us: file does not exist")
	require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
}

// What cannot be read for a while is given back when it can be read again (I3, I4): the files
// of an offline CPU, a directory that is not mounted, the list of interrupts.
func TestFormerValuesOutliveAbsence(t *testing.T) {
	for name, absent := range map[string]func(h *host) (back func()){
		"a CPU is offline": func(h *host) func() {
			content := h.read("cpu/cpu2/power/pm_qos_resume_latency_us")
			require.NoError(t, os.Remove(h.path("cpu/cpu2/power/pm_qos_resume_latency_us")))
			return func() { h.write("cpu/cpu2/power/pm_qos_resume_latency_us", content) }
		},
		"the directories are not mounted": func(h *host) func() {
			dirs := h.dirs
			h.dirs = machine.Dirs{}
			return func() { h.dirs = dirs }
		},
		"the interrupts cannot be listed": func(h *host) func() {
			dir := h.dirs.IRQ
			require.NoError(t, os.Rename(dir, dir+"-away"))
			return func() { require.NoError(t, os.Rename(dir+"-away", dir)) }
		},
		"an interrupt cannot be read": func(h *host) func() {
			content := h.read("irq/24/smp_affinity_list")
			require.NoError(t, os.Remove(h.path("irq/24/smp_affinity_list")))
			return func() { h.write("irq/24/smp_affinity_list", content) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			require.Empty(t, h.start("boot").Apply(quietCPU2()).Faults)
			back := absent(&h)
			for _, want := range []contract.Machine{quietCPU2(), {}} {
				h.start("boot").Apply(want)
			}
			back()
			require.Empty(t, h.start("boot").Apply(contract.Machine{}).Faults)
			require.Equal(t, "0000000f", h.read("irq/default_smp_affinity"))
			require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
			require.Equal(t, "0", h.read("cpu/cpu2/power/pm_qos_resume_latency_us"))
			require.Equal(t, "0000000f", h.read("workqueue/cpumask"))
			require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
		})
	}
}

// unreadable is a directory that cannot be read for a while.
type unreadable struct{ cdidir.Dir }

func (unreadable) Read(string) ([]byte, error) { return nil, syscall.EIO }

// Nothing is written while the saved values are not known: a value of this driver would
// become the former value (I4).
func TestSavedValuesCannotBeRead(t *testing.T) {
	h := newHost(t)
	require.Empty(t, h.start("boot").Apply(quietCPU2()).Faults)
	less := quietCPU2()
	less.InterruptCPUs = contracttest.CPUs("0")
	r := machine.New(h.dirs, unreadable{cdidir.At(h.cdi)}, "boot").Apply(less)
	require.Len(t, r.Faults, len(contract.MachineFeatures()))
	require.ErrorIs(t, r.Faults[0].Err, syscall.EIO)
	require.Equal(t, "0-1,3", h.read("irq/24/smp_affinity_list"))
	require.Empty(t, h.start("boot").Apply(contract.Machine{}).Faults)
	require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
	require.Equal(t, "0", h.read("cpu/cpu2/power/pm_qos_resume_latency_us"))
}

// refusing is a machine whose kernel refuses to write some files.
type refusing struct {
	machine.Dirs
	files map[string]bool
	// clamps has the content that a file has whatever is written.
	clamps map[string]string
}

func (r refusing) Write(file, content string) error {
	if r.files[file] {
		return syscall.EIO
	}
	return r.Dirs.Write(file, cmp.Or(r.clamps[file], content))
}

// A feature is what the actuator can write: a file that it can only read is none.
func TestReadOnlyFeature(t *testing.T) {
	h := newHost(t)
	files := refusing{Dirs: h.dirs, files: map[string]bool{workQueues: true}}
	require.NotContains(t, machine.New(files, cdidir.At(h.cdi), "boot").Features(), contract.FeatureHousekeeping)
	require.Contains(t, machine.New(files, cdidir.At(h.cdi), "boot").Features(), contract.FeatureInterrupts)
}

func TestFaults(t *testing.T) {
	device := quietCPU2()
	device.DeviceInterrupts = []contract.DeviceInterrupts{{Pattern: "disk", CPUs: contracttest.CPUs("2")}}
	for name, c := range map[string]struct {
		want    contract.Machine
		refuses string
		clamp   string
		fixed   string
		feature string
		fault   string
	}{
		"an interrupt that the kernel moves itself": {want: quietCPU2(), refuses: disk, fixed: "2"},
		"a device's interrupt that does not come": {
			want: device, refuses: disk, feature: contract.FeatureInterrupts,
			fault: `write "2" to irq/24/smp_affinity_list: input/output error`,
		},
		"a latency that is refused": {
			want: quietCPU2(), refuses: latency, feature: contract.FeatureWakeupLatency,
			fault: `write "20" to ` + latency + `: input/output error`,
		},
		"a latency that the kernel changes": {
			want: quietCPU2(), refuses: latency, clamp: "30", feature: contract.FeatureWakeupLatency,
			fault: latency + `: the kernel makes "30" of "20"`,
		},
		"an interrupt that the kernel changes": {want: quietCPU2(), refuses: disk, clamp: "0-2", fixed: "2"},
		"work queues": {
			want: quietCPU2(), refuses: workQueues, feature: contract.FeatureHousekeeping,
			fault: `write "0-1,3" to workqueue/cpumask: input/output error`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			files := refusing{Dirs: h.dirs, files: map[string]bool{}, clamps: map[string]string{}}
			actuator := machine.New(files, cdidir.At(h.cdi), "boot")
			files.files[c.refuses] = c.clamp == ""
			if c.clamp != "" {
				files.clamps[c.refuses] = c.clamp
			}
			var want map[string]string
			if c.fixed != "" {
				want = map[string]string{"24 disk": c.fixed}
			}
			for range 2 {
				r := actuator.Apply(c.want)
				require.Equal(t, want, nonEmpty(r.Fixed))
				if c.fault == "" {
					require.Empty(t, r.Faults)
					continue
				}
				require.Len(t, r.Faults, 1)
				require.Equal(t, c.feature, r.Faults[0].Feature)
				require.EqualError(t, r.Faults[0].Err, c.fault)
			}
			delete(files.files, c.refuses)
			delete(files.clamps, c.refuses)
			require.Empty(t, actuator.Apply(contract.Machine{}).Faults)
			require.Equal(t, "0", h.read("cpu/cpu2/power/pm_qos_resume_latency_us"))
			require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
			require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
		})
	}
}

func nonEmpty(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

func TestFaultConcerns(t *testing.T) {
	claim := contract.Decision{CPUs: contracttest.CPUs("2-3"), Requires: []string{contract.FeatureWakeupLatency}}
	for name, c := range map[string]struct {
		fault machine.Fault
		want  bool
	}{
		"its CPU":         {machine.Fault{Feature: contract.FeatureWakeupLatency, CPUs: contracttest.CPUs("3")}, true},
		"all CPUs":        {machine.Fault{Feature: contract.FeatureWakeupLatency}, true},
		"another CPU":     {machine.Fault{Feature: contract.FeatureWakeupLatency, CPUs: contracttest.CPUs("4")}, false},
		"another feature": {machine.Fault{Feature: contract.FeatureInterrupts}, false},
	} {
		require.Equal(t, c.want, c.fault.Concerns(claim), name)
	}
}

func TestSavedFile(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		fault   string
	}{
		"of another boot": {content: `{"bootID":"earlier","files":{"irq/24/smp_affinity_list":{"former":"0-3","written":"0"}}}`},
		"no JSON":         {content: "{", fault: "is removed, its former values are not given back"},
		"several lines": {
			content: `{"bootID":"boot","files":{"workqueue/cpumask":{"former":"0\n1","written":"1"}}}`, fault: "is none of this driver's",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("cdi/"+machine.SavedFile, c.content)
			r := h.start("boot").Apply(contract.Machine{})
			require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
			if c.fault == "" {
				require.Empty(t, r.Faults)
			} else {
				require.Len(t, r.Faults, len(contract.MachineFeatures()))
				require.ErrorContains(t, r.Faults[0].Err, c.fault)
			}
			require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
		})
	}
}

// A file of another version of the actuator stays saved as it is, and is neither read nor written. What this version knows is given back.
func TestSavedByAnotherVersion(t *testing.T) {
	foreign := map[string]string{
		"cpu/cpu2/online": `{"former":"1","written":"0","later":[1]}`, "irq/../24/smp_affinity_list": `{"former":"0","written":"1"}`,
	}
	h := newHost(t)
	h.write("cpu/cpu2/online", "0")
	require.Empty(t, h.start("boot").Apply(quietCPU2()).Faults)
	var content struct {
		BootID string                     `json:"bootID"`
		Files  map[string]json.RawMessage `json:"files"`
	}
	require.NoError(t, json.Unmarshal([]byte(h.read("cdi/"+machine.SavedFile)), &content))
	for name, saved := range foreign {
		content.Files[name] = json.RawMessage(saved)
	}
	data, err := json.Marshal(content)
	require.NoError(t, err)
	h.write("cdi/"+machine.SavedFile, string(data))
	require.Empty(t, h.start("boot").Apply(contract.Machine{}).Faults)
	require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
	require.Equal(t, "0", h.read("cpu/cpu2/online"))
	content.Files = nil
	require.NoError(t, json.Unmarshal([]byte(h.read("cdi/"+machine.SavedFile)), &content))
	require.Len(t, content.Files, len(foreign))
	for name, saved := range foreign {
		require.JSONEq(t, saved, string(content.Files[name]))
	}
}

// many is a machine with so many interrupts that their former values do not fit into a file that can be read again.
type many struct{ refusing }

func (many) Interrupts() ([]machine.Interrupt, error) {
	all := make([]machine.Interrupt, 3000)
	for n := range all {
		all[n] = machine.Interrupt{Number: n, Names: []string{"nvme"}}
	}
	return all, nil
}

func (m many) Read(file string) (string, error) {
	if strings.HasPrefix(file, "irq/") && strings.HasSuffix(file, "_list") {
		return "3" + strings.Repeat(",5", 1000), nil
	}
	return m.refusing.Read(file)
}

func (many) Write(string, string) error { return errors.New("nothing may be written") }

// What could not be given back is not written.
func TestTooManyFormerValues(t *testing.T) {
	h := newHost(t)
	r := machine.New(many{refusing{Dirs: h.dirs}}, cdidir.At(h.cdi), "boot").Apply(quietCPU2())
	require.Len(t, r.Faults, len(contract.MachineFeatures()))
	require.ErrorContains(t, r.Faults[0].Err, "former values of 3")
	require.ErrorContains(t, r.Faults[0].Err, "may have 4194304")
	require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
}

// A write is never taken without its former value.
func TestSaveFails(t *testing.T) {
	h := newHost(t)
	actuator := h.start("boot")
	require.NoError(t, os.RemoveAll(h.cdi))
	r := actuator.Apply(quietCPU2())
	require.Len(t, r.Faults, len(contract.MachineFeatures()))
	require.Equal(t, "0-3", h.read("irq/24/smp_affinity_list"))
	require.Equal(t, "0", h.read("cpu/cpu2/power/pm_qos_resume_latency_us"))
}

func FuzzSaved(f *testing.F) {
	f.Add(`{"bootID":"boot","files":{"irq/24/smp_affinity_list":{"former":"0-3","written":"0"}}}`)
	f.Add(`{"bootID":"boot","files":{"cpu/cpu2/../../x":{"former":"0","written":"0"}}}`)
	f.Fuzz(func(t *testing.T, content string) {
		dir := t.TempDir()
		outside := filepath.Join(dir, "outside")
		require.NoError(t, os.WriteFile(outside, []byte("kept"), 0o644))
		cdi := filepath.Join(dir, "cdi")
		require.NoError(t, os.Mkdir(cdi, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(cdi, machine.SavedFile), []byte(content), 0o600))
		for _, top := range []string{"irq", "cpu", "workqueue"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, top), 0o755))
		}
		dirs := machine.Dirs{IRQ: dir + "/irq", CPU: dir + "/cpu", WorkQueue: dir + "/workqueue"}
		machine.New(dirs, cdidir.At(cdi), "boot").Apply(contract.Machine{})
		data, err := os.ReadFile(outside)
		require.NoError(t, err)
		require.Equal(t, "kept", string(data))
		if data, err := os.ReadFile(filepath.Join(cdi, machine.SavedFile)); err == nil {
			require.True(t, json.Valid(data))
		}
	})
}

// capped is a machine whose kernel limits the frequency of CPU 2: whatever is written, the file shows no more than the limit.
type capped struct {
	machine.Dirs
	limit *string
}

func (c capped) Read(file string) (string, error) {
	content, err := c.Dirs.Read(file)
	if file == maxFrequency && *c.limit != "" && content > *c.limit {
		content = *c.limit
	}
	return content, err
}

const maxFrequency = "cpu/cpu2/" + contract.FileMaxFrequency

// I4: a limit of the kernel is no other program's value. The former value comes back, whether the claim ends before or after the limit.
func TestFrequencyThatTheKernelLimits(t *testing.T) {
	for name, endsLimited := range map[string]bool{"the limit ends first": false, "the claim ends first": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write(maxFrequency, "3500000")
			limit := ""
			actuator := machine.New(capped{h.dirs, &limit}, cdidir.At(h.cdi), "boot")
			want := contract.Machine{CPUs: []contract.CPUFiles{{
				CPUs: contracttest.CPUs("2"), Files: map[string]string{contract.FileMaxFrequency: "3000000"},
			}}}
			require.Empty(t, actuator.Apply(want).Faults)
			limit = "2500000"
			require.Len(t, actuator.Apply(want).Faults, 1)
			if endsLimited {
				faults := actuator.Apply(contract.Machine{}).Faults
				require.Len(t, faults, 1)
				require.False(t, faults[0].Concerns(contract.Decision{
					CPUs: contracttest.CPUs("2"), Requires: []string{contract.FeatureFrequency},
				}), "no claim lacks a former value")
				limit = ""
			} else {
				limit = ""
				require.Empty(t, actuator.Apply(want).Faults)
			}
			require.Empty(t, actuator.Apply(contract.Machine{}).Faults)
			require.Equal(t, "3500000", h.read(maxFrequency))
			require.NoFileExists(t, h.path("cdi/"+machine.SavedFile))
		})
	}
}

// The files of an offline CPU cannot be read. The claim's other CPUs are enough, and the value comes with the CPU.
func TestOfflineCPU(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.Remove(h.path(latency)))
	require.Len(t, h.start("boot").Apply(quietCPU2()).Faults, 1)
	h.write("cpu/cpu2/online", "0")
	require.Empty(t, h.start("boot").Apply(quietCPU2()).Faults)
	h.write("cpu/cpu2/online", "1")
	require.Len(t, h.start("boot").Apply(quietCPU2()).Faults, 1)
	h.write(latency, "0")
	require.Empty(t, h.start("boot").Apply(quietCPU2()).Faults)
	require.Equal(t, "20", h.read(latency))
}
