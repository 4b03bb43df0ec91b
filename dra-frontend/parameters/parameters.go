// SPDX-License-Identifier: Apache-2.0

// Package parameters reads the opaque parameters of a DeviceClass or a claim,
// with which users configure a claim beyond its amounts. They come from the API
// server and are hostile until this package has checked them. The result is one
// value, [Settings], in which every choice is made. The package is pure.
package parameters

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/fields"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

// The version and kind of parameters that this program knows.
const (
	APIVersion = contract.Vendor + "/v1alpha1"
	Kind       = "ClaimParameters"
)

// ClaimParameters is the content of config[].opaque.parameters. The first
// source that has a field decides: parameters for the subrequest, for its
// request, for all requests of the claim, of the DeviceClass, and then the
// driver's configuration.
type ClaimParameters struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	CPU        CPU       `json:"cpu,omitzero"`
	Memory     Memory    `json:"memory,omitzero"`
	Hugepages  Hugepages `json:"hugepages,omitzero"`
}

// CPU selects the CPUs of the zone that the claim gets.
type CPU struct {
	// Placement is packed (whole cores, then whole L3s, nearest first) or
	// spread (one thread per core, over the L3s).
	Placement *string `json:"placement,omitempty"`
	// WholeCores takes all threads of a core or none, so that no other
	// container runs on a sibling. A number of CPUs that is no multiple is
	// refused.
	WholeCores *bool `json:"wholeCores,omitempty"`
	// WholeL3 takes all CPUs of a last-level cache or none.
	WholeL3 *bool `json:"wholeL3,omitempty"`
	// Cores is any, performance or efficiency, on machines with both kinds.
	Cores *string `json:"cores,omitempty"`
	// Isolation is none (the shared pool leaves the CPUs out), partition (the
	// kernel keeps them from every other cgroup) or isolated (a partition
	// without load balancing). Absent: the node's exclusivity decides.
	Isolation *string `json:"isolation,omitempty"`
	// Interrupts is any, none (interrupts are kept off the CPUs), or the pattern of a
	// device's interrupts, which come to the CPUs while all other interrupts are kept off.
	Interrupts *Interrupts `json:"interrupts,omitempty"`
	// Quota is keep (the pod's CPU limits throttle the container) or none (they do not).
	Quota *string `json:"quota,omitempty"`
	// WakeupLatency is the longest time in which a CPU may wake up: 0 to 1s.
	WakeupLatency *Latency `json:"wakeupLatency,omitempty"`
	// Governor is a frequency governor of the machine.
	Governor *Governor `json:"governor,omitempty"`
	// MinFrequency and MaxFrequency bound the frequency, as 2.4GHz or 1800MHz.
	MinFrequency *Frequency `json:"minFrequency,omitempty"`
	MaxFrequency *Frequency `json:"maxFrequency,omitempty"`
	// Housekeeping is any or none (the kernel's unbound work queues are kept off the CPUs).
	Housekeeping *string `json:"housekeeping,omitempty"`
}

// Values of cpu.isolation.
const (
	IsolationNone      = "none"
	IsolationPartition = "partition"
	IsolationIsolated  = "isolated"
)

// Memory configures the cgroup values of the claimed memory.
type Memory struct {
	// Limit becomes memory.max: at least the claimed amount, which is the
	// default, or unlimited. A container with a limit in its own spec keeps its
	// limit.
	Limit *Limit `json:"limit,omitempty"`
	// ThrottlingFactor is KEP-2570's factor for memory.high, 0 < f <= 1.
	ThrottlingFactor *float64 `json:"throttlingFactor,omitempty"`
	// Protection is auto, min, low or none.
	Protection *string `json:"protection,omitempty"`
	// Policy is the kernel's memory policy over the zone's NUMA nodes: bind,
	// preferred, interleave or weightedInterleave. Absent: the kernel's
	// default, within cpuset.mems.
	Policy *string `json:"policy,omitempty"`
}

// Hugepages configures the hugepage limits and mounts.
type Hugepages struct {
	// Limits is claim (the claimed amount), unlimited, or unchanged (kubelet's
	// value). A claim may not ask for unlimited, a DeviceClass may.
	Limits *string `json:"limits,omitempty"`
	// Mount gives the container a hugetlbfs of each claimed size. Absent: not
	// in pods with a user namespace or a runtime class.
	Mount *bool `json:"mount,omitempty"`
}

// Allowed has the values of a field that chooses among names.
type Allowed struct {
	Field  string
	Values []string
}

// Choices returns the fields that choose among names.
func Choices() []Allowed {
	return []Allowed{
		{"cpu.placement", []string{placement.Packed, placement.Spread}},
		{"cpu.cores", []string{placement.CoresAny, placement.CoresPerformance, placement.CoresEfficiency}},
		{"cpu.isolation", []string{IsolationNone, IsolationPartition, IsolationIsolated}},
		{"cpu.quota", []string{config.QuotaKeep, config.None}},
		{"cpu.housekeeping", []string{config.Any, config.None}},
		{"memory.protection", []string{string(memoryqos.Auto), string(memoryqos.Min), string(memoryqos.Low), string(memoryqos.None)}},
		{"memory.policy", contract.MemoryPolicyModes()},
		{"hugepages.limits", []string{config.HugepagesClaim, config.HugepagesUnlimited, config.HugepagesUnchanged}},
	}
}

// maxSize, in bytes, is far above the size of useful parameters.
const maxSize = 10 << 10

// maxError bounds the text of an error about parameters, in bytes. The text
// quotes the parameters, and goes into the log and into an event of the pod.
const maxError = 2 << 10

// Decode reads parameters. Unknown, duplicate and miscased fields are errors,
// as are values out of range; all are reported, with the allowed values, in at
// most 2 KiB.
func Decode(raw []byte) (ClaimParameters, error) {
	p, err := decode(raw)
	return p, bounded(err)
}

// bounded returns the first maxError bytes of the error, in printable lines.
func bounded(err error) error {
	if err == nil {
		return nil
	}
	if len(err.Error()) > maxError {
		return errors.New(contract.Excerpt(strings.ReplaceAll(err.Error(), "\n", "; "), maxError))
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = contract.Excerpt(line, len(line))
	}
	if text := strings.Join(lines, "\n"); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func decode(raw []byte) (ClaimParameters, error) {
	var p ClaimParameters
	if len(raw) > maxSize {
		return p, fmt.Errorf("parameters of %d bytes, want at most %d", len(raw), maxSize)
	}
	// The version first: another version may have other fields.
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &meta); err != nil {
		return p, fmt.Errorf("parameters are not a JSON object: %w", err)
	}
	if meta.APIVersion != APIVersion || meta.Kind != Kind {
		return p, fmt.Errorf("parameters of apiVersion %q and kind %q, want %q and %q", meta.APIVersion, meta.Kind, APIVersion, Kind)
	}
	wrong := fields.Decode(raw, &p)
	return p, errors.Join(append(wrong, p.validate())...)
}

func (p ClaimParameters) validate() error {
	var errs []error
	choice := func(field string, value *string) {
		allowed := Choices()
		i := slices.IndexFunc(allowed, func(a Allowed) bool { return a.Field == field })
		if value != nil && !slices.Contains(allowed[i].Values, *value) {
			errs = append(errs, fmt.Errorf("%s: %q, want one of %q", field, *value, allowed[i].Values))
		}
	}
	choice("cpu.placement", p.CPU.Placement)
	choice("cpu.cores", p.CPU.Cores)
	choice("cpu.isolation", p.CPU.Isolation)
	choice("cpu.quota", p.CPU.Quota)
	choice("cpu.housekeeping", p.CPU.Housekeeping)
	choice("memory.protection", p.Memory.Protection)
	choice("memory.policy", p.Memory.Policy)
	choice("hugepages.limits", p.Hugepages.Limits)
	if f := p.Memory.ThrottlingFactor; f != nil && !(*f > 0 && *f <= 1) {
		errs = append(errs, fmt.Errorf("memory.throttlingFactor: %v, want 0 < f <= 1", *f))
	}
	return errors.Join(errs...)
}

// Limit is a quantity of bytes above 0, or Unlimited.
type Limit contract.Limit

// Unlimited is no limit; users write "unlimited".
const Unlimited = Limit(contract.Max)

const unlimited = "unlimited"

// maxBytes is far above the memory of any machine.
const maxBytes = int64(4) << 60

// bytesForm has no exponents: the library would compute with a large exponent
// for hours.
var bytesForm = regexp.MustCompile(`^[0-9]{1,19}(\.[0-9]{1,9})?([kMGTPE]|[KMGTPE]i)?$`)

// UnmarshalJSON reads a string or a number.
func (l *Limit) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == unlimited {
		*l = Unlimited
		return nil
	}
	if bytesForm.MatchString(text) {
		q, err := resource.ParseQuantity(text)
		if err == nil && q.Sign() > 0 && q.Cmp(*resource.NewQuantity(maxBytes, resource.BinarySI)) <= 0 {
			*l = Limit(q.Value())
			return nil
		}
	}
	return fmt.Errorf("%.40s, want a quantity above 0 and at most 4Ei, such as 12Gi, or %s", text, unlimited)
}

// String returns the limit as users read it.
func (l Limit) String() string {
	if l == Unlimited {
		return unlimited
	}
	return strconv.FormatInt(int64(l), 10)
}
