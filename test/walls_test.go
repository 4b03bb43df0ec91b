// SPDX-License-Identifier: Apache-2.0

// Package test has the tests of several modules. This file tests the walls
// between modules, which are also the walls between processes.
package test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const project = "github.com/dra-driver-cpumem/dra-driver-cpumem/"

// dependencies returns the import paths that a module's packages need, without
// tests.
func dependencies(t *testing.T, dir string) []string {
	t.Helper()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	tags := regexp.MustCompile(`(?m)^TAGS := (.+)$`).FindSubmatch(makefile)
	require.Len(t, tags, 2, "TAGS in the Makefile")
	cmd := exec.Command("go", "list", "-deps", "-tags", string(tags[1]), "./...")
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.NotEmpty(t, deps)
	return deps
}

// No module imports a package beyond its wall.
func TestWalls(t *testing.T) {
	for name, wall := range map[string]struct {
		dir     string
		refused func(dep string) bool
	}{
		"the actuator knows no Kubernetes": {"../nri-actuator", func(dep string) bool {
			return strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, project+"dra-frontend")
		}},
		"the actuator's program knows no Kubernetes": {"../cmd/nri-actuator", func(dep string) bool {
			return strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, project+"dra-frontend")
		}},
		"the frontend knows neither NRI nor cgroups": {"../dra-frontend", func(dep string) bool {
			return strings.HasPrefix(dep, "github.com/containerd/nri") || strings.HasPrefix(dep, "github.com/opencontainers/cgroups") ||
				strings.HasPrefix(dep, project+"nri-actuator")
		}},
		"the frontend's program knows no NRI": {"../cmd/dra-frontend", func(dep string) bool {
			return strings.HasPrefix(dep, "github.com/containerd/nri") || strings.HasPrefix(dep, project+"nri-actuator")
		}},
		"the guard is small": {"../cmd/cpumem-guard", func(dep string) bool {
			host, _, _ := strings.Cut(dep, "/")
			return strings.HasPrefix(dep, "net") || strings.HasPrefix(dep, "crypto/") ||
				strings.Contains(host, ".") && !strings.HasPrefix(dep, project) &&
					!strings.HasPrefix(dep, "tags.cncf.io/container-device-interface/specs-go") &&
					!strings.HasPrefix(dep, "github.com/opencontainers/runtime-spec") && !strings.HasPrefix(dep, "golang.org/x/sys/unix")
		}},
		"the contract knows the standard library, CDI and file events only": {"../cdi-contract", func(dep string) bool {
			host, _, _ := strings.Cut(dep, "/")
			return strings.Contains(host, ".") && !strings.HasPrefix(dep, "tags.cncf.io/container-device-interface") &&
				!strings.HasPrefix(dep, project+"cdi-contract") &&
				!strings.HasPrefix(dep, "golang.org/x/mod/semver") &&
				!strings.HasPrefix(dep, "github.com/fsnotify/fsnotify") && !strings.HasPrefix(dep, "golang.org/x/sys/unix")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dep := range dependencies(t, wall.dir) {
				require.False(t, wall.refused(dep), "%s imports %s", wall.dir, dep)
			}
		})
	}
}

// No program links what makes it several times larger: packages that call methods by
// name, for which the linker keeps all of them, the informers of all kinds, and what
// the scheduler alone needs.
func TestProgramsAreSmall(t *testing.T) {
	for _, dir := range []string{"../cmd/nri-actuator", "../cmd/dra-frontend"} {
		t.Run(dir, func(t *testing.T) {
			deps := dependencies(t, dir)
			for _, large := range []string{
				"html/template", "golang.org/x/net/trace", "k8s.io/client-go/informers", "github.com/google/cel-go/cel",
				"k8s.io/dynamic-resource-allocation/structured",
			} {
				require.NotContains(t, deps, large)
			}
		})
	}
}

// What is there for tests only is in no program.
func TestProgramsHaveNoTestCode(t *testing.T) {
	for _, dir := range []string{"../cmd/cpumem-guard", "../cmd/nri-actuator", "../cmd/dra-frontend", "../cmd/cpumem"} {
		t.Run(dir, func(t *testing.T) {
			for _, dep := range dependencies(t, dir) {
				require.NotContains(t, []string{"kerneltest", "contracttest", "topologytest", "testnode"}, path.Base(dep), dep)
			}
		})
	}
}

// What these packages decide and plan depends on their input only: they import
// nothing that does I/O, waits, or knows the time.
func TestDecisionsAreValues(t *testing.T) {
	for dir, packages := range map[string][]string{
		"../nri-actuator": {"tree"},
		"../dra-frontend": {"decision", "partition", "placement", "nodestate", "memoryqos", "oomscore", "zones"},
	} {
		for _, name := range packages {
			t.Run(name, func(t *testing.T) {
				cmd := exec.Command("go", "list", "-f", `{{join .Imports " "}}`, "./"+name)
				cmd.Dir = dir
				cmd.Env = append(cmd.Environ(), "GOWORK=off")
				out, err := cmd.Output()
				require.NoError(t, err)
				for _, i := range strings.Fields(string(out)) {
					first, _, _ := strings.Cut(i, "/")
					require.NotContains(t, []string{"context", "io", "net", "os", "sync", "syscall", "time"}, first, i)
					require.NotContains(t, i, "client-go")
				}
			})
		}
	}
}

var (
	// decoder matches an exported function that decodes.
	decoder = regexp.MustCompile(`(?m)^func ((?:Decode|Parse)\w*)\(`)
	// fuzzTarget matches a whole fuzz target.
	fuzzTarget = regexp.MustCompile(`(?ms)^func Fuzz\w+\(.*?^}`)
)

// Each exported function that decodes is called by a fuzz target of its package.
func TestDecodersAreFuzzed(t *testing.T) {
	targets := make(map[string]string)
	for file, text := range testFiles(t) {
		targets[path.Dir(file)] += strings.Join(fuzzTarget.FindAllString(text, -1), "\n")
	}
	found := 0
	for _, module := range []string{"cdi-contract", "dra-frontend", "nri-actuator", "cmd"} {
		for file, text := range filesBelow(t, module, ".go") {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, match := range decoder.FindAllStringSubmatch(text, -1) {
				found++
				assert.True(t, strings.Contains(targets[path.Dir(file)], "."+match[1]+"("),
					"%s: no fuzz target of the package calls %s", file, match[1])
			}
		}
	}
	require.Positive(t, found)
}
