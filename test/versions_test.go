// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// versions returns the version of each module that the packages of a module
// need, and their tests, by module path. packages are further packages.
func versions(t *testing.T, dir string, packages ...string) map[string]string {
	t.Helper()
	const format = "{{with .Module}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-deps", "-test", "-f", format, "./..."}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	needed := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			needed[path] = version
		}
	}
	require.NotEmpty(t, needed)
	return needed
}

// The programs are linked in the root module. Each module is tested with the
// versions that the programs are linked with.
func TestVersions(t *testing.T) {
	linked := versions(t, "..")
	for _, module := range []string{"cdi-contract", "dra-frontend", "nri-actuator", "test"} {
		for path, version := range versions(t, "../"+module) {
			if want, both := linked[path]; both {
				assert.Equal(t, want, version, "%s is tested with another version of %s: go get %s@%s", module, path, path, want)
			}
		}
	}
}

// The pages and the placement are compared with the Kubernetes of the test cluster.
func TestVersionOfKubernetes(t *testing.T) {
	required := regexp.MustCompile(`(?m)^(?:require )?\s*k8s\.io/kubernetes (\S+)$`)
	of := func(module string) string {
		text, err := os.ReadFile(module + "/go.mod")
		require.NoError(t, err)
		match := required.FindSubmatch(text)
		require.NotNil(t, match, module)
		return string(match[1])
	}
	want := of("cluster/programs")
	for _, module := range []string{"kubernetes", "placement"} {
		assert.Equal(t, want, of(module), module)
	}
}

// Three modules compile most of Kubernetes. With the same versions of all modules that
// they need, each package is compiled once.
func TestKubernetesIsCompiledOnce(t *testing.T) {
	programs := versions(t, "cluster/programs", "tool")
	require.Contains(t, programs, "helm.sh/helm/v4", "the tools are counted")
	for _, module := range []string{"kubernetes", "placement"} {
		for path, version := range versions(t, module) {
			if want, both := programs[path]; both {
				assert.Equal(t, want, version, "test/%s has another version of %s than cluster/programs: "+
					"run `go get` for the newer version in the module with the older", module, path)
			}
		}
	}
}

// A package that is compiled with other flags is compiled again: all who compile
// Kubernetes have the same.
func TestCompilerFlags(t *testing.T) {
	for file, text := range map[string]string{
		"cluster/build.go":   `"GOFLAGS=-gcflags=all=-dwarf=false"`, // and -trimpath as an argument
		"cluster/images.sh":  "GOFLAGS=-gcflags=all=-dwarf=false ",
		"../Makefile":        "GOFLAGS = -trimpath -gcflags=all=-dwarf=false\n",
		"../.ci/run":         "GOFLAGS='-trimpath -gcflags=all=-dwarf=false'\n",
		"chart/helm_test.go": `"GOFLAGS=-trimpath -gcflags=all=-dwarf=false"`,
	} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(data), text, file)
	}
}
