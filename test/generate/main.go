// SPDX-License-Identifier: Apache-2.0

// Command generate writes the files that follow from Go types: the JSON Schemas of
// the contract's records and of the claim parameters, the chart's schema of config,
// the chart's list of the daemon's defaults, the table in docs/reference/configuration.md, the
// tables in docs/reference/metrics.md, and the chart's policy for claims, dashboard and page.
// With -check it writes no file, and fails if a file is not current.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/jsonschema-go/jsonschema"
)

func main() {
	root := flag.String("root", "..", "the repository")
	check := flag.Bool("check", false, "compare with the files instead of writing them")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// next makes a file's content from its present content.
type next func(present []byte) ([]byte, error)

// generated returns the generated files by path below root.
func generated(root string) (map[string]next, error) {
	all := map[string]next{
		"charts/dra-driver-cpumem/values.schema.json":         insertSchema,
		"charts/dra-driver-cpumem/files/config-defaults.yaml": func([]byte) ([]byte, error) { return defaults() },
		"docs/reference/configuration.md": func(present []byte) ([]byte, error) {
			return insertTable(present, filepath.Join(root, "dra-frontend", "config", "config.go"))
		},
	}
	all["docs/reference/metrics.md"] = insertMetrics
	all["charts/dra-driver-cpumem/files/dashboard.json"] = func([]byte) ([]byte, error) { return dashboard() }
	all["charts/dra-driver-cpumem/files/claim-policy.yaml"] = func([]byte) ([]byte, error) { return claimPolicy() }
	all["charts/dra-driver-cpumem/README.md"] = func([]byte) ([]byte, error) {
		values, err := os.ReadFile(filepath.Join(root, "charts", "dra-driver-cpumem", "values.yaml"))
		if err != nil {
			return nil, err
		}
		return chartReadme(values)
	}
	records, err := records()
	if err != nil {
		return nil, err
	}
	for name, schema := range records {
		all["cdi-contract/schema/"+name+".schema.json"] = func([]byte) ([]byte, error) { return encode(schema, "") }
	}
	parameters, err := claimParameters()
	if err != nil {
		return nil, err
	}
	all["dra-frontend/parameters/claimparameters.schema.json"] = func([]byte) ([]byte, error) { return encode(parameters, "") }
	return all, nil
}

// encode returns the schema's text. Each line but the first begins with prefix.
func encode(schema *jsonschema.Schema, prefix string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(prefix, "  ")
	err := enc.Encode(schema)
	return b.Bytes(), err
}

func run(root string, check bool) error {
	all, err := generated(root)
	if err != nil {
		return err
	}
	var stale []error
	for path, next := range all {
		path := filepath.Join(root, filepath.FromSlash(path))
		present, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		content, err := next(present)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case bytes.Equal(content, present):
		case check:
			stale = append(stale, fmt.Errorf("%s is not current: run make generate", path))
		default:
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
		}
	}
	return errors.Join(stale...)
}
