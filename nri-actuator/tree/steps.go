// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"
	"path"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// State is what a cgroup has.
type State struct {
	// Files are the contents of the files that exist.
	Files contract.Files
	// Unreadable are the files that exist and could not be read. In a pod or level they
	// stay as they are: a content that is written over would be lost.
	Unreadable map[string]bool
	// Former are the contents that another program wrote before this driver did.
	// Written are the contents that this driver wrote last. Both are marks on
	// the cgroup, so that a restart forgets neither.
	Former, Written contract.Files
	// Unusable says which marks cannot be used, and are left out.
	Unusable error
	// Behind reports whether systemd may have written older contents of this
	// driver.
	Behind bool
}

// overwritten reports whether another program wrote the file after this driver.
func (s State) overwritten(file string) bool {
	last, known := s.Written[file]
	return known && last != s.Files[file] && !s.Behind
}

// GivenBack returns the files that have their former values again, and the
// files that another program wrote after this driver. Neither needs a former
// content any more.
func (s State) GivenBack(wanted contract.Files) (returned, overwritten contract.Files) {
	returned, overwritten = make(contract.Files), make(contract.Files)
	for file, former := range s.Former {
		content, read := s.Files[file]
		switch {
		case wanted[file] != "" || !read:
		case content == former:
			returned[file] = former
		case s.overwritten(file):
			overwritten[file] = content
		}
	}
	return returned, overwritten
}

// Step is one write.
type Step struct {
	Dir     string
	Kind    Kind
	File    string
	Content string
	// Found is the content that the step replaces. Overwritten reports whether
	// another program wrote it over this driver's content.
	Found       string
	Overwritten bool
	Act         Act
}

// Act is what a step does.
type Act int

const (
	// Write writes the file and marks the content as written.
	Write Act = iota
	// SaveFormer keeps what was found as the file's former value, and writes.
	SaveFormer
	// GiveBack writes the former value, and marks it as written until both marks are
	// released: the file is not another program's before systemd has the value.
	GiveBack
	// MarkWritten marks the content as written. The file has it.
	MarkWritten
)

// Steps returns the writes that bring observed cgroups to what they shall have,
// in an order that is safe after each step: a process that ends between two
// steps leaves no CPU of a claim to another container (I1), and no partition
// without its CPUs. Cgroups that were not observed are gone.
func Steps(desired map[string]Cgroup, observed map[string]State) []Step {
	p := plan{desired: desired, observed: observed, now: make(map[[2]string]string)}
	// A parent's name is a prefix of its child's, so it comes first.
	p.dirs = slices.Sorted(maps.Keys(observed))
	p.endPartitions()
	p.reclaimCPUs()
	p.fill(Level)
	p.fill(Pod)
	p.giveBack()
	for _, kind := range []Kind{Pooled, Claimed, Partitioned} {
		p.fill(kind)
	}
	return p.steps
}

type plan struct {
	desired  map[string]Cgroup
	observed map[string]State
	// dirs are the observed directories, parents first.
	dirs  []string
	steps []Step
	// now are the contents after the steps, by directory and file.
	now map[[2]string]string
}

// has returns the content of a file after the steps so far.
func (p *plan) has(dir, file string) string {
	if content, written := p.now[[2]string{dir, file}]; written {
		return content
	}
	return p.observed[dir].Files[file]
}

// of returns the observed directories of the kind, parents first. A pod or level
// without desired files is among them: it gets its former values back.
func (p *plan) of(kind Kind) []string {
	return slices.DeleteFunc(slices.Clone(p.dirs), func(dir string) bool {
		return p.desired[dir].Kind != kind
	})
}

// exclusive returns the CPUs that a cgroup names in cpuset.cpus.exclusive after the
// steps so far.
func (p *plan) exclusive(dir string) contract.CPUSet {
	return cpusIn(p.has(dir, contract.FileExclusive))
}

// cpusIn returns the CPUs of a list, none for a content that is no list: such CPUs are
// another program's affair.
func cpusIn(list string) contract.CPUSet {
	cpus, err := contract.ParseCPUs(list)
	if err != nil {
		return contract.CPUSet{}
	}
	return cpus
}

// mayName reports whether the cgroup dir may name the CPUs in cpuset.cpus.exclusive. The kernel
// lets no two siblings name the same CPU, and makes no partition of CPUs that the cgroups above do not name.
func (p *plan) mayName(dir string, cpus contract.CPUSet) bool {
	return !p.namedBySibling(dir, cpus) && p.namedAbove(dir, cpus)
}

// namedBySibling reports whether a sibling of the cgroup dir names one of the CPUs.
func (p *plan) namedBySibling(dir string, cpus contract.CPUSet) bool {
	above := path.Dir(dir)
	return slices.ContainsFunc(p.dirs, func(other string) bool {
		return other != dir && path.Dir(other) == above && p.exclusive(other).Overlaps(cpus)
	})
}

// namedAbove reports whether all observed cgroups above the cgroup dir name the CPUs.
func (p *plan) namedAbove(dir string, cpus contract.CPUSet) bool {
	for above := path.Dir(dir); above != "."; above = path.Dir(above) {
		if _, observed := p.observed[above]; observed && !cpus.IsSubsetOf(p.exclusive(above)) {
			return false
		}
	}
	return true
}

func (p *plan) add(s Step) {
	s.Kind, s.Found = p.desired[s.Dir].Kind, p.has(s.Dir, s.File)
	s.Overwritten = p.observed[s.Dir].overwritten(s.File)
	if _, again := p.now[[2]string{s.Dir, s.File}]; again {
		s.Act = Write // an earlier step has saved the former value
	}
	p.now[[2]string{s.Dir, s.File}] = s.Content
	p.steps = append(p.steps, s)
}

// endPartitions ends the partitions of containers that shall be none, or have
// CPUs that are not theirs: another claim may have the CPUs.
func (p *plan) endPartitions() {
	for _, kind := range []Kind{Pooled, Claimed, Partitioned} {
		for _, dir := range p.of(kind) {
			has, needs := p.exclusive(dir), cpusIn(p.desired[dir].Files[contract.FileExclusive])
			switch p.observed[dir].Files[contract.FilePartition] {
			case "":
				continue
			case Member:
				// An actuator that ended between the two steps of [EndPartition] left the CPUs in the file.
				if has.IsEmpty() {
					continue
				}
			}
			if kind == Partitioned && has.IsSubsetOf(needs) {
				continue
			}
			for _, step := range EndPartition(dir, p.observed[dir].Files) {
				p.add(step)
			}
		}
	}
}

// reclaimCPUs takes partition CPUs from the pods and levels that do not need them,
// before other cgroups get CPUs: the kernel lets no two siblings name the same
// CPU. It begins at the bottom: no cgroup shall name CPUs that its parent does not
// name.
func (p *plan) reclaimCPUs() {
	above := append(p.of(Level), p.of(Pod)...)
	slices.Reverse(above)
	for _, dir := range above {
		has, needs := p.exclusive(dir), cpusIn(p.desired[dir].Files[contract.FileExclusive])
		if has.IsSubsetOf(needs) {
			continue
		}
		former, ours := p.observed[dir].Former[contract.FileExclusive]
		switch remaining := has.Intersection(needs); {
		case !needs.IsEmpty():
			p.add(Step{Dir: dir, File: contract.FileExclusive, Content: remaining.String(), Act: saveUnless(ours)})
		case ours:
			p.add(Step{Dir: dir, File: contract.FileExclusive, Content: former, Act: GiveBack})
		}
		// Other CPUs are another program's.
	}
}

// fill writes the contents that cgroups of the kind shall have, parents first:
// the kernel takes a partition's CPUs from the cgroups above it.
func (p *plan) fill(kind Kind) {
	for _, dir := range p.of(kind) {
		files, state := p.desired[dir].Files, p.observed[dir]
		for _, file := range slices.Sorted(maps.Keys(files)) {
			_, saved := state.Former[file]
			_, read := state.Files[file]
			content := files[file]
			differs := p.has(dir, file) != content
			switch {
			case kind <= Pod && state.Unreadable[file]:
			case differs && file == contract.FileExclusive && !p.mayName(dir, cpusIn(content)):
				// A sibling's partition still has one of the CPUs, or the cgroups above lack one. The
				// next plan comes when that partition has ended.
			case differs:
				// A file that does not exist has no former value.
				p.add(Step{Dir: dir, File: file, Content: content,
					Act: saveUnless(kind > Pod || !read || saved && !state.overwritten(file))})
			case state.Written[file] != content && state.Files[file] == content && (saved || kind > Pod):
				// In a pod or level, a content without a saved former value is another
				// program's and gets no mark.
				p.add(Step{Dir: dir, File: file, Content: content, Act: MarkWritten})
			}
		}
	}
}

// saveUnless returns SaveFormer, or Write if saved is true: the former value is saved
// already or does not matter.
func saveUnless(saved bool) Act {
	if saved {
		return Write
	}
	return SaveFormer
}

// giveBack gives pods and levels the former values of the files that the node
// state does not name. A content that another program wrote meanwhile stays.
func (p *plan) giveBack() {
	for _, dir := range append(p.of(Level), p.of(Pod)...) {
		state := p.observed[dir]
		returned, overwritten := state.GivenBack(p.desired[dir].Files)
		for _, file := range slices.Sorted(maps.Keys(state.Former)) {
			_, read := state.Files[file]
			_, done := returned[file]
			_, theirs := overwritten[file]
			if read && p.desired[dir].Files[file] == "" && !done && !theirs && file != contract.FileExclusive {
				p.add(Step{Dir: dir, File: file, Content: state.Former[file], Act: GiveBack})
			}
		}
	}
}
