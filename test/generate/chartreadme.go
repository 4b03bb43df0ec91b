// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

const chartReadmeHead = `# Chart of dra-driver-cpumem

Installs the DRA driver for CPUs, memory and hugepages of a NUMA node:
[requirements and installation](../../docs/getting-started/install.md), [operations](../../docs/how-to/operations.md),
[rights](../../docs/explanation/security.md). The tables are generated from ` + "`values.yaml`" + `.

<!-- not run: the tests install with images that their nodes have -->
    helm install cpumem charts/dra-driver-cpumem --wait --namespace cpumem-system --create-namespace \
      --set frontend.image.repository=registry.example.com/me/dra-frontend --set frontend.image.tag=v0.1.0 \
      --set actuator.image.repository=registry.example.com/me/nri-actuator --set actuator.image.tag=v0.1.0

`

// chartReadme returns the chart's page: a table for each section of the values, with
// their comments.
func chartReadme(values []byte) ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(values, &file); err != nil {
		return nil, err
	}
	var general, sections bytes.Buffer
	top := file.Content[0].Content
	comment := ""
	for i := 0; i < len(top); i += 2 {
		key, value := top[i], top[i+1]
		into := &general
		if sectionOf(value) {
			into = &sections
			fmt.Fprintf(into, "\n## %s\n\n", key.Value)
			if about := oneLine(key.HeadComment); about != "" {
				fmt.Fprintf(into, "%s\n\n", about)
			}
			into.WriteString(valuesHeader)
		}
		if err := addValues(into, key, value, "", &comment); err != nil {
			return nil, err
		}
	}
	return bytes.Join([][]byte{
		[]byte(chartReadmeHead), []byte("## General\n\n" + valuesHeader), general.Bytes(), sections.Bytes(),
	}, nil), nil
}

const valuesHeader = "| value | default | meaning |\n|---|---|---|\n"

// sectionOf reports whether the value is an object whose keys have comments.
func sectionOf(value *yaml.Node) bool {
	return value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Style != yaml.FlowStyle && value.Content[0].HeadComment != "" ||
		value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[1].Kind == yaml.MappingNode && sectionOf(value.Content[1])
}

// addValues adds a row for each value below a key. A value without a comment shares
// the comment of the value above it.
func addValues(out *bytes.Buffer, key, value *yaml.Node, prefix string, comment *string) error {
	path := prefix + key.Value
	if sectionOf(value) {
		for i := 0; i < len(value.Content); i += 2 {
			if err := addValues(out, value.Content[i], value.Content[i+1], path+".", comment); err != nil {
				return err
			}
		}
		return nil
	}
	if key.HeadComment != "" {
		*comment = oneLine(key.HeadComment)
	}
	if *comment == "" {
		return fmt.Errorf("%s has no comment", path)
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	var decoded any
	if err := sigsyaml.Unmarshal(text, &decoded); err != nil {
		return err
	}
	shown, err := json.Marshal(decoded)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", path, shown, strings.ReplaceAll(*comment, "|", `\|`))
	return err
}

// oneLine returns a comment without its signs and line breaks. Indented lines are a
// list.
func oneLine(comment string) string {
	var words []string
	inList := false
	for line := range strings.Lines(comment) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "#")
		if strings.HasPrefix(text, "   ") && strings.Contains(strings.TrimSpace(text), "  ") {
			name, meaning, _ := strings.Cut(strings.TrimSpace(text), "  ")
			text, inList = "<br>`"+name+"`: "+strings.TrimSpace(meaning), true
		} else if inList && !strings.HasPrefix(text, "   ") {
			text, inList = "<br>"+strings.TrimSpace(text), false
		}
		words = append(words, strings.Fields(text)...)
	}
	return strings.Join(words, " ")
}
