// SPDX-License-Identifier: Apache-2.0

package parameters

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

// Settings are the parameters of one result, with the defaults of the class and of
// the configuration.
type Settings struct {
	CPU placement.Options
	// Isolation is cpu.isolation, empty if the node's Exclusivity decides.
	Isolation, Exclusivity string
	Quiet                  Quiet
	Memory                 memoryqos.Policy
	// MemoryPolicy is the mode of the kernel's memory policy, empty for none.
	MemoryPolicy string
	// Hugepages is config.HugepagesClaim, HugepagesUnlimited or
	// HugepagesUnchanged.
	Hugepages string
	// OnTop reports whether claims count on top of the requests and limits of
	// pods (nodeAllocatable), and are not mirrored in them.
	OnTop bool
	// HugepagesMount is hugepages.mount, nil if no parameters have it.
	HugepagesMount *bool
	// protects reports whether the driver writes memory.min, memory.low and
	// memory.high of containers.
	protects bool
}

// Defaults returns the settings of a claim without parameters. pageSize is the
// base page size in bytes.
func Defaults(c config.Config, pageSize int64) Settings {
	s := Settings{
		CPU:         placement.Options{Placement: c.CPU.Placement, WholeCores: c.CPU.WholeCores},
		Exclusivity: c.Exclusivity,
		Quiet: Quiet{
			Interrupts: Interrupts{Mode: c.CPU.Interrupts}, Quota: c.CPU.Quota, Housekeeping: c.CPU.Housekeeping,
		},
		Memory:    memoryqos.Policy{Protection: memoryqos.None, PageSize: pageSize},
		Hugepages: c.Hugepages.Limits,
		OnTop:     c.NodeAllocatable,
		protects:  c.MemoryQoS.Owner != config.OwnerNone,
	}
	if s.protects {
		s.Memory.Protection = memoryqos.Protection(c.MemoryQoS.Protection)
		s.Memory.Factor = c.MemoryQoS.ThrottlingFactor
	}
	return s
}

// Resolve returns the settings of the result of a request ("request" or
// "request/subrequest"). configs are the allocation's parameters for the
// request, in their order; parameters of other drivers are skipped.
func (s Settings) Resolve(request string, configs []resourceapi.DeviceAllocationConfiguration) (Settings, error) {
	var sources []source
	var errs []error
	for _, c := range configs {
		if c.Opaque == nil || c.Opaque.Driver != contract.Vendor {
			continue
		}
		p, err := Decode(c.Opaque.Parameters.Raw)
		if err == nil && c.Source != resourceapi.AllocationConfigSourceClass {
			err = p.refuseUnlimitedHugepages()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", origin(c), err))
			continue
		}
		sources = append(sources, source{ClaimParameters: p, rank: rank(request, c)})
	}
	if len(errs) > 0 {
		return s, bounded(errors.Join(errs...))
	}
	p, err := merge(sources)
	if err != nil {
		return s, err
	}
	return s.with(p)
}

// refuseUnlimitedHugepages is for parameters of a claim: a container without a
// limit can take the pages of other claims (I2), so only an administrator may
// allow it.
func (p ClaimParameters) refuseUnlimitedHugepages() error {
	if l := p.Hugepages.Limits; l != nil && *l == config.HugepagesUnlimited {
		return fmt.Errorf("hugepages.limits: %s is not a claim's to ask for, "+
			"because its containers could take the pages of other claims: "+
			"claim as many as are needed, or use a DeviceClass with this parameter", config.HugepagesUnlimited)
	}
	return nil
}

// origin names the source of parameters.
func origin(c resourceapi.DeviceAllocationConfiguration) string {
	from := "the claim"
	if c.Source == resourceapi.AllocationConfigSourceClass {
		from = "the DeviceClass"
	}
	if len(c.Requests) == 0 {
		return from + "'s parameters for all requests"
	}
	return fmt.Sprintf("%s's parameters for %s", from, strings.Join(c.Requests, ", "))
}

// rank orders sources: the claim's before its class's, then parameters for the
// subrequest, for the request, for all requests.
func rank(request string, c resourceapi.DeviceAllocationConfiguration) int {
	r := 0
	if c.Source != resourceapi.AllocationConfigSourceClass {
		r = 10
	}
	switch {
	case slices.Contains(c.Requests, request) && strings.Contains(request, "/"):
		return r + 2
	case len(c.Requests) > 0:
		return r + 1
	}
	return r
}

// source is decoded parameters; the higher rank wins.
type source struct {
	ClaimParameters
	rank int
}

// merge merges the sources field by field. Different values of a field from two
// sources of the same rank are an error: a user cannot know their order.
func merge(sources []source) (ClaimParameters, error) {
	slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(b.rank, a.rank) })
	var p ClaimParameters
	err := errors.Join(
		choose(sources, "cpu.placement", &p.CPU.Placement, func(p ClaimParameters) *string { return p.CPU.Placement }),
		choose(sources, "cpu.wholeCores", &p.CPU.WholeCores, func(p ClaimParameters) *bool { return p.CPU.WholeCores }),
		choose(sources, "cpu.wholeL3", &p.CPU.WholeL3, func(p ClaimParameters) *bool { return p.CPU.WholeL3 }),
		choose(sources, "cpu.cores", &p.CPU.Cores, func(p ClaimParameters) *string { return p.CPU.Cores }),
		choose(sources, "cpu.isolation", &p.CPU.Isolation, func(p ClaimParameters) *string { return p.CPU.Isolation }),
		choose(sources, "cpu.interrupts", &p.CPU.Interrupts, func(p ClaimParameters) *Interrupts { return p.CPU.Interrupts }),
		choose(sources, "cpu.quota", &p.CPU.Quota, func(p ClaimParameters) *string { return p.CPU.Quota }),
		choose(sources, "cpu.wakeupLatency", &p.CPU.WakeupLatency, func(p ClaimParameters) *Latency { return p.CPU.WakeupLatency }),
		choose(sources, "cpu.governor", &p.CPU.Governor, func(p ClaimParameters) *Governor { return p.CPU.Governor }),
		choose(sources, "cpu.minFrequency", &p.CPU.MinFrequency, func(p ClaimParameters) *Frequency { return p.CPU.MinFrequency }),
		choose(sources, "cpu.maxFrequency", &p.CPU.MaxFrequency, func(p ClaimParameters) *Frequency { return p.CPU.MaxFrequency }),
		choose(sources, "cpu.housekeeping", &p.CPU.Housekeeping, func(p ClaimParameters) *string { return p.CPU.Housekeeping }),
		choose(sources, "memory.limit", &p.Memory.Limit, func(p ClaimParameters) *Limit { return p.Memory.Limit }),
		choose(sources, "memory.throttlingFactor", &p.Memory.ThrottlingFactor, func(p ClaimParameters) *float64 {
			return p.Memory.ThrottlingFactor
		}),
		choose(sources, "memory.protection", &p.Memory.Protection, func(p ClaimParameters) *string { return p.Memory.Protection }),
		choose(sources, "memory.policy", &p.Memory.Policy, func(p ClaimParameters) *string { return p.Memory.Policy }),
		choose(sources, "hugepages.limits", &p.Hugepages.Limits, func(p ClaimParameters) *string { return p.Hugepages.Limits }),
		choose(sources, "hugepages.mount", &p.Hugepages.Mount, func(p ClaimParameters) *bool { return p.Hugepages.Mount }),
	)
	return p, err
}

// choose sets the field from the first of the sorted sources that has it.
func choose[T comparable](sources []source, field string, to **T, get func(ClaimParameters) *T) error {
	rank := 0
	for _, s := range sources {
		value := get(s.ClaimParameters)
		switch {
		case value == nil:
		case *to == nil:
			*to, rank = value, s.rank
		case s.rank == rank && *value != **to:
			return fmt.Errorf("%s is given twice for this request, as %v and %v: give it once", field, **to, *value)
		}
	}
	return nil
}

// with returns the settings with the parameters' values.
func (s Settings) with(p ClaimParameters) (Settings, error) {
	set(&s.CPU.Placement, p.CPU.Placement)
	set(&s.CPU.WholeL3, p.CPU.WholeL3)
	set(&s.CPU.Cores, p.CPU.Cores)
	set(&s.Isolation, p.CPU.Isolation)
	s.Quiet = s.Quiet.with(p.CPU)
	if low, high := s.Quiet.MinFrequency, s.Quiet.MaxFrequency; low != nil && high != nil && *low > *high {
		return s, fmt.Errorf("cpu.minFrequency: %s is above cpu.maxFrequency %s: raise the one, or lower the other", *low, *high)
	}
	set(&s.MemoryPolicy, p.Memory.Policy)
	set(&s.Hugepages, p.Hugepages.Limits)
	s.HugepagesMount = p.Hugepages.Mount
	if p.CPU.WholeCores != nil {
		// A node with whole cores keeps to them: a claim that breaks a core
		// would leave too few cores for other claims (I2).
		s.CPU.WholeCores = s.CPU.WholeCores || *p.CPU.WholeCores
	}
	if p.Memory.Limit != nil {
		s.Memory.Limit = contract.Limit(*p.Memory.Limit)
	}
	if !s.protects {
		return s, s.refuseProtection(p.Memory)
	}
	if p.Memory.ThrottlingFactor != nil {
		s.Memory.Factor = p.Memory.ThrottlingFactor
	}
	if p.Memory.Protection != nil {
		s.Memory.Protection = memoryqos.Protection(*p.Memory.Protection)
	}
	return s, nil
}

func set[T any](to *T, value *T) {
	if value != nil {
		*to = *value
	}
}

// refuseProtection refuses parameters without effect on this node.
func (s Settings) refuseProtection(m Memory) error {
	const why = "but the driver of this node does not protect memory (memoryQoS.owner of its configuration is none)"
	if m.ThrottlingFactor != nil {
		return fmt.Errorf("memory.throttlingFactor: %v, %s: leave it out", *m.ThrottlingFactor, why)
	}
	if p := m.Protection; p != nil && *p != string(memoryqos.Auto) && *p != string(memoryqos.None) {
		return fmt.Errorf("memory.protection: %q, %s: want auto or none", *p, why)
	}
	return nil
}

// Limits returns the hugepage limits for claimed amounts in bytes by page size;
// nil leaves kubelet's limits.
func (s Settings) Limits(amounts map[string]int64) map[string]contract.Limit {
	if s.Hugepages == config.HugepagesUnchanged || len(amounts) == 0 {
		return nil
	}
	limits := make(map[string]contract.Limit, len(amounts))
	for size, amount := range amounts {
		limits[size] = contract.Limit(amount)
		if s.Hugepages == config.HugepagesUnlimited {
			limits[size] = contract.Max
		}
	}
	return limits
}

// Record returns the settings that a decision depends on, field to value, for
// the claim's record and for people.
func (s Settings) Record(d contract.Decision, hugepages bool) map[string]string {
	out := make(map[string]string)
	add := func(field, value string) {
		if value != "" {
			out[field] = value
		}
	}
	if !d.CPUs.IsEmpty() {
		add("cpu.placement", s.CPU.Placement)
		add("cpu.wholeCores", strconv.FormatBool(s.CPU.WholeCores))
		add("cpu.wholeL3", strconv.FormatBool(s.CPU.WholeL3))
		add("cpu.cores", s.CPU.Cores)
		add("cpu.isolation", map[string]string{
			contract.PartitionRoot: IsolationPartition, contract.PartitionIsolated: IsolationIsolated,
		}[d.Partition])
		s.Quiet.describe(add)
	}
	if d.Memory != nil {
		add("memory.protection", string(s.Memory.Protection))
		if s.Memory.Limit > 0 {
			add("memory.limit", Limit(s.Memory.Limit).String())
		}
		if s.Memory.Factor != nil {
			add("memory.throttlingFactor", strconv.FormatFloat(*s.Memory.Factor, 'g', -1, 64))
		}
	}
	if !d.Mems.IsEmpty() {
		add("memory.policy", s.MemoryPolicy)
	}
	if hugepages {
		add("hugepages.limits", s.Hugepages)
	}
	return out
}
