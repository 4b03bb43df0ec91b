// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// claimParameters returns the schema of claim parameters. Unlike the contract's
// schemas it refuses unknown fields.
func claimParameters() (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(reflect.TypeFor[parameters.ClaimParameters](), &jsonschema.ForOptions{
		TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[parameters.Interrupts](): {OneOf: []*jsonschema.Schema{
				{Enum: []any{config.Any, config.None}},
				{
					Type: "object", Required: []string{"device"}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
					Properties: map[string]*jsonschema.Schema{
						"device": {Type: "string", Pattern: contract.PatternForm, MaxLength: new(contract.MaxPattern)},
					},
				},
			}},
			reflect.TypeFor[parameters.Latency](): {OneOf: []*jsonschema.Schema{
				constant(0), {Type: "string", Pattern: parameters.LatencyForm},
			}},
			reflect.TypeFor[parameters.Frequency](): {Type: "string", Pattern: parameters.FrequencyForm},
			reflect.TypeFor[parameters.Governor]():  {Type: "string", Pattern: parameters.GovernorForm},
			reflect.TypeFor[parameters.Limit]():     {Types: []string{"string", "integer"}, Pattern: limitForm, Minimum: new(1.0)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("schema of claim parameters: %w", err)
	}
	notNull(s)
	s.Properties["apiVersion"] = constant(parameters.APIVersion)
	s.Properties["kind"] = constant(parameters.Kind)
	for _, c := range parameters.Choices() {
		group, field, _ := strings.Cut(c.Field, ".")
		for _, v := range c.Values {
			of := s.Properties[group].Properties[field]
			of.Enum = append(of.Enum, v)
		}
	}
	factor := s.Properties["memory"].Properties["throttlingFactor"]
	factor.ExclusiveMinimum, factor.Maximum = new(0.0), new(1.0)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.ID = "urn:" + strings.ReplaceAll(parameters.APIVersion, "/", ":") + ":claimparameters"
	s.Title, s.Description = "Claim parameters", "config[].opaque.parameters of a ResourceClaim or DeviceClass, for the driver dra.cpumem."
	return s, nil
}

// notNull removes null from the types of pointers: an absent field is left out.
func notNull(s *jsonschema.Schema) {
	s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
	switch len(s.Types) {
	case 0:
		s.Types = nil // the schema of the value says which types
	case 1:
		s.Type, s.Types = s.Types[0], nil
	}
	for _, p := range s.Properties {
		notNull(p)
	}
}
