// SPDX-License-Identifier: Apache-2.0

// Package records validates files of the CDI directory with the contract's JSON
// Schemas. Tests with a running daemon validate all of its files.
package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	specs "tags.cncf.io/container-device-interface/specs-go"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/schema"
)

// Validator has the compiled schemas.
type Validator struct {
	schemas map[string]*jsonschema.Schema
}

// New compiles the schemas that are checked in.
func New() (*Validator, error) {
	v := &Validator{schemas: map[string]*jsonschema.Schema{}}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, name := range []string{"decision", "claim", "node", "announcement"} {
		data, err := schema.Files.ReadFile(name + ".schema.json")
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		if err := compiler.AddResource(name, doc); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		if v.schemas[name], err = compiler.Compile(name); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
	}
	return v, nil
}

// Record validates the JSON text of a record. name is "decision", "claim", "node" or
// "announcement".
func (v *Validator) Record(name string, text []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s, ok := v.schemas[name]
	if !ok {
		return fmt.Errorf("no schema of record %q", name)
	}
	if err := s.Validate(doc); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// File validates the record in the annotations of a CDI file, and the decisions that
// the file's devices inject.
func (v *Validator) File(data []byte) error {
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	name, ok := map[string]string{
		contract.ClaimKind: "claim", contract.NodeKind: "node", contract.ActuatorKind: "announcement",
	}[spec.Kind]
	if !ok {
		return fmt.Errorf("CDI kind %q is not of the contract", spec.Kind)
	}
	if err := v.Record(name, []byte(spec.Annotations[contract.Vendor+"/record"])); err != nil {
		return err
	}
	for _, device := range spec.Devices {
		for _, env := range device.ContainerEdits.Env {
			variable, value, _ := strings.Cut(env, "=")
			if !strings.HasPrefix(variable, contract.EnvPrefix) {
				continue
			}
			if err := v.Record("decision", []byte(value)); err != nil {
				return fmt.Errorf("device %s: %w", device.Name, err)
			}
		}
	}
	return nil
}
