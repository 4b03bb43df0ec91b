// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig compares kubelet's configuration with the driver's: one of
// the two owns memory protection. The daemon runs its Watcher.
package kubeletconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/util/version"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
)

// Kubelet has the settings of kubelet's configuration file that Owners
// needs, without changes by flags and drop-in directories. Only kubelet knows
// these: to ask it (configz) takes the right nodes/proxy, which also allows
// running commands in every pod of the node.
type Kubelet struct {
	Kind                    string          `json:"kind"`
	FeatureGates            map[string]bool `json:"featureGates"`
	MemoryReservationPolicy string          `json:"memoryReservationPolicy"`
}

// maxKubelet is the largest size in bytes, far above a real configuration's.
const maxKubelet = 1 << 20

// Read reads kubelet's configuration file. A replaced file is
// preflight.ErrReplaced.
func Read(path string) (Kubelet, error) {
	f, err := os.Open(path)
	if err != nil {
		return Kubelet{}, fmt.Errorf("kubelet's configuration: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Kubelet{}, fmt.Errorf("kubelet's configuration: %w", err)
	}
	if preflight.Replaced(info) {
		return Kubelet{}, fmt.Errorf("kubelet's configuration %s %w: delete the frontend's pod on this node, the new one sees it",
			path, preflight.ErrReplaced)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKubelet+1))
	if err != nil {
		return Kubelet{}, fmt.Errorf("kubelet's configuration: %w", err)
	}
	if len(data) > maxKubelet {
		return Kubelet{}, fmt.Errorf("kubelet's configuration %s is longer than %d bytes", path, maxKubelet)
	}
	k, err := Parse(data)
	if err != nil {
		return Kubelet{}, fmt.Errorf("kubelet's configuration %s: %w", path, err)
	}
	return k, nil
}

// Parse reads a KubeletConfiguration, YAML or JSON. Like kubelet it
// minds the case of names. It ignores all other fields.
func Parse(data []byte) (Kubelet, error) {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return Kubelet{}, err
	}
	var k Kubelet
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &k); err != nil {
		return Kubelet{}, err
	}
	if k.Kind != "KubeletConfiguration" {
		return Kubelet{}, fmt.Errorf("it is of kind %.60q, not a KubeletConfiguration", k.Kind)
	}
	return k, nil
}

// memoryQoSBeta is the first release with the gate on by default.
var memoryQoSBeta = version.MustParseGeneric("1.37")

// memoryQoSPolicy is the first release with memoryReservationPolicy: from it on
// the gate alone protects no memory.
var memoryQoSPolicy = version.MustParseGeneric("1.36")

// memoryQoS reports whether kubelet's feature gate MemoryQoS is on.
func (k Kubelet) memoryQoS(v *version.Version) bool {
	if on, set := k.FeatureGates["MemoryQoS"]; set {
		return on
	}
	beta := v.AtLeast(memoryQoSBeta)
	all := "AllAlpha"
	if beta {
		all = "AllBeta"
	}
	if on, set := k.FeatureGates[all]; set {
		return on
	}
	return beta
}

// Reasons of findings about kubelet's configuration.
const (
	ReasonSecondOwner = "SecondMemoryOwner"
	ReasonNoOwner     = "NoMemoryOwner"
	ReasonUnknown     = "KubeletConfigUnknown"
)

// Reasons returns all reasons of findings about kubelet's configuration.
func Reasons() []string { return []string{ReasonSecondOwner, ReasonNoOwner, ReasonUnknown} }

// Finding is a fault that people have to mend.
type Finding struct{ Reason, Message string }

// ErrNotShown means that no kubeletConfigFile is set.
var ErrNotShown = errors.New("kubelet's configuration is not shown to the frontend (kubeletConfigFile)")

// tiered is the policy with which kubelet protects requests.
const tiered = "TieredReservation"

// Owners compares the driver's owner of memory protection with the settings of a
// kubelet of that version ("v1.37.0"). err is the error of reading k, if any.
// There is at most one finding, nil if the two fit.
func Owners(owner, kubeletVersion string, k Kubelet, err error) (*Finding, error) {
	if owner == config.OwnerNone {
		return nil, nil
	}
	v, bad := version.ParseGeneric(kubeletVersion)
	if bad != nil {
		return nil, fmt.Errorf("kubelet's version %.60q: %w", kubeletVersion, bad)
	}
	if err != nil {
		return unknown(owner, v, err), nil
	}
	on, policy := k.memoryQoS(v), cmp.Or(k.MemoryReservationPolicy, "None")
	gate, settings := "feature gate MemoryQoS is on, memoryReservationPolicy "+fmt.Sprintf("%.30s", policy),
		"featureGates: {MemoryQoS: true} and memoryReservationPolicy: TieredReservation"
	if !v.AtLeast(memoryQoSPolicy) {
		policy, gate, settings = tiered, "feature gate MemoryQoS is on", "featureGates: {MemoryQoS: true}"
	}
	switch {
	case owner == config.OwnerDriver && on:
		return &Finding{ReasonSecondOwner, fmt.Sprintf("kubelet %s writes memory.min and memory.low of pods' ancestors every minute (%s) "+
			"and so does this driver (memoryQoS.owner driver): "+
			"set featureGates: {MemoryQoS: false} in kubelet's configuration, or memoryQoS.owner: kubelet in the driver's",
			kubeletVersion, gate)}, nil
	case owner == config.OwnerKubelet && !on:
		return &Finding{ReasonNoOwner, fmt.Sprintf("no program protects the memory of pods and their ancestors: "+
			"memoryQoS.owner is kubelet, and kubelet %s has the feature gate MemoryQoS off: "+
			"set %s in kubelet's configuration, or memoryQoS.owner: driver in the driver's", kubeletVersion, settings)}, nil
	case owner == config.OwnerKubelet && policy != tiered:
		return &Finding{ReasonNoOwner, fmt.Sprintf("no program protects the memory of pods and their ancestors: "+
			"memoryQoS.owner is kubelet, and kubelet has memoryReservationPolicy %.30s: "+
			"set it to TieredReservation, or memoryQoS.owner: driver in the driver's configuration", policy)}, nil
	}
	return nil, nil
}

// unknown is the finding if err kept the configuration from being read. It is
// nil for the owner driver if no file is set and the gate is off by default.
func unknown(owner string, v *version.Version, err error) *Finding {
	switch {
	case owner == config.OwnerKubelet:
		return &Finding{ReasonUnknown, fmt.Sprintf("%v: memoryQoS.owner is kubelet, so make sure that kubelet's feature gate "+
			"MemoryQoS is on and memoryReservationPolicy (from 1.36 on) is TieredReservation", err)}
	case v.AtLeast(memoryQoSBeta):
		return &Finding{ReasonUnknown, fmt.Sprintf("%v: memoryQoS.owner is driver, and kubelet 1.37 or later writes the same files: "+
			"make sure that kubelet has featureGates: {MemoryQoS: false}", err)}
	case !errors.Is(err, ErrNotShown):
		return &Finding{ReasonUnknown, fmt.Sprintf("%v: memoryQoS.owner is driver, so make sure that kubelet's feature gate "+
			"MemoryQoS is off", err)}
	}
	return nil
}
