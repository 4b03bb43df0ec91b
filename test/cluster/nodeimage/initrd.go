// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// entry is a file of the initrd.
type entry struct {
	name string
	mode uint32 // with the type bits
	data []byte
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
)

// writeCPIO writes the "newc" archive that the kernel unpacks as initrd.
func writeCPIO(w io.Writer, entries []entry) error {
	out := bufio.NewWriter(w)
	written := 0
	write := func(data []byte) {
		n, _ := out.Write(data) // bufio keeps the first error for Flush
		written += n
	}
	pad := func() { write(make([]byte, (4-written%4)%4)) }
	for i, e := range append(entries, entry{name: "TRAILER!!!"}) {
		write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, e.mode, 0, 0, 1, 0, len(e.data), 0, 0, 0, 0, len(e.name)+1, 0))
		write(append([]byte(e.name), 0))
		pad()
		write(e.data)
		pad()
	}
	return out.Flush()
}

// moduleOrder returns the files of modules.dep to insert for the wanted modules, dependencies first, without modules in
// builtin. Modules in notInAll may be missing. A module's name is its file's name without directory and extension.
func moduleOrder(dep io.Reader, want []string, builtin map[string]bool) ([]string, error) {
	file := map[string]string{}
	needs := map[string][]string{}
	lines := bufio.NewScanner(dep)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: line %q has no colon", lines.Text())
		}
		file[moduleName(left)] = left
		for _, f := range strings.Fields(right) {
			needs[moduleName(left)] = append(needs[moduleName(left)], moduleName(f))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("modules.dep: %w", err)
	}
	seen := map[string]bool{}
	var order []string
	var add func(name string) error
	add = func(name string) error {
		if seen[name] || builtin[name] {
			return nil
		}
		seen[name] = true
		if file[name] == "" && notInAll[name] {
			return nil
		}
		if file[name] == "" {
			return fmt.Errorf("modules.dep: no module %s", name)
		}
		for _, n := range needs[name] {
			if err := add(n); err != nil {
				return err
			}
		}
		order = append(order, file[name])
		return nil
	}
	for _, name := range want {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return name
}

// WriteProgram writes an initrd whose only program is the machine's first process.
func WriteProgram(w io.Writer, program []byte) error {
	var entries []entry
	for _, d := range []string{"dev", "proc", "sys"} {
		entries = append(entries, entry{name: d, mode: modeDir})
	}
	return writeCPIO(w, append(entries, entry{"init", modeFile, program}))
}
