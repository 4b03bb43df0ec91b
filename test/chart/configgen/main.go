// SPDX-License-Identifier: Apache-2.0

// Command configgen writes what follows from the Go type of the frontend's
// configuration: the chart's schema of config, the chart's list of the daemon's
// defaults, and the table in docs/configuration.md. With -check it writes no file,
// and fails if a file is not current.
package main

import (
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
		fmt.Fprintln(os.Stderr, "configgen:", err)
		os.Exit(1)
	}
}

// run makes the next content of each file from its present content.
func run(root string, check bool) error {
	var stale []error
	for path, next := range map[string]func(present []byte) ([]byte, error){
		"charts/dra-driver-cpumem/values.schema.json":         insertSchema,
		"charts/dra-driver-cpumem/files/config-defaults.yaml": func([]byte) ([]byte, error) { return defaults() },
		"docs/configuration.md": func(present []byte) ([]byte, error) {
			return insertTable(present, filepath.Join(root, "dra-frontend", "config", "config.go"))
		},
	} {
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
		case string(content) == string(present):
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
