// SPDX-License-Identifier: Apache-2.0

// Command schemagen writes the JSON Schemas of the contract's records, which
// it derives from the Go types. With -check it writes nothing and fails if a
// schema that is checked in is not current.
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
	dir := flag.String("dir", filepath.Join("..", "cdi-contract", "schema"), "directory of the schemas")
	check := flag.Bool("check", false, "compare with the files instead of writing them")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
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
		path := filepath.Join(dir, name+".schema.json")
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
