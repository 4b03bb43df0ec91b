// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// claimParameters returns the schema of claim parameters. Unlike the contract's
// schemas it refuses unknown fields.
func claimParameters() (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(reflect.TypeFor[parameters.ClaimParameters](), &jsonschema.ForOptions{
		TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[parameters.Limit](): {Types: []string{"string", "integer"}, Pattern: limitForm, Minimum: new(1.0)},
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
	if len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	for _, p := range s.Properties {
		notNull(p)
	}
}
