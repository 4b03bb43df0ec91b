// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// errLost means that the machine has fewer CPUs for good.
var errLost = errors.New("the kernel has lost CPUs")

// patience bounds how long the kernel may take for what it does later.
const patience = 100 * time.Millisecond

// episodeOperations is the number of random operations between two clean hierarchies.
const episodeOperations = 60

// episode takes random operations from a clean hierarchy, and cleans up. It returns
// all operations that it took.
func episode(model *kerneltest.Kernel, real *machine, r *rand.Rand) (history []kerneltest.Operation, err error) {
	for range episodeOperations {
		o := model.Random(r)
		history = append(history, o)
		if err := step(model, real, o); err != nil {
			return history, err
		}
	}
	for _, o := range cleanup(model, real.cpus) {
		history = append(history, o)
		if err := step(model, real, o); err != nil {
			return history, err
		}
	}
	if model.Lost() != "" {
		return history, errLost
	}
	return history, nil
}

// cleanup returns the operations after which the hierarchy has no cgroup.
func cleanup(model *kerneltest.Kernel, cpus int) (all []kerneltest.Operation) {
	for cpu := 1; cpu < cpus; cpu++ {
		all = append(all, kerneltest.Operation{Kind: kerneltest.Online, CPU: cpu})
	}
	dirs := model.Dirs()
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if content, err := model.Read(dir, "cpuset.cpus.partition"); err == nil && content != "member" {
			all = append(all, kerneltest.Operation{Kind: kerneltest.Write, Dir: dir, File: "cpuset.cpus.partition", Content: "member"})
		}
		for range model.Processes(dir) {
			all = append(all, kerneltest.Operation{Kind: kerneltest.Detach, Dir: dir})
		}
	}
	for _, dir := range dirs {
		all = append(all, kerneltest.Operation{Kind: kerneltest.Rmdir, Dir: dir})
	}
	return all
}

// step takes an operation on both sides and compares the results and all files.
func step(model *kerneltest.Kernel, real *machine, o kerneltest.Operation) error {
	want, got := model.Do(o), real.do(o)
	if !same(want, got) {
		return fmt.Errorf("%s: the model returns %v, the kernel %v", o, want, got)
	}
	// The kernel does some of its work later.
	var diff string
	for wait := time.Millisecond; wait < patience; wait *= 2 {
		if diff = compare(model, real); diff == "" {
			return nil
		}
		time.Sleep(wait)
	}
	return fmt.Errorf("%s: %s", o, diff)
}

func same(want, got error) bool {
	var a, b syscall.Errno
	if errors.As(want, &a) != errors.As(got, &b) || a != b {
		return false
	}
	return (want == nil) == (got == nil)
}

func compare(model *kerneltest.Kernel, real *machine) string {
	var diff []string
	for _, dir := range append(model.Dirs(), "") {
		files, err := model.Files(dir)
		if err != nil {
			return err.Error()
		}
		for _, file := range files {
			if dir == "" && (file == "cgroup.subtree_control" || file == "cgroup.controllers") {
				continue // they name controllers that the model does not have
			}
			want, err := model.Read(dir, file)
			got, wrong := real.read(dir, file)
			if err != nil || wrong != nil || want != got {
				diff = append(diff, fmt.Sprintf("%s/%s: the model has %q (%v), the kernel %q (%v)", dir, file, want, err, got, wrong))
			}
		}
	}
	return strings.Join(diff, "; ")
}

// shrink returns a history with a difference from which no single operation can be left
// out, and the difference, as text.
func shrink(release kerneltest.Release, real *machine, history []kerneltest.Operation) string {
	var text strings.Builder
	var difference error
	fails := func(history []kerneltest.Operation) (bool, error) {
		if err := real.clean(); err != nil {
			return false, err
		}
		model := kerneltest.New(release, kerneltest.Regular(real.cpus, real.nodes))
		for _, o := range append([]kerneltest.Operation{enable("")}, history...) {
			if next := model.Clone(); next.Do(o) == kerneltest.ErrOutside || next.Damage() != "" {
				return false, nil
			}
			if err := step(model, real, o); err != nil {
				difference = err
				return true, nil
			}
		}
		return false, nil
	}
	for i := 0; i < len(history); {
		shorter := slices.Delete(slices.Clone(history), i, i+1)
		failed, err := fails(shorter)
		if err != nil {
			fmt.Fprintln(&text, "not shrunk further:", err)
			break
		}
		if failed {
			history = shorter
			continue
		}
		i++
	}
	for _, o := range history {
		fmt.Fprintln(&text, o)
	}
	if difference != nil {
		fmt.Fprintln(&text, difference)
	}
	return text.String()
}

// enable returns the operation that gives the children of dir all controllers.
func enable(dir string) kerneltest.Operation {
	return kerneltest.Operation{Kind: kerneltest.Write, Dir: dir, File: "cgroup.subtree_control", Content: "+cpuset +memory +hugetlb"}
}
