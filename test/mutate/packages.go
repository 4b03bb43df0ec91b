// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is a package that is changed.
type source struct {
	path, dir, name string
	// files are the contents of its files, by name, without the tests.
	files  map[string][]byte
	parsed map[string]*ast.File
	set    *token.FileSet
	// importer knows the packages that it imports.
	importer types.Importer
}

// load reads a package.
func load(ctx context.Context, dir string) (source, error) {
	out, err := command(ctx, dir, "list", "-export", "-deps", "-json=ImportPath,Export,Name,Dir,GoFiles", ".")
	if err != nil {
		return source{}, err
	}
	s := source{files: make(map[string][]byte), parsed: make(map[string]*ast.File), set: token.NewFileSet()}
	exports := make(map[string]string)
	decoder := json.NewDecoder(strings.NewReader(out))
	var last struct {
		ImportPath, Export, Name, Dir string
		GoFiles                       []string
	}
	for {
		if err := decoder.Decode(&last); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return source{}, err
		}
		exports[last.ImportPath] = last.Export
	}
	// The package is the last of the list, behind all that it imports.
	s.path, s.dir, s.name = last.ImportPath, last.Dir, last.Name
	for _, name := range last.GoFiles {
		data, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return source{}, err
		}
		s.files[name] = data
		if s.parsed[name], err = parser.ParseFile(s.set, name, data, parser.SkipObjectResolution); err != nil {
			return source{}, err
		}
	}
	s.importer = importer.ForCompiler(s.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return s, nil
}

// compiles reports whether the package compiles with other contents of a file.
func (s source) compiles(name string, content []byte) bool {
	changed, err := parser.ParseFile(s.set, name, content, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	files := []*ast.File{changed}
	for other, file := range s.parsed {
		if other != name {
			files = append(files, file)
		}
	}
	config := types.Config{Importer: s.importer}
	_, err = config.Check(s.path, s.set, files, nil)
	return err == nil
}

// command runs the go command in a directory, and returns its output.
func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s%s", args[0], dir, err, out, failure.String())
	}
	return string(out), nil
}
