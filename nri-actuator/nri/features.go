// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"regexp"
	"strconv"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Features returns the contract features ("requires") that this program
// implements. The node's runtime or kernel may lack some of them.
func Features() []string {
	return []string{contract.FeatureMemoryPolicy, contract.FeatureWeightedInterleave, contract.FeaturePartition, contract.FeatureOOMScore}
}

// available returns the features that a runtime, its NRI version and a kernel
// have. NRI carries an OOM score since 0.7; containerd 2.0.0 and CRI-O 1.32.0
// were the first with that version. NRI carries a memory policy since 0.12, and
// drops it silently before; containerd 2.3.0 and CRI-O 1.37.0 were the first
// with that version. Runtimes do not always know their NRI's version. Linux has
// MPOL_PREFERRED_MANY since 5.15, MPOL_WEIGHTED_INTERLEAVE since 6.9. The OCI
// runtime cannot be seen from here: package guard asks it.
func available(runtime, version, nri, kernel string) []string {
	carried := atLeast(nri, 0, 12) ||
		runtime == "containerd" && atLeast(version, 2, 3) ||
		runtime == "cri-o" && atLeast(version, 1, 37)
	features := []string{}
	if atLeast(nri, 0, 7) || runtime == "containerd" && atLeast(version, 2, 0) || runtime == "cri-o" && atLeast(version, 1, 32) {
		features = append(features, contract.FeatureOOMScore)
	}
	if carried && atLeast(kernel, 5, 15) {
		features = append(features, contract.FeatureMemoryPolicy)
		if atLeast(kernel, 6, 9) {
			features = append(features, contract.FeatureWeightedInterleave)
		}
	}
	return features
}

// features returns the features of this session.
func (s *Session) features() []string {
	runtime := s.runtime.Load()
	features := available(runtime.name, runtime.version, s.nriVersion(), s.Kernel)
	if s.enforcer.Partitions() {
		features = append(features, contract.FeaturePartition)
	}
	return features
}

// checkFeatures refuses a decision that this node cannot apply: the runtime or
// the kernel is older than when the claim was prepared.
func (s *Session) checkFeatures(d contract.Decision) error {
	f, runtime := d.Unknown(s.features()), s.runtime.Load()
	switch f {
	case "":
		return nil
	case contract.FeaturePartition:
		return fmt.Errorf("its claim requires a cpuset partition, which this node (Linux %s) does not have any more", s.Kernel)
	case contract.FeatureOOMScore:
		return fmt.Errorf("its claim requires an OOM score, which %s %s (NRI %s) cannot set: it needs NRI 0.7 (containerd 2.0, CRI-O 1.32)",
			runtime.name, runtime.version, s.nriVersion())
	}
	return fmt.Errorf("its claim requires %q, which %s %s (NRI %s) on Linux %s cannot do: "+
		"it needs NRI 0.12 (containerd 2.3, CRI-O 1.37) and Linux 5.15, 6.9 for %s",
		f, runtime.name, runtime.version, s.nriVersion(), s.Kernel, contract.FeatureWeightedInterleave)
}

var majorMinor = regexp.MustCompile(`^v?([0-9]{1,4})\.([0-9]{1,4})\b`)

// atLeast reports whether the version's first two numbers are at least
// major.minor. A text without them is less.
func atLeast(version string, major, minor int) bool {
	m := majorMinor.FindStringSubmatch(version)
	if m == nil {
		return false
	}
	x, _ := strconv.Atoi(m[1])
	y, _ := strconv.Atoi(m[2])
	return x > major || x == major && y >= minor
}

// namesDevices reports whether the runtime names a container's CDI devices, as
// containerd does since 2.3. A runtime that does not name them gives an empty
// list, so the version says what an empty list means.
func namesDevices(runtime, version string) bool {
	return runtime == "containerd" && atLeast(version, 2, 3)
}
