// SPDX-License-Identifier: Apache-2.0

// Package guard is the OCI hook that keeps the program of a container with a
// claim from starting before the container has the claim's decision: the
// runtime goes on without an NRI plugin that is gone or slow, but not past a
// hook that runs (I5). The hook is a barrier. It waits while the actuator can
// still give the container what is missing, as it does when it comes back, and
// refuses the container at once where nobody can. The frontend puts the hook
// into the claim's CDI device, so it runs exactly where a claim is; it compares,
// and changes nothing but an OOM score.
package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const maxState = 1 << 20

// Hook is one run of the guard. All fields but Features are required.
type Hook struct {
	// Config returns the content of a bundle's config.json.
	Config func(bundle string) ([]byte, error)
	// PolicyModes returns the memory policies that the OCI runtime knows. It is
	// asked only for a decision with a memory policy.
	PolicyModes func() ([]string, error)
	// CgroupRoot is where cgroup v2 is mounted, ProcRoot where proc is.
	CgroupRoot, ProcRoot string
	// Features are the contract's that this program knows.
	Features []string
}

// Check reads the container's state, as the OCI runtime gives it to a hook, and
// returns nil once the container has the decisions of its environment. It waits
// for them at most as long as the hook's timeout in the container's
// configuration allows, [contract.GuardMargin] less, and until ctx is done. The
// error says why the container must not run.
func (h Hook) Check(ctx context.Context, state io.Reader) error {
	start := time.Now()
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
	config, err := h.Config(s.Bundle)
	if err != nil {
		return fmt.Errorf("container %s: configuration: %w", s.ID, err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(config, &spec); err != nil {
		return fmt.Errorf("container %s: configuration: %w", s.ID, err)
	}
	decision, err := decide(&spec, h.Features)
	if err == nil {
		err = h.checkCreation(&spec, decision)
	}
	if err == nil {
		err = h.checkOOMScore(&spec, decision, s.Pid)
	}
	if err == nil {
		err = h.await(ctx, start, &spec, decision)
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", s.ID, err)
	}
	return nil
}

// decide returns what the container's variables say together. A variable that
// is not of the contract does not become so by waiting.
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

// checkCreation compares what a container has from its creation or not at all:
// members of config.json that are no cgroup file, so that nobody can write them
// later. It is the place for each member of a decision that is of this kind.
func (h Hook) checkCreation(spec *specs.Spec, d contract.Decision) error {
	if d.MemoryPolicy != nil {
		if err := checkPolicy(spec, *d.MemoryPolicy, h.PolicyModes); err != nil {
			return err
		}
	}
	return nil
}

// mismatch is the error for a member that only the creation could have brought.
func mismatch(what, got, want string) error {
	return fmt.Errorf("%s: nri-actuator did not adjust this container at its creation, and nobody can later; %s",
		differs(what, got, want), advice)
}

// advice ends every refusal: what a person should look at, and what happens.
const advice = "check that nri-actuator runs on this node and what it logs; the pod's restart policy decides whether the container is tried again"

func differs(what, got, want string) string {
	if got == "" {
		got = "unset"
	}
	return fmt.Sprintf("%s is %s, the claim's decision is %s", what, oneLine(got), want)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
