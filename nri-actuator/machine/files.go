// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const (
	irqDir       = "irq/"
	cpuDir       = "cpu/"
	workQueueDir = "workqueue/"
	// defaultFile has the CPUs of interrupts that come later (Documentation/core-api/irq).
	defaultFile = irqDir + "default_smp_affinity"
	// workQueueFile has the CPUs of unbound work queues (core-api/workqueue.rst).
	workQueueFile = workQueueDir + "cpumask"
	// requestedFile has what was written to workQueueFile, which Linux 6.9 and later show
	// without the CPUs of isolated partitions.
	requestedFile = workQueueDir + "cpumask_requested"
	affinityFile  = "/smp_affinity_list"
	effectiveFile = "/effective_affinity_list"
)

func cpuFile(cpu int, name string) string { return fmt.Sprintf("%scpu%d/%s", cpuDir, cpu, name) }

// featureOf returns the feature that needs the file, empty for a file that this driver does
// not write.
func featureOf(file string) string {
	switch number, isIRQ := strings.CutPrefix(file, irqDir); {
	case file == workQueueFile:
		return contract.FeatureHousekeeping
	case file == defaultFile:
		return contract.FeatureInterrupts
	case isIRQ:
		if digits, is := strings.CutSuffix(number, affinityFile); is && isNumber(digits) {
			return contract.FeatureInterrupts
		}
		return ""
	}
	cpu, name, _ := strings.Cut(strings.TrimPrefix(file, cpuDir), "/")
	if digits, is := strings.CutPrefix(cpu, "cpu"); is && isNumber(digits) && strings.HasPrefix(file, cpuDir) {
		return contract.CPUFileFeature(name)
	}
	return ""
}

func isNumber(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && strconv.Itoa(n) == text
}

// Dirs are the directories of the kernel's files. A directory that is absent has no files.
type Dirs struct {
	// IRQ is /proc/irq, CPU is /sys/devices/system/cpu, WorkQueue is
	// /sys/devices/virtual/workqueue.
	IRQ, CPU, WorkQueue string
}

// split returns the directory and the path below it.
func (d Dirs) split(file string) (dir, rest string, err error) {
	for prefix, dir := range map[string]string{irqDir: d.IRQ, cpuDir: d.CPU, workQueueDir: d.WorkQueue} {
		if rest, is := strings.CutPrefix(file, prefix); is && dir != "" {
			return dir, rest, nil
		}
	}
	return "", "", fmt.Errorf("%s: %w", file, fs.ErrNotExist)
}

// Interrupts returns the interrupts, sorted by number.
func (d Dirs) Interrupts() ([]Interrupt, error) {
	if d.IRQ == "" {
		return nil, fmt.Errorf("directory of interrupts: %w", fs.ErrNotExist)
	}
	entries, err := os.ReadDir(d.IRQ)
	if err != nil {
		return nil, err
	}
	var all []Interrupt
	for _, e := range entries {
		if !e.IsDir() || !isNumber(e.Name()) {
			continue
		}
		number, _ := strconv.Atoi(e.Name())
		i := Interrupt{Number: number}
		// A directory for each handler. The interrupt may be gone meanwhile.
		handlers, err := os.ReadDir(path.Join(d.IRQ, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, h := range handlers {
			if h.IsDir() {
				i.Names = append(i.Names, h.Name())
			}
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Interrupt) int { return a.Number - b.Number })
	return all, nil
}

// maxContent is far above a list of all CPUs.
const maxContent = 64 << 10

// Read returns the content of a file, a set of CPUs as list.
func (d Dirs) Read(file string) (string, error) {
	if file == workQueueFile {
		if content, err := d.read(requestedFile); err == nil {
			return content, nil
		}
	}
	return d.read(file)
}

func (d Dirs) read(file string) (string, error) {
	dir, rest, err := d.split(file)
	if err != nil {
		return "", err
	}
	f, err := os.OpenInRoot(dir, rest)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxContent))
	if err != nil {
		return "", err
	}
	content := strings.TrimSpace(string(data))
	switch {
	case file == defaultFile || file == workQueueFile || file == requestedFile:
		cpus, err := contract.ParseCPUMask(content)
		return cpus.String(), err
	case strings.HasPrefix(file, irqDir):
		cpus, err := contract.ParseCPUs(content)
		return cpus.String(), err
	}
	return content, nil
}

// Write writes a file in one call, as the kernel wants it.
func (d Dirs) Write(file, content string) error {
	dir, rest, err := d.split(file)
	if err != nil {
		return err
	}
	if file == defaultFile || file == workQueueFile {
		cpus, err := contract.ParseCPUs(content)
		if err != nil {
			return err
		}
		content = contract.CPUMask(cpus)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(rest, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}
