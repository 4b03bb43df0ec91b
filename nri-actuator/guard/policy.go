// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// checkPolicy compares the configured memory policy with the decision's, and
// checks that the OCI runtime supports it: an older OCI runtime ignores the
// policy. A container gets its policy at its creation or never, because the policy cannot
// be written later through a file of a cgroup or of /proc. The policy of the process cannot be checked: it is
// set after this hook.
func checkPolicy(spec *configuration, want contract.MemoryPolicy, modes func() ([]string, error)) error {
	wanted := text(want.OCIMode(), want.Nodes.String(), string(specs.MpolFStaticNodes))
	got := ""
	if spec.Linux != nil && spec.Linux.MemoryPolicy != nil {
		p := spec.Linux.MemoryPolicy
		got = text(string(p.Mode), p.Nodes, p.Flags...)
	}
	if got != wanted {
		return fmt.Errorf("%w; a container runtime older than containerd 2.3 or CRI-O 1.37 drops memory policies",
			mismatch("memory policy", got, wanted))
	}
	known, err := modes()
	if err != nil {
		return fmt.Errorf("memory policy %s: the OCI runtime does not report its memory policies "+
			"(runc does from 1.4, crun from 1.24): %w", wanted, err)
	}
	if !slices.Contains(known, want.OCIMode()) {
		return fmt.Errorf("memory policy %s: the OCI runtime knows the modes [%s] only and would ignore this policy: "+
			"use runc 1.4, crun 1.24 or later",
			wanted, strings.Join(known, " "))
	}
	return nil
}

func text[F ~string](mode, nodes string, flags ...F) string {
	words := []string{mode, nodes}
	for _, f := range flags {
		words = append(words, string(f))
	}
	return strings.Join(words, " ")
}

// featuresTimeout is below the hook's usual timeout.
const featuresTimeout = 10 * time.Second

// PolicyModes returns the memory policies that the OCI runtime knows. It asks the
// parent process, which is the OCI runtime that runs this hook.
func PolicyModes() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), featuresTimeout)
	defer cancel()
	runtime := fmt.Sprintf("/proc/%d/exe", os.Getppid())
	name, err := os.Readlink(runtime)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, runtime, "features").Output()
	if err != nil {
		return nil, fmt.Errorf("%s features: %w", name, err)
	}
	var f features.Features
	if err := json.Unmarshal(out, &f); err != nil {
		return nil, fmt.Errorf("%s features: %w", name, err)
	}
	if f.Linux == nil || f.Linux.MemoryPolicy == nil {
		return nil, nil
	}
	return f.Linux.MemoryPolicy.Modes, nil
}
