// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// checkOOMScore compares the configured oom_score_adj with the decision's. If
// the configured score is higher, the actuator has not seen the container. No
// wait can help, because no cgroup file has the score. So the guard lowers the
// score of the process before the container's program runs. OCI runtimes set the
// score before this hook.
func (h Hook) checkOOMScore(spec *configuration, d contract.Decision, pid int) error {
	own := spec.Process.OOMScoreAdj
	if !d.LowersOOMScore(own) {
		return nil
	}
	err := checkBacked(spec)
	if err == nil && pid <= 0 {
		err = errors.New("the container's state names no process whose score the guard could lower")
	}
	if err == nil {
		err = lowerOOMScore(filepath.Join(h.ProcRoot, strconv.Itoa(pid), "oom_score_adj"), d)
	}
	if err == nil {
		return nil
	}
	got := ""
	if own != nil {
		got = strconv.Itoa(*own)
	}
	return fmt.Errorf("%w; %w", mismatch("oom_score_adj", got, strconv.Itoa(*d.OOMScoreAdj)), err)
}

// checkBacked returns an error if a variable is not the frontend's (I6). A container that
// the actuator has not seen can have variables that its pod's author wrote, and its score
// is the only value that the guard writes. Each device of the frontend brings one
// variable and one guard.
func checkBacked(spec *configuration) error {
	names := make(map[string]bool)
	for _, entry := range spec.Process.Env {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, contract.EnvPrefix) {
			names[name] = true
		}
	}
	if guards := len(guardsOf(spec)); guards < len(names) {
		return fmt.Errorf("the container has %d variables %s... and %d guards, and each variable of dra-frontend comes with a guard: "+
			"remove other variables of this name from the pod's containers and images", len(names), contract.EnvPrefix, guards)
	}
	return nil
}

func lowerOOMScore(file string, d contract.Decision) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if !d.LowersOOMScore(&now) {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.Itoa(*d.OOMScoreAdj)), 0)
}
