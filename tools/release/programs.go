// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programPath is the path of a program below the release's directory.
func programPath(program, arch string) string { return program + "-linux-" + arch }

// tags are the build tags of `make build`; the Makefile has the reason.
const tags = "grpcnotrace"

// build builds a program, static, without the time and the directory of the build.
func build(ctx context.Context, o options, program, arch string) error {
	out, err := filepath.Abs(filepath.Join(o.out, programPath(program, arch)))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags,
		"-ldflags", "-s -w -buildid= -X main.version="+o.version, "-o", out, "./cmd/"+program)
	cmd.Dir = o.root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off", "GOFLAGS=")
	return output(cmd)
}

// billOfMaterials writes the modules that a program is linked from, with their
// licences, as CycloneDX.
func billOfMaterials(ctx context.Context, o options, program string) error {
	out, err := filepath.Abs(filepath.Join(o.out, program+".cdx.json"))
	if err != nil {
		return err
	}
	tool, err := filepath.Abs("go.mod")
	if err != nil {
		return err
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	// No serial number and no time, which are new in each run. The modules are the same on all architectures.
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile="+tool, "cyclonedx-gomod", "app", "-json", "-licenses", "-std",
		"-noserial", "-notimestamp", "-output", out, "-main", "cmd/"+program, root)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "GOFLAGS=-tags="+tags)
	return output(cmd)
}

func output(cmd *exec.Cmd) error {
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, text)
	}
	return nil
}

// notesOf returns the changelog's section of the version, or of what is not released.
func notesOf(changelog, version string) ([]byte, error) {
	data, err := os.ReadFile(changelog)
	if err != nil {
		return nil, err
	}
	for _, heading := range []string{"## " + version, "## Unreleased"} {
		_, after, found := strings.Cut(string(data), "\n"+heading+"\n")
		if !found {
			continue
		}
		section, _, _ := strings.Cut(after, "\n## ")
		return []byte(strings.TrimSpace(section) + "\n"), nil
	}
	return nil, fmt.Errorf("%s has neither a section %s nor one of what is not released", changelog, version)
}

// writeSums writes the checksums of all files below a directory, as sha256sum does.
func writeSums(dir string) error {
	var sums strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "sha256sums.txt"), []byte(sums.String()), 0o644)
}
