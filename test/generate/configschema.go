// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// maxRootDir is the longest kubeletRootDir: the sockets below it must fit into a
// socket address.
const maxRootDir = 42

// schema returns the schema of the value config. The references are to the chart's
// definitions.
func schema() (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(reflect.TypeFor[config.Config](), &jsonschema.ForOptions{
		TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[resource.Quantity](): ref("quantity"),
			reflect.TypeFor[metav1.Duration]():   {Type: "string"},
		},
	})
	if err != nil {
		return nil, err
	}
	withoutNull(s)
	for _, choice := range config.Choices() {
		p := at(s, choice.Key)
		if p.Type == "array" {
			p = p.Items
		}
		for _, v := range choice.Values {
			p.Enum = append(p.Enum, v)
		}
		p.Type = ""
	}
	memoryTypes := at(s, "memoryTypes")
	memoryTypes.MinItems, memoryTypes.UniqueItems = new(1), true
	at(s, "sharedPool.minCPUs").Minimum = new(1.0)
	// Helm drops keys that are null, so the factor is not required.
	qos := at(s, "memoryQoS")
	qos.Properties["throttlingFactor"] = &jsonschema.Schema{
		// A number of helm's --set is text.
		OneOf: []*jsonschema.Schema{
			{Types: []string{"number", "null"}, ExclusiveMinimum: new(0.0), Maximum: new(1.0)},
			{Type: "string", Pattern: `^(1|0?\.[0-9]*[1-9][0-9]*)$`},
		},
	}
	qos.Required = remove(qos.Required, "throttlingFactor")
	at(s, "reservedMemory").PropertyNames = ref("nodeID")
	reserved := at(s, "reservedHugepages")
	reserved.PropertyNames = ref("nodeID")
	reserved.AdditionalProperties.PropertyNames = &jsonschema.Schema{Pattern: `^(1|2|4|8|16|32|64|128|256|512)(Ki|Mi|Gi)$`}
	reserved.AdditionalProperties.AdditionalProperties.Minimum = new(0.0)
	at(s, "guardWait").Pattern = `^(0s|[1-9]s|[1-8][0-9]s|90s|1m([1-9]s|[12][0-9]s|30s)?)$`
	at(s, "refreshInterval").Pattern = `^([1-9][0-9]*(s|m|h))+$`
	for key, to := range map[string]*jsonschema.Schema{
		"reservedCPUs": ref("cpuset"), "managedCPUs": ref("cpuset"),
		"cdiDir": ref("path"), "sysfsRoot": ref("path"), "procRoot": ref("path"),
		"kubeletRootDir":    {AllOf: []*jsonschema.Schema{ref("path"), {MaxLength: new(maxRootDir)}}},
		"kubeletConfigFile": {OneOf: []*jsonschema.Schema{{Const: new(any(""))}, ref("path")}},
	} {
		s.Properties[key] = to
	}
	return s, nil
}

func ref(definition string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/definitions/" + definition}
}

// at returns the schema of a key, a path with dots.
func at(s *jsonschema.Schema, key string) *jsonschema.Schema {
	for name := range strings.SplitSeq(key, ".") {
		s = s.Properties[name]
	}
	return s
}

// withoutNull removes null from the types of lists and maps: the chart has a value
// for each key.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Types = remove(s.Types, "null"); len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	withoutNull(s.Items)
	withoutNull(s.AdditionalProperties)
	for _, p := range s.Properties {
		withoutNull(p)
	}
}

func remove(names []string, name string) []string {
	var out []string
	for _, n := range names {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

// insertSchema replaces the schema of config in the chart's schema.
func insertSchema(present []byte) ([]byte, error) {
	s, err := schema()
	if err != nil {
		return nil, err
	}
	begin, end, err := find(present, "properties", "config")
	if err != nil {
		return nil, err
	}
	text, err := encode(s, "    ")
	return bytes.Join([][]byte{present[:begin], bytes.TrimSpace(text), present[end:]}, nil), err
}

// find returns where the value at a path of members begins and ends.
func find(data []byte, path ...string) (begin, end int, err error) {
	if len(path) == 0 {
		return 0, len(data), nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return 0, 0, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return 0, 0, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, err
		}
		if name == path[0] {
			end = int(d.InputOffset())
			begin, length, err := find(value, path[1:]...)
			start := end - len(value)
			return start + begin, start + length, err
		}
	}
	return 0, 0, errors.New("no member " + path[0])
}

// defaults returns the daemon's defaults, which the chart leaves out of the file.
func defaults() ([]byte, error) {
	text, err := yaml.Marshal(config.Default())
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "# The frontend's defaults, from its Go type.\n%s", text), nil
}
