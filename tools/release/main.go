// SPDX-License-Identifier: Apache-2.0

// Command release builds a release: both images for each architecture, the chart as
// an OCI artifact, the tool, a bill of materials for each program, the licences, the notes
// and the checksums. The same commit gives the same bytes. It writes them into a directory,
// and pushes images and chart to a registry only with -push.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/mod/semver"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "the repository")
	flag.StringVar(&o.out, "out", "../../_output/release", "directory for the release; must be empty or not there")
	flag.StringVar(&o.version, "version", "", "version of the release, such as v0.2.0")
	flag.StringVar(&o.repository, "repository", "", "where -push pushes to, as registry.example.com/me")
	flag.BoolVar(&o.push, "push", false, "push the images and the chart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type options struct {
	root, out, version, repository string
	push                           bool
}

func (o options) check() error {
	switch {
	case !semver.IsValid(o.version) || semver.Canonical(o.version) != o.version:
		return fmt.Errorf("-version %q: want a version such as v0.2.0", o.version)
	case o.push && o.repository == "":
		return errors.New("-push needs -repository")
	}
	entries, err := os.ReadDir(o.out)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it, or choose another directory with -out", o.out)
	}
	return nil
}

const tool = "cpumem"

// daemons are the programs that have an image.
var daemons = []string{"dra-frontend", "nri-actuator"}

// programsOf returns the programs of a daemon's image. The frontend's has the tool, for
// kubectl exec. The actuator's has the guard, which it installs on the node.
func programsOf(daemon string) []string {
	if daemon == "dra-frontend" {
		return []string{daemon, tool}
	}
	return []string{daemon, "cpumem-guard"}
}

// programs returns all programs.
func programs() []string {
	var all []string
	for _, daemon := range daemons {
		all = append(all, programsOf(daemon)...)
	}
	return all
}

// architectures are what images and tool are built for.
var architectures = []string{"amd64", "arm64"}

func run(ctx context.Context, log io.Writer, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	notes, err := notesOf(filepath.Join(o.root, "CHANGELOG.md"), o.version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "notes.md"), notes, 0o644); err != nil {
		return err
	}
	say := func(format string, values ...any) { fmt.Fprintf(log, "release: "+format+"\n", values...) }
	for _, program := range programs() {
		for _, arch := range architectures {
			say("building %s for %s", program, arch)
			if err := build(ctx, o, program, arch); err != nil {
				return err
			}
		}
		say("listing what %s is made of", program)
		if err := billOfMaterials(ctx, o, program); err != nil {
			return err
		}
	}
	say("collecting the licences")
	if err := writeLicenses(ctx, o); err != nil {
		return err
	}
	artifacts := []artifact{}
	for _, daemon := range daemons {
		image, err := imageOf(o, daemon)
		if err != nil {
			return err
		}
		artifacts = append(artifacts, artifact{repository: daemon, tag: o.version, index: image})
	}
	chart, err := chartOf(o)
	if err != nil {
		return err
	}
	artifacts = append(artifacts, artifact{repository: "charts/" + chartName, tag: o.version[1:], image: chart})
	for _, a := range artifacts {
		digest, err := a.write(filepath.Join(o.out, "oci", filepath.Base(a.repository)))
		if err != nil {
			return err
		}
		say("%s:%s is %s", a.repository, a.tag, digest)
	}
	if err := writeSums(o.out); err != nil {
		return err
	}
	if !o.push {
		say("everything is in %s, nothing is pushed", o.out)
		return nil
	}
	for _, a := range artifacts {
		to, err := name.NewTag(o.repository + "/" + a.repository + ":" + a.tag)
		if err != nil {
			return err
		}
		if err := a.push(to, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
		say("pushed %s", to)
	}
	return nil
}
