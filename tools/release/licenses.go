// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licensesFile has the licences of all that the programs are linked from: who passes a program on, passes the licences on as well.
const licensesFile = "licenses.txt"

// module is a part of a program with licences of its own.
type module struct{ name, dir string }

// modulesOf returns the modules of other projects that the programs are linked from, and Go's standard library.
func modulesOf(ctx context.Context, o options) ([]module, error) {
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{if and .Version (not .Replace)}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}"}
	for _, program := range programs() {
		args = append(args, "./cmd/"+program)
	}
	listed, err := goTool(ctx, o, args...)
	if err != nil {
		return nil, err
	}
	goRoot, err := goTool(ctx, o, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	found := map[module]bool{{"the standard library of Go", strings.TrimSpace(goRoot)}: true}
	for line := range strings.Lines(listed) {
		if name, dir, is := strings.Cut(strings.TrimSpace(line), "\t"); is {
			found[module{name, dir}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b module) int { return strings.Compare(a.name, b.name) }), nil
}

func goTool(ctx context.Context, o options, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "GOFLAGS=-tags="+tags)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}

// licenseName matches the files that a licence wants to be passed on.
var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licenses returns the licences of the modules, each text once, below the names of the modules that have it. A module without a
// licence is an error.
func licenses(modules []module) ([]byte, error) {
	of := make(map[string][]string)
	var texts []string // in the order of the first module that has it
	for _, m := range modules {
		entries, err := os.ReadDir(m.dir)
		if err != nil {
			return nil, err
		}
		has := false
		for _, entry := range entries {
			if entry.IsDir() || !licenseName.MatchString(entry.Name()) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(m.dir, entry.Name()))
			if err != nil {
				return nil, err
			}
			text := strings.TrimSpace(string(data))
			if of[text] == nil {
				texts = append(texts, text)
			}
			of[text], has = append(of[text], m.name), true
		}
		if !has {
			return nil, fmt.Errorf("module %s has no licence in %s", m.name, m.dir)
		}
	}
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "%s\n\n%s\n\n%s\n\n", strings.Join(of[text], "\n"), text, strings.Repeat("=", 80))
	}
	return []byte(b.String()), nil
}

// writeLicenses writes the file of licences into the release's directory.
func writeLicenses(ctx context.Context, o options) error {
	modules, err := modulesOf(ctx, o)
	if err != nil {
		return err
	}
	text, err := licenses(modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, licensesFile), text, 0o644)
}
