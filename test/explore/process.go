// SPDX-License-Identifier: Apache-2.0

package explore

import "fmt"

// process is a process that reads and writes cgroups. It implements [mounted.Process].
type process struct {
	*life
	// wrote is called after each write to a file.
	wrote func(what string)
}

func (process) Open(_ string, do func() error) error { return do() }

func (p process) Read(_, _ string, do func() error) error {
	if err := p.read(); err != nil {
		return err
	}
	return do()
}

func (p process) Write(dir, file, content string, do func() error) error {
	err := p.write(do)
	if file != "" {
		p.wrote(fmt.Sprintf("write of %q to %s/%s", content, dir, file))
	}
	return err
}
