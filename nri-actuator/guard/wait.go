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

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

const (
	fileCPUs = "cpuset.cpus"
	fileMems = "cpuset.mems"
	// period is how often the guard reads the cgroup: the kernel sends no event
	// when such a file changes.
	period = 100 * time.Millisecond
	// maxDifferences bounds the error: Kubernetes keeps 1 KiB of an event.
	maxDifferences = 3
)

// await returns nil when the container's cgroup has the decision, and the kernel lets its
// process use no other CPUs and NUMA nodes. It reads the cgroup that the actuator writes.
// An OCI runtime may put the process into a cgroup below, where these values bound it as
// well.
//
// A look at the container's own cgroup is enough for I1, too, because the
// actuator writes it last. First the actuator moves pool containers off the
// claim's CPUs and gives the pod and the levels their values. It does so for a
// container that it adjusts at the creation, and for a container that was
// created while no actuator ran.
func (h Hook) await(ctx context.Context, start time.Time, spec *configuration, d contract.Decision, pid int) error {
	want := filesToCheck(spec, d)
	path := ""
	if spec.Linux != nil {
		path = spec.Linux.CgroupsPath
	}
	dir, err := cgroups.ContainerDir(path)
	switch {
	case err != nil && len(want) == 0:
		return nil
	case err != nil:
		return fmt.Errorf("the container lacks values of its claim's decision, and its configuration names no cgroup "+
			"in which the guard could wait for them: %w", err)
	}
	// look returns why the container must not run, nil if it may.
	look := func() error { return h.checkProcess(pid, dir, d) }
	if len(want) > 0 {
		mount, err := h.OpenMount(h.CgroupRoot)
		if err != nil {
			return err
		}
		defer mount.Close()
		look = func() error {
			found := differences(want, func(file string) (string, error) { return mount.Read(dir, file) })
			if len(found) > 0 {
				return missingValues(dir, found, want)
			}
			return h.checkProcess(pid, dir, d)
		}
	}
	ctx, cancel := context.WithDeadline(ctx, start.Add(waitLimit(spec)))
	defer cancel()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("refused after %s: %w", time.Since(start).Round(time.Second), err)
		case <-tick.C:
		}
	}
}

// filesToCheck returns the files of the container's cgroup that must be checked, with
// the contents that they must have. An empty content stands for any content that is not
// empty. If config.json has all contents, the OCI runtime has written the files, or the
// creation has failed. Then only a partition is checked, because the kernel reports a
// refused partition in the file's content, and not as an error of the write.
func filesToCheck(spec *configuration, d contract.Decision) map[string]string {
	var resources resources
	if spec.Linux != nil && spec.Linux.Resources != nil {
		resources = *spec.Linux.Resources
	}
	var cpu cpu
	if resources.CPU != nil {
		cpu = *resources.CPU
	}
	files := d.Files()
	agrees := (d.CPUs.IsEmpty() || cpu.Cpus == d.CPUs.String()) && (d.Mems.IsEmpty() || cpu.Mems == d.Mems.String())
	for file, content := range files {
		agrees = agrees && resources.Unified[file] == content
	}
	switch {
	case agrees && d.Partition == "":
		return nil
	case agrees:
		return map[string]string{contract.FilePartition: d.Partition}
	}
	// I1: a container without claimed CPUs gets the shared pool, which only the
	// actuator knows. An unwritten cpuset has all CPUs.
	files[fileCPUs] = d.CPUs.String()
	if !d.Mems.IsEmpty() {
		files[fileMems] = d.Mems.String()
	}
	return files
}

// differences returns the differences between the files and want, sorted by
// file. A cgroup that does not exist is the only difference.
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

// missingValues returns the error for a container whose cgroup lacks values.
func missingValues(dir string, found []string, want map[string]string) error {
	text := strings.Join(found[:min(len(found), maxDifferences)], "; ")
	if more := len(found) - maxDifferences; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if want[contract.FilePartition] != "" {
		text += "; find the cgroup that names the CPUs in " + contract.FileExclusive
	}
	return fmt.Errorf("cgroup %s lacks what nri-actuator gives it: %s; %s", dir, text, advice)
}

// waitLimit returns how long the guard may wait: the timeout of its hook, less
// the margin. A container with several claims has several guards: the shortest
// timeout counts. A hook without a timeout is not the frontend's.
func waitLimit(spec *configuration) time.Duration {
	guards := guardsOf(spec)
	if len(guards) == 0 {
		return 0
	}
	return max(0, slices.Min(guards)-contract.GuardMargin)
}

// guardsOf returns the timeouts of the guards among the container's hooks.
func guardsOf(spec *configuration) []time.Duration {
	if spec.Hooks == nil {
		return nil
	}
	var timeouts []time.Duration
	for _, hook := range spec.Hooks.CreateRuntime {
		if contract.IsGuard(hook.Path, hook.Args) && hook.Timeout != nil {
			timeouts = append(timeouts, time.Duration(*hook.Timeout)*time.Second)
		}
	}
	return timeouts
}
