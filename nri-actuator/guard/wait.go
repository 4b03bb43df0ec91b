// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

const (
	fileCPUs = "cpuset.cpus"
	fileMems = "cpuset.mems"
	// period is how often the cgroup is looked at: the kernel tells nobody that
	// one of these files has changed.
	period = 100 * time.Millisecond
	// maxDifferences bounds the error: Kubernetes keeps 1 KiB of an event.
	maxDifferences = 3
)

// await returns nil once the container's cgroup has the decision. It looks where
// the actuator writes, so the two cannot mean different cgroups; an OCI runtime
// may put the process below it, where the values bound it as well.
//
// The container's own cgroup is enough for I1, too: the actuator writes to it
// last. Before, it moves the containers of the shared pool off the claim's CPUs
// and gives the pod and its ancestors their values. So it does with a container
// that it adjusts at the creation, and with one that was created while it was
// away.
func (h Hook) await(ctx context.Context, start time.Time, spec *specs.Spec, d contract.Decision) error {
	want := missing(spec, d)
	if len(want) == 0 {
		return nil
	}
	path := ""
	if spec.Linux != nil {
		path = spec.Linux.CgroupsPath
	}
	dir, err := cgroups.ContainerDir(path)
	if err != nil {
		return fmt.Errorf("it has not all that was decided for its claim, and nothing says where it would get it: %w", err)
	}
	tree, err := cgroups.Open(h.CgroupRoot)
	if err != nil {
		return err
	}
	defer tree.Close()
	ctx, cancel := context.WithDeadline(ctx, start.Add(patience(spec)))
	defer cancel()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		found := differences(want, func(file string) (string, error) { return tree.Read(dir, file) })
		if len(found) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return refusal(dir, found, time.Since(start), want)
		case <-tick.C:
		}
	}
}

// missing returns the files of the container's cgroup that have to be looked at,
// and what they must have; an empty content stands for any that is not empty.
// What config.json has needs no look: the OCI runtime has written it by now, or
// the creation has failed. But the kernel refuses a partition in the file's
// content only.
func missing(spec *specs.Spec, d contract.Decision) map[string]string {
	var resources specs.LinuxResources
	if spec.Linux != nil && spec.Linux.Resources != nil {
		resources = *spec.Linux.Resources
	}
	var cpu specs.LinuxCPU
	if resources.CPU != nil {
		cpu = *resources.CPU
	}
	files := d.Files()
	agrees := (d.CPUs == "" || cpu.Cpus == d.CPUs) && (d.Mems == "" || cpu.Mems == d.Mems)
	for file, content := range files {
		agrees = agrees && resources.Unified[file] == content
	}
	switch {
	case agrees && d.Partition == "":
		return nil
	case agrees:
		return map[string]string{contract.FilePartition: d.Partition}
	}
	// I1: without CPUs of its own it gets the shared pool's, which only the
	// actuator knows. A cpuset that nobody has written has all CPUs.
	files[fileCPUs] = d.CPUs
	if d.Mems != "" {
		files[fileMems] = d.Mems
	}
	return files
}

// differences compares files with what they must have, in the order of their
// names. It ends at a cgroup that does not exist: there is no more to say.
func differences(want map[string]string, read func(file string) (string, error)) []string {
	var found []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		got, err := read(file)
		switch {
		case errors.Is(err, cgroups.ErrGone):
			return []string{err.Error()}
		case err != nil:
			found = append(found, err.Error())
		case want[file] == "" && got == "":
			found = append(found, differs(file, got, "the shared pool's CPUs"))
		case want[file] != "" && got != want[file]:
			found = append(found, differs(file, got, want[file]))
		}
	}
	return found
}

// refusal is the error for a container that has waited long enough.
func refusal(dir string, found []string, waited time.Duration, want map[string]string) error {
	text := strings.Join(found[:min(len(found), maxDifferences)], "; ")
	if more := len(found) - maxDifferences; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if want[contract.FilePartition] != "" {
		text += "; look at who has the CPUs in " + contract.FileExclusive
	}
	return fmt.Errorf("cgroup %s lacks what nri-actuator gives it, after %s: %s; %s", dir, waited.Round(time.Second), text, advice)
}

// patience is how long the guard may wait: the timeout of its hook, less the
// margin. A container with several claims has several guards; the shortest
// timeout is below that of each. A hook without one is not the frontend's.
func patience(spec *specs.Spec) time.Duration {
	if spec.Hooks == nil {
		return 0
	}
	shortest := time.Duration(0)
	for _, hook := range spec.Hooks.CreateRuntime {
		if len(hook.Args) != 2 || hook.Args[1] != "guard" || hook.Timeout == nil {
			continue
		}
		timeout := time.Duration(*hook.Timeout) * time.Second
		if shortest == 0 || timeout < shortest {
			shortest = timeout
		}
	}
	return max(0, shortest-contract.GuardMargin)
}
