// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// The forms of strings. A schema accepts all that the decoder accepts. The decoder
// checks more, for example that a list is normalised.
const (
	uidForm          = `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	idForm           = `(0|[1-9][0-9]{0,4})`
	listForm         = `^` + idForm + `(-` + idForm + `)?(,` + idForm + `(-` + idForm + `)?)*$`
	pageSizeForm     = `^((1|2|4|8|16|32|64|128|256|512)[KM]i|[1-9][0-9]{0,9}Gi)$`
	amountForm       = `^(max|0|[1-9][0-9]{0,18})$`
	podFileForm      = `^(memory\.(min|low)|hugetlb\.[1-9][0-9]{0,8}[KMG]B\.(rsvd\.)?max)$`
	ancestorFileForm = `^memory\.(min|low)$`
	limitForm        = `^(unlimited|[0-9]{1,19}(\.[0-9]{1,9})?([kMGTPE]|[KMGTPE]i)?)$`
	pathForm         = `^/([^/]+(/[^/]+)*)?$`
	quotaForm        = `^(max|[1-9][0-9]{0,18}) [1-9][0-9]{0,6}$`
	frequencyForm    = `^[1-9][0-9]{0,9}$`
	cgroupForm       = `^[^/]+(/[^/]+)*$`
)

// records returns the schema of each of the contract's records by name.
func records() (map[string]*jsonschema.Schema, error) {
	schemas := map[string]*jsonschema.Schema{}
	for name, record := range map[string]struct {
		value       any
		title       string
		description string
		refine      func(*jsonschema.Schema)
	}{
		"decision": {contract.Decision{}, "Container decision",
			"The value of a variable " + contract.EnvPrefix + "(claim UID without dashes)_(index).", decision},
		"claim": {contract.ClaimRecord{}, "Claim record",
			"The annotation " + contract.Vendor + "/record of a claim file.", claim},
		"node": {contract.NodeState{}, "Node state",
			"The annotation " + contract.Vendor + "/record of " + contract.NodeFile + ".", node},
		"announcement": {contract.Announcement{}, "Announcement",
			"The annotation " + contract.Vendor + "/record of " + contract.ActuatorFile + ".", announcement},
	} {
		s, err := jsonschema.ForType(reflect.TypeOf(record.value), &jsonschema.ForOptions{
			TypeSchemas: map[reflect.Type]*jsonschema.Schema{
				reflect.TypeFor[contract.Limit]():       limit(1),
				reflect.TypeFor[contract.CPUSet]():      {Type: "string", Pattern: listForm},
				reflect.TypeFor[contract.NUMANodeSet](): {Type: "string", Pattern: listForm},
			},
		})
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		open(s)
		record.refine(s)
		s.Schema = "https://json-schema.org/draft/2020-12/schema"
		s.ID = "urn:" + contract.Vendor + ":" + contract.Version + ":" + name
		s.Title, s.Description = record.title, record.description
		schemas[name] = s
	}
	return schemas, nil
}

// open changes an inferred schema to the contract's rules: a record may have unknown
// members, no value is null, and an optional member is absent or not empty.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) > 0 {
		s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
		s.Type, s.Types = s.Types[0], nil
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	open(s.Items)
	open(s.AdditionalProperties)
	for name, p := range s.Properties {
		open(p)
		if slices.Contains(s.Required, name) {
			continue
		}
		switch {
		case p.Type == "string":
			p.MinLength = new(1)
		case p.Type == "array":
			p.MinItems = new(1)
		case p.Type == "object" && p.Properties == nil:
			p.MinProperties = new(1)
		}
	}
}

// limit returns the schema of an amount: a multiple of unit bytes, or "max".
func limit(unit float64) *jsonschema.Schema {
	bytes := &jsonschema.Schema{Type: "integer", Minimum: new(0.0)}
	if unit > 1 {
		bytes.MultipleOf = &unit
	}
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{bytes, constant("max")}}
}

func constant(v any) *jsonschema.Schema { return &jsonschema.Schema{Const: &v} }

func version(s *jsonschema.Schema) { s.Properties["v"] = constant(contract.Version) }

func decision(s *jsonschema.Schema) {
	version(s)
	for name := range s.Properties["memory"].Properties {
		s.Properties["memory"].Properties[name] = limit(4096)
	}
	hugepages(s.Properties["hugepages"])
	policy := s.Properties["memoryPolicy"]
	policy.Properties["mode"].Enum = modes()
	s.Properties["quota"] = constant(contract.QuotaNone)
	s.Properties["oomScoreAdj"].Minimum, s.Properties["oomScoreAdj"].Maximum = new(-1000.0), new(1000.0)
	// requires is always written and may be empty, unlike other optional members.
	s.Properties["requires"].MinItems = nil
	s.Properties["requires"].Items.MinLength = new(1)
}

func modes() []any {
	var all []any
	for _, mode := range contract.MemoryPolicyModes() {
		all = append(all, mode)
	}
	return all
}

func hugepages(s *jsonschema.Schema) {
	s.PropertyNames = &jsonschema.Schema{Pattern: pageSizeForm}
	s.AdditionalProperties = limit(1024)
}

func claim(s *jsonschema.Schema) {
	version(s)
	for _, name := range []string{"namespace", "name", "bootID"} {
		s.Properties[name].MinLength = new(1)
	}
	s.Properties["uid"].Pattern = uidForm
	s.Properties["guard"].Pattern = pathForm
	s.Properties["guardTimeout"].Minimum = new(0.0)

	pod := s.Properties["pods"].Items
	pod.Properties["uid"].Pattern = uidForm
	pod.Properties["qos"].Enum = levels()
	hugepages(pod.Properties["hugepages"])
	pod.Properties["cpuLimit"].Properties["milli"].Minimum = new(1.0)

	s.Properties["results"].MinItems = new(1)
	result := s.Properties["results"].Items
	for _, name := range []string{"request", "pool", "device"} {
		result.Properties[name].MinLength = new(1)
	}
	result.Properties["hugetlbfs"].Items.Pattern = pageSizeForm
	quiet := result.Properties["quiet"]
	device(quiet.Properties["device"])
	cpuFiles(quiet.Properties["files"])
	decision(result.Properties["decision"])
}

func levels() []any {
	return []any{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}
}

func node(s *jsonschema.Schema) {
	version(s)
	s.Properties["bootID"].MinLength = new(1)
	pods := s.Properties["pods"]
	pods.PropertyNames = &jsonschema.Schema{Pattern: uidForm}
	claims := pods.AdditionalProperties.Properties["claims"]
	claims.MinItems = new(1)
	claims.Items.Pattern = uidForm
	files(pods.AdditionalProperties.Properties["cgroup"], podFileForm)
	pods.AdditionalProperties.Properties["requires"].Items.MinLength = new(1)
	pods.AdditionalProperties.Properties["quota"].Pattern = quotaForm
	machine := s.Properties["machine"]
	device(machine.Properties["deviceInterrupts"].Items.Properties["pattern"])
	cpuFiles(machine.Properties["cpus"].Items.Properties["files"])

	ancestors := s.Properties["ancestors"]
	ancestors.PropertyNames = &jsonschema.Schema{Enum: levels()}
	files(ancestors.AdditionalProperties, ancestorFileForm)
}

func device(s *jsonschema.Schema) {
	s.Pattern, s.MinLength, s.MaxLength = contract.PatternForm, nil, new(contract.MaxPattern)
}

func cpuFiles(s *jsonschema.Schema) {
	s.AdditionalProperties = nil
	s.MinProperties = new(1)
	s.Properties = make(map[string]*jsonschema.Schema)
	for file, form := range map[string]string{
		contract.FileWakeupLatency: `^(n/a|[1-9][0-9]{0,8})$`, contract.FileGovernor: `^[a-z_]{1,15}$`,
		contract.FileMinFrequency: frequencyForm, contract.FileMaxFrequency: frequencyForm,
	} {
		s.Properties[file] = &jsonschema.Schema{Type: "string", Pattern: form}
	}
	s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
}

func files(s *jsonschema.Schema, names string) {
	s.PropertyNames = &jsonschema.Schema{Pattern: names}
	s.AdditionalProperties.Pattern = amountForm
}

func announcement(s *jsonschema.Schema) {
	version(s)
	s.Properties["guard"].Pattern = pathForm
	s.Properties["kubepods"].Pattern = cgroupForm
	s.Properties["started"].Format = "date-time"
}
