// SPDX-License-Identifier: Apache-2.0

// Command schemagen writes the JSON Schemas of the contract's records and of the
// claim parameters, from their Go types. With -check it writes no file, and fails if
// a checked-in schema is not current.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", "..", "the repository")
	check := flag.Bool("check", false, "compare with the files instead of writing them")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

// place returns the path of a schema: beside its Go type.
func place(name string) string {
	if name == "claimparameters" {
		return "dra-frontend/parameters/claimparameters.schema.json"
	}
	return "cdi-contract/schema/" + name + ".schema.json"
}

func run(root string, check bool) error {
	schemas, err := generate()
	if err != nil {
		return err
	}
	var stale []error
	for name, schema := range schemas {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(schema); err != nil {
			return fmt.Errorf("schema of %s: %w", name, err)
		}
		path := filepath.Join(root, filepath.FromSlash(place(name)))
		if !check {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				return err
			}
			continue
		}
		if old, err := os.ReadFile(path); err != nil {
			stale = append(stale, err)
		} else if !bytes.Equal(old, b.Bytes()) {
			stale = append(stale, fmt.Errorf("%s is not current: run go run ./contract/schemagen in module test", path))
		}
	}
	return errors.Join(stale...)
}
