// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// The two marks of a cgroup file, each an extended attribute of the cgroup, with
// the file's name at the end. They live as long as the cgroup and survive the
// actuator (I4). Linux has such attributes on cgroups since 5.7. On an older
// kernel nothing is given back, and other programs' writes are noticed in pool containers only.
const (
	// markFormer keeps the content that another program wrote before.
	markFormer = "user." + contract.Vendor + ".former."
	// markWritten keeps the content that this driver wrote last.
	markWritten = "user." + contract.Vendor + ".written."
)

// Observe returns what the cgroup dir has: the contents of the files that exist,
// and all marks.
func (m *Mount) Observe(dir string, files ...string) (tree.State, error) {
	d, err := m.open(dir)
	if err != nil {
		return tree.State{}, err
	}
	defer d.Close()
	state := tree.State{
		Files: make(contract.Files), Unreadable: make(map[string]bool), Former: make(contract.Files), Written: make(contract.Files),
	}
	var errs []error
	if state.Unusable = m.readMarks(d, dir, files, &state); errors.Is(state.Unusable, ErrGone) {
		return tree.State{}, state.Unusable
	}
	for file := range state.Former {
		files = append(files, file)
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		content, err := read(d, file)
		switch err = m.explain(dir, file, err); {
		case err == nil:
			state.Files[file] = content
		case errors.Is(err, ErrGone):
			return tree.State{}, err
		case !errors.Is(err, os.ErrNotExist):
			errs, state.Unreadable[file] = append(errs, err), true
		}
	}
	return state, errors.Join(errs...)
}

// readMarks reads all marks. A file whose marks cannot be read counts as unreadable: its
// former value would be lost.
func (m *Mount) readMarks(d Cgroup, dir string, files []string, state *tree.State) error {
	names, err := d.Attributes()
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		for _, file := range files {
			state.Unreadable[file] = true
		}
		return m.explain(dir, "", err)
	}
	var errs []error
	for _, name := range names {
		marks, file := state.Written, strings.TrimPrefix(name, markWritten)
		if file == name {
			marks, file = state.Former, strings.TrimPrefix(name, markFormer)
		}
		if file == name {
			continue // another program's attribute
		}
		if name != markWritten+file && !contract.IsWritten(file) {
			continue // a file that a later version writes
		}
		content, err := d.Attribute(name)
		if err != nil {
			state.Unreadable[file] = true
			errs = append(errs, m.explain(dir, file, fmt.Errorf("its mark %s cannot be read: %w", name, err)))
			continue
		}
		if strings.HasPrefix(name, markFormer) {
			if err := (contract.Files{file: content}).Validate(); err != nil {
				errs = append(errs, m.explain(dir, file, fmt.Errorf("its former value cannot be given back: %w", err)))
				continue
			}
		}
		marks[file] = content
	}
	return errors.Join(errs...)
}

// WriteStep takes one step of a plan. The marks are written in an order that loses
// nothing if the process ends in between: the former value before the file,
// the written content after it.
func (m *Mount) WriteStep(s tree.Step) error {
	d, err := m.open(s.Dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if s.Act == tree.SaveFormer {
		if err := mark(d, markFormer+s.File, s.Found); err != nil {
			return m.explain(s.Dir, s.File, fmt.Errorf("save its former value %q: %w", s.Found, err))
		}
	}
	if s.Act == tree.SaveFormer || s.Act == tree.Write && s.Kind <= tree.Pod {
		// The mark is removed before the file is written. If the process ends between
		// the two writes, an old mark would make this driver's content look like
		// another program's.
		err := d.RemoveAttribute(markWritten + s.File)
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, errors.ErrUnsupported) {
			return m.explain(s.Dir, s.File, fmt.Errorf("remove its mark: %w", err))
		}
	}
	if s.Act != tree.MarkWritten {
		if err := write(d, s.File, s.Content); err != nil {
			return m.explain(s.Dir, s.File, fmt.Errorf("write %q: %w", s.Content, err))
		}
	}
	if err := mark(d, markWritten+s.File, s.Content); err != nil && s.Kind <= tree.Pod {
		// The error of a container's mark is ignored: a program in the container can fill the
		// attributes of its cgroup, and only the count of repairs is lost.
		return m.explain(s.Dir, s.File, fmt.Errorf("mark its value %q as written: %w", s.Content, err))
	}
	return nil
}

// RemoveMarks removes the marks of files that another program has again.
func (m *Mount) RemoveMarks(dir string, files contract.Files) error {
	d, err := m.open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(files)) {
		// The mark with the former value goes first. A former value without the mark of the written content would be given back
		// over what the other program has written (I4).
		for _, name := range []string{markFormer + file, markWritten + file} {
			if err := d.RemoveAttribute(name); err != nil && !errors.Is(err, unix.ENODATA) {
				errs = append(errs, m.explain(dir, file, fmt.Errorf("remove its mark: %w", err)))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// mark sets an attribute. A kernel without attributes on cgroups is no error.
func mark(c Cgroup, name, value string) error {
	if err := c.SetAttribute(name, value); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
