// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// result is what a machine's console says about its kernel.
type result struct {
	cycles int // without a hang
	hung   bool
	text   string
}

var (
	done  = regexp.MustCompile(`(?m)^done (\d+) cycles, ([^\r\n]*)`)
	cycle = regexp.MustCompile(`(?m)^cycle (\d+)`)
	// blocked is a line of the kernel's own detector, which ends the machine.
	blocked = regexp.MustCompile(`INFO: (task \S+ (?:is )?blocked[^\r\n.]*)`)
)

// unsound returns why the result does not show that the kernel makes and ends so many partitions, nil if it does.
func (r result) unsound(release string, cycles int) error {
	switch {
	case r.hung:
		return fmt.Errorf("kernel %s hung in cycle %d of %d; -v prints its traces", release, r.cycles+1, cycles)
	case r.cycles != cycles:
		return fmt.Errorf("kernel %s made and ended %d of %d partitions: %s; -v prints its console", release, r.cycles, cycles, r.text)
	}
	return nil
}

// read returns what the console says.
func read(console string) (result, error) {
	if match := done.FindStringSubmatch(console); match != nil {
		cycles, err := strconv.Atoi(match[1])
		return result{cycles: cycles, text: "no hang; " + match[2]}, err
	}
	if strings.Contains(console, "no partitions") {
		return result{text: "makes no partitions of this kind"}, nil
	}
	tasks := blocked.FindAllStringSubmatch(console, -1)
	if tasks == nil {
		return result{}, fmt.Errorf("the machine ended without a result:\n%s", console)
	}
	var begun int
	if all := cycle.FindAllStringSubmatch(console, -1); len(all) > 0 {
		var err error
		if begun, err = strconv.Atoi(all[len(all)-1][1]); err != nil {
			return result{}, err
		}
	}
	return result{cycles: max(0, begun-1), hung: true, text: fmt.Sprintf("hung: %d tasks, first: %s", len(tasks), tasks[0][1])}, nil
}
