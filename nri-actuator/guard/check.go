// SPDX-License-Identifier: Apache-2.0

// Package guard is the OCI hook that keeps the program of a container with a
// claim from starting before the container has the claim's decision. The runtime
// goes on without an NRI plugin that is gone or slow, but not past a running
// hook (I5). The guard waits while the actuator, perhaps after its restart, can
// give the container the missing values. If no program can, the guard refuses
// the container at once. The frontend puts the hook into the claim's CDI device,
// so the guard runs exactly for containers with claims. It compares, and changes
// nothing but an OOM score.
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
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

const maxState = 1 << 20

// Hook is one run of the guard. All fields but Features are required.
type Hook struct {
	// Config returns the content of a bundle's config.json.
	Config func(bundle string) ([]byte, error)
	// PolicyModes returns the memory policies that the OCI runtime knows. It is
	// called only for a decision with a memory policy.
	PolicyModes func() ([]string, error)
	// OpenMount opens the cgroup root.
	OpenMount func(root string) (*cgroups.Mount, error)
	// CgroupRoot and ProcRoot are the mount points of cgroup v2 and proc.
	CgroupRoot, ProcRoot string
	// Features are the features that this program implements.
	Features []string
}

// Check reads the container's state, which the OCI runtime gives to a hook, and
// returns nil when the container has the decisions in its environment. It waits
// until ctx ends, at most for the hook's timeout in the container's
// configuration less [contract.GuardMargin]. The error says why the container
// must not run.
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
	var spec configuration
	if err := json.Unmarshal(config, &spec); err != nil {
		return fmt.Errorf("container %s: configuration: %w", s.ID, err)
	}
	decision, err := decisionOf(&spec, h.Features)
	if err == nil && decision.MemoryPolicy != nil {
		err = checkPolicy(&spec, *decision.MemoryPolicy, h.PolicyModes)
	}
	if err == nil {
		err = h.checkOOMScore(&spec, decision, s.Pid)
	}
	if err == nil {
		err = h.await(ctx, start, &spec, decision, s.Pid)
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", s.ID, err)
	}
	return nil
}

// decisionOf returns the merged decision of the container's variables. An invalid
// variable is an error at once: waiting does not repair it.
func decisionOf(spec *configuration, features []string) (contract.Decision, error) {
	if spec.Process == nil {
		return contract.Decision{}, errors.New("configuration has no process")
	}
	decisions := make(map[contract.Key]contract.Decision)
	seen := make(map[contract.Key]string)
	for _, entry := range spec.Process.Env {
		key, decision, ours, err := contract.ParseEnv(entry, features)
		if errors.Is(err, contract.ErrUnknownFeature) {
			return contract.Decision{}, fmt.Errorf("%w; if nri-actuator knows the feature, another claim of the pod was prepared with "+
				"this older guard, and keeps the guard while any pod has the claim: delete all pods of that claim", err)
		}
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
		return contract.Decision{}, fmt.Errorf("the guard ran for a container without a variable %s…: "+
			"the claim's environment was removed on its way", contract.EnvPrefix)
	}
	return contract.Merge(decisions), nil
}

// mismatch returns the error for a value that a container gets only at its
// creation.
func mismatch(what, got, want string) error {
	return fmt.Errorf("%s: nri-actuator did not adjust this container at its creation, and cannot adjust it later; %s",
		differs(what, got, want), advice)
}

// advice ends an error for want of the actuator: what a person should check, and what
// happens next.
const advice = "check that nri-actuator runs on this node and what it logs; " + retried

// retried is what happens after an error.
const retried = "the pod's restart policy decides whether the container is tried again"

func differs(what, got, want string) string {
	if got == "" {
		got = "unset"
	}
	return fmt.Sprintf("%s is %s, the claim's decision is %s", what, oneLine(got), want)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
