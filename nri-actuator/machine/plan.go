// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Interrupt is an interrupt of the machine.
type Interrupt struct {
	Number int
	// Names are the names of its handlers. An interrupt without a handler never comes.
	Names []string
}

// name returns the interrupt for people.
func (i Interrupt) name() string {
	return strings.Join(append([]string{strconv.Itoa(i.Number)}, i.Names...), " ")
}

// file returns the file with the interrupt's CPUs.
func (i Interrupt) file() string { return irqDir + strconv.Itoa(i.Number) + affinityFile }

// Saved is what the actuator keeps about a file that it has written.
type Saved struct {
	// Former is the content that another program wrote before, Written the content that
	// this driver wrote last or has found, and Pending the content that it writes next: a
	// process that ends before or after the write leaves one of the two in the file.
	Former  string `json:"former"`
	Written string `json:"written"`
	Pending string `json:"pending,omitempty"`
	// Names are the names of the interrupt whose file it is: the number may become
	// another interrupt's.
	Names []string `json:"names,omitempty"`
}

// State is what the machine has: the contents of the files that exist, and its
// interrupts. Sets of CPUs are lists, in whatever form the kernel has them.
type State struct {
	Files      map[string]string
	Interrupts []Interrupt
	// Unlisted reports whether the interrupts are not known. What concerns them then stays.
	Unlisted bool
}

// Step is one write.
type Step struct {
	File, Content string
	// Feature is the feature that needs the file. CPUs are the CPUs that it is about, empty
	// for all CPUs.
	Feature string
	CPUs    contract.CPUSet
	// Wanted reports whether the node state wants the content.
	Wanted bool
	// GiveBack reports whether the content is the former value.
	GiveBack bool
	// Refusable reports whether a refusal by the kernel is no fault: the kernel moves some
	// interrupts itself.
	Refusable bool
}

// wish is what a file shall have, as a function of its former value.
type wish struct {
	Step
	content func(former string) string
}

// Plan returns the writes that give the machine what the node state wants, and its former
// values where the node state wants nothing. keep has what must be kept about each file
// before the first write.
func Plan(want contract.Machine, saved map[string]Saved, seen State) (steps []Step, keep map[string]Saved) {
	keep = make(map[string]Saved)
	wished := wishes(want, seen)
	owners := make(map[string][]string)
	standard, reduced := saved[defaultFile]
	files := slices.AppendSeq(slices.Collect(maps.Keys(saved)), maps.Keys(wished))
	for _, i := range seen.Interrupts {
		owners[i.file()] = i.Names
		if reduced {
			// It may have come with the reduced default.
			files = append(files, i.file())
		}
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		isInterrupt := strings.HasSuffix(file, affinityFile)
		content, exists := seen.Files[file]
		v, known := saved[file]
		_, listed := owners[file]
		unlisted := seen.Unlisted && strings.HasPrefix(file, irqDir)
		if !exists || unlisted {
			// Only an interrupt that is gone needs its former value no more (I4): the file of an
			// offline CPU comes back with the CPU, and a directory with its mount.
			if known && (!isInterrupt || listed || unlisted) {
				keep[file] = v
			}
			continue
		}
		v = recall(file, v, known, content, owners[file])
		if isNew := !known || !slices.Equal(saved[file].Names, owners[file]); isNew && isInterrupt && reduced && standard.Written == content {
			v.Former = standard.Former // the interrupt has come with the reduced default
		}
		w, wanted := wished[file]
		target := v.Former
		if wanted {
			target = w.content(v.Former)
		}
		step := w.Step
		step.File, step.Content = file, target
		if !wanted {
			step = Step{File: file, Content: target, Feature: featureOf(file)}
		}
		// While the default is reduced, every interrupt stays saved: only an interrupt that is not
		// saved can have come with the reduced default.
		step.GiveBack = target == v.Former && !(wanted && isInterrupt)
		if step.GiveBack && content == target && !(reduced && isInterrupt) {
			continue // nothing of this driver is left in the file
		}
		v.Written, v.Pending = content, ""
		if content != target {
			v.Pending = target
			steps = append(steps, step)
		}
		keep[file] = v
	}
	return steps, keep
}

// isFrequency reports whether the file is the least or the greatest frequency of a CPU. While the kernel limits a CPU, for
// heat or power, it shows the limit there without any write: such a content is no other program's.
func isFrequency(file string) bool {
	return strings.HasSuffix(file, "/"+contract.FileMinFrequency) || strings.HasSuffix(file, "/"+contract.FileMaxFrequency)
}

// recall returns what is kept about a file, from its content and what was kept before. A
// content that this driver did not write becomes the former value. An interrupt with other names and this
// driver's content keeps its former value: its device was renamed or is down, and its affinity stays. If this is
// the content of the reduced default too, it may be another interrupt with the number: Plan gives it the former default.
func recall(file string, v Saved, known bool, content string, names []string) Saved {
	if known && (v.Written == content || v.Pending == content || isFrequency(file)) {
		v.Names = names
		return v
	}
	return Saved{Former: content, Names: names}
}

// wishes returns what each file shall have.
func wishes(want contract.Machine, seen State) map[string]wish {
	all := make(map[string]wish)
	add := func(s Step, content func(string) string) {
		s.Wanted = true
		all[s.File] = wish{s, content}
	}
	if !want.InterruptCPUs.IsEmpty() {
		add(Step{File: defaultFile, Feature: contract.FeatureInterrupts}, within(want.InterruptCPUs))
		for _, i := range seen.Interrupts {
			s := Step{File: i.file(), Feature: contract.FeatureInterrupts, Refusable: true}
			cpus, claimed := deviceCPUs(want, i.Names)
			if !claimed {
				add(s, within(want.InterruptCPUs))
				continue
			}
			s.CPUs, s.Refusable = cpus, false
			add(s, always(cpus.String()))
		}
	}
	if !want.WorkQueueCPUs.IsEmpty() {
		add(Step{File: workQueueFile, Feature: contract.FeatureHousekeeping}, within(want.WorkQueueCPUs))
	}
	for _, group := range want.CPUs {
		for _, cpu := range group.CPUs.List() {
			for name, content := range group.Files {
				add(Step{
					File: cpuFile(cpu, name), Feature: contract.CPUFileFeature(name), CPUs: contract.CPUs(cpu),
				}, always(content))
			}
		}
	}
	return all
}

// deviceCPUs returns the CPUs that a claim wants for the interrupt with these names. claimed
// reports whether a claim wants it.
func deviceCPUs(want contract.Machine, names []string) (cpus contract.CPUSet, claimed bool) {
	for _, d := range want.DeviceInterrupts {
		if d.Match(names) {
			return d.CPUs, true
		}
	}
	return contract.CPUSet{}, false
}

func always(content string) func(string) string { return func(string) string { return content } }

// within returns the former CPUs without those that are not allowed, and the allowed CPUs
// if none would be left: an interrupt must have a CPU.
func within(allowed contract.CPUSet) func(string) string {
	return func(former string) string {
		cpus, err := contract.ParseCPUs(former)
		if left := cpus.Intersection(allowed); err == nil && !left.IsEmpty() {
			return left.String()
		}
		return allowed.String()
	}
}

// Fixed returns the interrupts that the kernel keeps on CPUs where they must not be: their
// names with these CPUs. effective has the CPUs on which the kernel has interrupts come, by
// their file.
func Fixed(want contract.Machine, seen State, effective map[string]string) map[string]string {
	if want.InterruptCPUs.IsEmpty() {
		return nil
	}
	fixed := make(map[string]string)
	for _, i := range seen.Interrupts {
		cpus, err := contract.ParseCPUs(effective[i.file()])
		if err != nil || len(i.Names) == 0 {
			continue
		}
		allowed, claimed := deviceCPUs(want, i.Names)
		if !claimed {
			allowed = want.InterruptCPUs
		}
		if quiet := cpus.Difference(allowed); !quiet.IsEmpty() {
			fixed[i.name()] = quiet.String()
		}
	}
	return fixed
}
