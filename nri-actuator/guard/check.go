// SPDX-License-Identifier: Apache-2.0

// Package guard is the OCI hook that keeps a container with a claim from
// running when nobody applied its decision: the runtime goes on without an NRI
// plugin that is gone or slow, but not past a hook that fails (I5). The
// frontend puts the hook into the claim's CDI device, so it runs exactly where
// a claim is; it compares, and changes nothing but an OOM score.
package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const maxState = 1 << 20

// hint ends every mismatch: what a person should look at.
const hint = "nri-actuator did not adjust this container; check that it runs on this node, the container is tried again"

// Check reads the container's state, as the OCI runtime gives it to a hook,
// and compares the container's configuration with the decisions in its
// environment. bundleConfig returns the content of a bundle's config.json;
// policyModes, asked only for a decision with a memory policy, the policies
// that the OCI runtime knows; partition, likewise, what cpuset.cpus.partition
// of a process's cgroup has.
func Check(state io.Reader, bundleConfig func(bundle string) ([]byte, error), policyModes func() ([]string, error), partition func(pid int) (string, error), features []string) error {
	data, err := io.ReadAll(io.LimitReader(state, maxState))
	if err != nil {
		return fmt.Errorf("container state: %w", err)
	}
	var s specs.State
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("container state: %w", err)
	}
	if s.Bundle == "" {
		return errors.New("container state names no bundle")
	}
	config, err := bundleConfig(s.Bundle)
	if err != nil {
		return fmt.Errorf("container %s: configuration: %w", s.ID, err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(config, &spec); err != nil {
		return fmt.Errorf("container %s: configuration: %w", s.ID, err)
	}
	decision, err := decide(&spec, features)
	if err == nil {
		err = checkResources(&spec, decision)
	}
	if err == nil && decision.MemoryPolicy != nil {
		err = checkPolicy(&spec, *decision.MemoryPolicy, policyModes)
	}
	if err == nil {
		err = checkOOMScore(&spec, decision, s.Pid)
	}
	// Without a process, as a virtual machine's runtime may tell it, only
	// StartContainer can look.
	if err == nil && decision.Partition != "" && s.Pid > 0 {
		err = checkPartition(decision, s.Pid, partition)
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", s.ID, err)
	}
	return nil
}

func checkResources(spec *specs.Spec, decision contract.Decision) error {
	var resources specs.LinuxResources
	if spec.Linux != nil && spec.Linux.Resources != nil {
		resources = *spec.Linux.Resources
	}
	var cpu specs.LinuxCPU
	if resources.CPU != nil {
		cpu = *resources.CPU
	}
	if decision.CPUs != "" && cpu.Cpus != decision.CPUs {
		return mismatch("cpuset.cpus", cpu.Cpus, decision.CPUs)
	}
	if decision.Mems != "" && cpu.Mems != decision.Mems {
		return mismatch("cpuset.mems", cpu.Mems, decision.Mems)
	}
	files := decision.Files()
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if got := resources.Unified[file]; got != files[file] {
			return mismatch(file, got, files[file])
		}
	}
	return nil
}

func decide(spec *specs.Spec, features []string) (contract.Decision, error) {
	if spec.Process == nil {
		return contract.Decision{}, errors.New("configuration has no process")
	}
	decisions := make(map[contract.Key]contract.Decision)
	seen := make(map[contract.Key]string)
	for _, entry := range spec.Process.Env {
		key, decision, ours, err := contract.ParseEnv(entry, features)
		if err != nil {
			return contract.Decision{}, err
		}
		if !ours {
			continue
		}
		if before, twice := seen[key]; twice && before != entry {
			return contract.Decision{}, fmt.Errorf("variable %s occurs with different values", key.EnvName())
		}
		seen[key], decisions[key] = entry, decision
	}
	if len(decisions) == 0 {
		return contract.Decision{}, fmt.Errorf("the guard ran for a container without a variable %s…: the claim's environment was removed on its way", contract.EnvPrefix)
	}
	return contract.Merge(decisions), nil
}

func mismatch(what, got, want string) error {
	if got == "" {
		got = "unset"
	}
	return fmt.Errorf("%s is %s, the claim's decision is %s: %s", what, oneLine(got), want, hint)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
