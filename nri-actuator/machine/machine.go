// SPDX-License-Identifier: Apache-2.0

// Package machine writes the node state's values that no cgroup has: the CPUs of
// interrupts and of unbound work queues, and the files of CPUs. [Plan] is the rule, a
// function from values to values; [Host] reads, saves and writes. Package enforce calls it
// before a container with such a claim is created, and whenever the node state changes.
//
// The kernel keeps no former values of these files, and they have no attributes for marks.
// So the former values are in a file of their own in the CDI directory, written before the
// first write of the kernel's file (I4). Like the values, the file ends with the boot.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// SavedFile is the file of the former values in the CDI directory. Runtimes look only at
// files with the name of a format at the end.
const SavedFile = contract.Vendor + "-former-values"

// Files are the kernel's files. A file's name begins with irq/, cpu/ or workqueue/. Sets of
// CPUs are lists.
type Files interface {
	Interrupts() ([]Interrupt, error)
	Read(file string) (string, error)
	Write(file, content string) error
}

// Store keeps the former values. A write is durable.
type Store interface {
	Read(name string) ([]byte, error)
	Write(name string, data []byte) error
	Remove(name string) error
}

// Host is the machine with the values of this driver.
type Host struct {
	files    Files
	store    Store
	bootID   string
	features []string
}

// New returns the host whose former values are in the store. It finds out which features
// the machine has.
func New(files Files, store Store, bootID string) *Host {
	return &Host{files: files, store: store, bootID: bootID, features: probe(files)}
}

// Features returns the machine features whose files can be written.
func (h *Host) Features() []string { return slices.Clone(h.features) }

// probe writes a file of each feature with the content that it has.
func probe(files Files) []string {
	return slices.DeleteFunc(contract.MachineFeatures(), func(feature string) bool {
		file := map[string]string{
			contract.FeatureInterrupts:    defaultFile,
			contract.FeatureHousekeeping:  workQueueFile,
			contract.FeatureWakeupLatency: cpuFile(0, contract.FileWakeupLatency),
			contract.FeatureFrequency:     cpuFile(0, contract.FileGovernor),
		}[feature]
		content, err := files.Read(file)
		return err != nil || files.Write(file, content) != nil
	})
}

// Fault is a value that could not be written.
type Fault struct {
	Feature string
	// CPUs are the CPUs that the value is about, empty for all CPUs.
	CPUs contract.CPUSet
	// Former reports whether the value is a former one: no container lacks it.
	Former bool
	Err    error
}

// Concerns reports whether a container with the decision lacks the value.
func (f Fault) Concerns(d contract.Decision) bool {
	return !f.Former && slices.Contains(d.Requires, f.Feature) && (f.CPUs.IsEmpty() || f.CPUs.Overlaps(d.CPUs))
}

// Result is what the kernel has made of the values.
type Result struct {
	// Fixed are interrupts that the kernel keeps where they must not be: number and names
	// to the CPUs.
	Fixed  map[string]string
	Faults []Fault
}

// record is the content of the file of former values.
type record struct {
	BootID string                     `json:"bootID"`
	Files  map[string]json.RawMessage `json:"files"`
}

// kept is what is saved in this boot. foreign are the files of another version of the actuator, which stay saved as they are: that
// version may come back.
type kept struct {
	own     map[string]Saved
	foreign map[string]json.RawMessage
}

// maxRounds bounds the rounds of Apply. A write can change other files: CPUs may share a
// clock, and a value that is given back to one CPU may change another CPU's.
const maxRounds = 3

// Apply gives the machine the values. Without values it gives former values back, and does
// nothing if there are none.
func (h *Host) Apply(want contract.Machine) (r Result) {
	before, err := h.load()
	saved := before.own
	if err != nil {
		// Without the former values that are saved, a content of this driver would look like
		// another program's (I4).
		r.add("", err)
		return r
	}
	if reflect.ValueOf(want).IsZero() && len(saved) == 0 {
		return r
	}
	for range maxRounds {
		r = Result{}
		seen := h.read(want, saved, &r)
		steps, keep := Plan(want, saved, seen)
		if err := h.save(saved, keep, before.foreign); err != nil {
			// Without its former value a file must not be written.
			r.add("", err)
			return r
		}
		after, written := h.take(steps, keep, &r)
		if err := h.save(keep, after, before.foreign); err != nil {
			r.add("", err)
		}
		saved = after
		r.Fixed = Fixed(want, seen, h.effective(want, seen))
		if !written {
			break
		}
	}
	return r
}

// take takes the steps. It returns what must be kept afterwards, and reports whether it has
// written anything.
func (h *Host) take(steps []Step, keep map[string]Saved, r *Result) (after map[string]Saved, written bool) {
	after = maps.Clone(keep)
	for _, step := range steps {
		got := step.Content
		err := h.files.Write(step.File, step.Content)
		if err == nil {
			written = true
			got, err = h.files.Read(step.File)
		}
		if v := keep[step.File]; err == nil {
			v.Written, v.Pending = got, ""
			after[step.File] = v
		}
		fault := Fault{Feature: step.Feature, CPUs: step.CPUs, Former: !step.Wanted}
		switch {
		case err == nil && got != step.Content && step.Refusable:
		case err == nil && got != step.Content:
			fault.Err = fmt.Errorf("%s: the kernel makes %q of %q", step.File, got, step.Content)
		case err == nil && step.GiveBack:
			delete(after, step.File)
		case err == nil, errors.Is(err, fs.ErrNotExist), step.Refusable:
		default:
			fault.Err = fmt.Errorf("write %q to %s: %w", step.Content, step.File, err)
		}
		if fault.Err != nil {
			r.Faults = append(r.Faults, fault)
		}
	}
	return after, written
}

// add adds a fault about all CPUs, of a feature or of all features.
func (r *Result) add(feature string, err error) {
	for _, f := range contract.MachineFeatures() {
		if feature == "" || f == feature {
			r.Faults = append(r.Faults, Fault{Feature: f, Err: err})
		}
	}
}

// load returns what is saved in this boot.
func (h *Host) load() (kept, error) {
	data, err := h.store.Read(SavedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, nil
	}
	if err != nil {
		return kept{}, err
	}
	bootID, saved, err := decode(data)
	if err != nil {
		err = fmt.Errorf("%s is removed, its former values are not given back: %w", SavedFile, err)
		return kept{}, errors.Join(err, h.store.Remove(SavedFile))
	}
	if bootID != h.bootID {
		// The boot has given all former values back.
		return kept{}, h.store.Remove(SavedFile)
	}
	return saved, nil
}

// decode reads the file of former values.
func decode(data []byte) (bootID string, saved kept, err error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return "", kept{}, err
	}
	saved = kept{own: make(map[string]Saved), foreign: make(map[string]json.RawMessage)}
	for name, raw := range r.Files {
		if featureOf(name) == "" {
			saved.foreign[name] = raw
			continue
		}
		var v Saved
		if err := json.Unmarshal(raw, &v); err != nil {
			return "", kept{}, fmt.Errorf("%s: %w", name, err)
		}
		if strings.ContainsAny(v.Former+v.Written+v.Pending, "\n\x00") {
			return "", kept{}, fmt.Errorf("%s with %q is none of this driver's contents", name, contract.Excerpt(v.Former, 100))
		}
		saved.own[name] = v
	}
	return r.BootID, saved, nil
}

// save replaces what is saved, if it differs.
func (h *Host) save(before, after map[string]Saved, foreign map[string]json.RawMessage) error {
	switch {
	case len(after) == 0 && len(before) == 0, reflect.DeepEqual(before, after):
		return nil
	case len(after) == 0 && len(foreign) == 0:
		return h.store.Remove(SavedFile)
	}
	files := make(map[string]json.RawMessage, len(after)+len(foreign))
	maps.Copy(files, foreign)
	for name, v := range after {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		files[name] = raw
	}
	data, err := json.Marshal(record{BootID: h.bootID, Files: files})
	if err != nil {
		return err
	}
	// A file that load cannot read would keep the former values from being given back (I4).
	if len(data) > contract.MaxFileSize {
		return fmt.Errorf("the former values of %d files are %d bytes, and %s may have %d: ask for quiet CPUs in fewer and larger claims",
			len(after), len(data), SavedFile, contract.MaxFileSize)
	}
	return h.store.Write(SavedFile, data)
}

// read reads the files that the values or saved files are about. A file that cannot be read
// counts as absent, so that it is not written; it is a fault if a value is for it.
func (h *Host) read(want contract.Machine, saved map[string]Saved, r *Result) State {
	seen := State{Files: make(map[string]string)}
	hasInterrupts := func(file string) bool { return strings.HasPrefix(file, irqDir) }
	if !want.InterruptCPUs.IsEmpty() || slices.ContainsFunc(slices.Collect(maps.Keys(saved)), hasInterrupts) {
		var err error
		if seen.Interrupts, err = h.files.Interrupts(); err != nil {
			seen.Unlisted = true
			r.add(contract.FeatureInterrupts, fmt.Errorf("interrupts: %w", err))
		}
	}
	wished := wishes(want, seen)
	files := slices.AppendSeq(slices.Collect(maps.Keys(saved)), maps.Keys(wished))
	for _, i := range seen.Interrupts {
		files = append(files, i.file())
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		content, err := h.files.Read(file)
		if err == nil {
			seen.Files[file] = content
			continue
		}
		// An interrupt may be gone. A CPU that is offline gets its values when it is back, and meanwhile its claim's containers run
		// on the claim's other CPUs.
		if w, wanted := wished[file]; wanted && !strings.HasSuffix(file, affinityFile) && !h.isOffline(file) {
			r.Faults = append(r.Faults, Fault{Feature: w.Feature, CPUs: w.CPUs, Err: fmt.Errorf("read %s: %w", file, err)})
		}
	}
	return seen
}

// isOffline reports whether the file is of a CPU that is offline.
func (h *Host) isOffline(file string) bool {
	cpu, _, _ := strings.Cut(strings.TrimPrefix(file, cpuDir), "/")
	online, err := h.files.Read(cpuDir + cpu + "/online")
	return err == nil && online == "0"
}

// effective returns the CPUs to which the kernel sends each interrupt, by the interrupt's
// file. The map is empty if the node state has no InterruptCPUs.
func (h *Host) effective(want contract.Machine, seen State) map[string]string {
	cpus := make(map[string]string)
	if want.InterruptCPUs.IsEmpty() {
		return cpus
	}
	for _, i := range seen.Interrupts {
		content, err := h.files.Read(strings.TrimSuffix(i.file(), affinityFile) + effectiveFile)
		requested, unread := h.files.Read(i.file())
		if err != nil || content == "" {
			content = requested
		}
		// Many interrupts move when they come the next time, and stay until then on a CPU that
		// was not asked for.
		now, invalid := contract.ParseCPUs(content)
		if asked, err := contract.ParseCPUs(requested); err == nil && unread == nil && invalid == nil {
			content = now.Intersection(asked).String()
		}
		cpus[i.file()] = content
	}
	return cpus
}
