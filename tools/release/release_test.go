// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// released has invented programs in place of built ones.
func released(t *testing.T) options {
	o := options{root: "../..", out: t.TempDir(), version: "v1.2.3"}
	for _, program := range programs() {
		for _, arch := range architectures {
			require.NoError(t, os.WriteFile(filepath.Join(o.out, programPath(program, arch)), []byte(program+" for "+arch), 0o600))
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.out, licensesFile), []byte("of others"), 0o600))
	return o
}

func contents(t *testing.T, packed io.Reader) map[string]string {
	files := make(map[string]string)
	r := tar.NewReader(packed)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		files[header.Name] = string(data)
	}
}

// What a registry gets is what a node and helm pull.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	o := released(t)
	at := strings.TrimPrefix(server.URL, "http://") + "/me/"
	push := func(a artifact) name.Tag {
		tag, err := name.NewTag(at + a.repository + ":" + a.tag)
		require.NoError(t, err)
		require.NoError(t, a.push(tag))
		return tag
	}
	programs := map[string][]string{"dra-frontend": {"dra-frontend", "cpumem"}, "nri-actuator": {"nri-actuator", "cpumem-guard"}}
	for _, daemon := range daemons {
		index, err := imageOf(o, daemon)
		require.NoError(t, err)
		tag := push(artifact{repository: daemon, tag: o.version, index: index})
		for _, arch := range architectures {
			image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
			require.NoError(t, err)
			config, err := image.ConfigFile()
			require.NoError(t, err)
			require.Equal(t, []string{arch, "0:0", "/" + daemon}, []string{config.Architecture, config.Config.User, config.Config.Entrypoint[0]})
			layers, err := image.Layers()
			require.NoError(t, err)
			require.Len(t, layers, 2)
			unpacked, err := layers[0].Uncompressed()
			require.NoError(t, err)
			want := map[string]string{}
			for _, program := range programs[daemon] {
				want[program] = program + " for " + arch
			}
			require.Equal(t, want, contents(t, unpacked))
			unpacked, err = layers[1].Uncompressed()
			require.NoError(t, err)
			texts := contents(t, unpacked)
			require.Contains(t, texts["licenses/LICENSE"], "Apache License")
			require.Equal(t, "of others", texts["licenses/licenses.txt"])
		}
	}
	chart, err := chartOf(o)
	require.NoError(t, err)
	tag := push(artifact{repository: "charts/" + chartName, tag: "1.2.3", image: chart})
	pulled, err := remote.Image(tag)
	require.NoError(t, err)
	metadata, err := pulled.RawConfigFile()
	require.NoError(t, err)
	require.Contains(t, string(metadata), `"appVersion":"v1.2.3"`)
	layers, err := pulled.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	kind, err := layers[0].MediaType()
	require.NoError(t, err)
	require.Equal(t, chartContent, kind)
	packed, err := layers[0].Compressed()
	require.NoError(t, err)
	unpacked, err := gzip.NewReader(packed)
	require.NoError(t, err)
	files := contents(t, unpacked)
	require.Contains(t, files["dra-driver-cpumem/Chart.yaml"], "version: 1.2.3\n")
	require.Contains(t, files, "dra-driver-cpumem/values.yaml")
	require.Contains(t, files, "dra-driver-cpumem/templates/_frontend.tpl")
}

// Each text is there once, below all modules that have it. A module without a licence is not released.
func TestLicenses(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"a/LICENSE": "text 1\n", "b/LICENCE.md": "text 1", "b/NOTICE": "text 2", "c/COPYING": "text 3", "c/licenser.go": "no licence", "d/x": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	var modules []module
	for _, name := range []string{"a", "b", "c"} {
		modules = append(modules, module{name, filepath.Join(dir, name)})
	}
	text, err := licenses(modules)
	require.NoError(t, err)
	line := "\n\n" + strings.Repeat("=", 80) + "\n\n"
	require.Equal(t, "a\nb\n\ntext 1"+line+"b\n\ntext 2"+line+"c\n\ntext 3"+line, string(text))
	_, err = licenses([]module{{"d", filepath.Join(dir, "d")}})
	require.ErrorContains(t, err, "module d has no licence")
}

// All modules that the programs are linked from have licences, and so has the standard library.
func TestLicensesOfThePrograms(t *testing.T) {
	modules, err := modulesOf(t.Context(), options{root: "../.."})
	require.NoError(t, err)
	var names []string
	for _, m := range modules {
		name, _, _ := strings.Cut(m.name, " ")
		names = append(names, name)
		require.NotContains(t, name, "dra-driver-cpumem")
	}
	require.Subset(t, names, []string{"the", "k8s.io/client-go", "github.com/containerd/nri"})
	text, err := licenses(modules)
	require.NoError(t, err)
	require.Contains(t, string(text), "the standard library of Go\n")
	require.Contains(t, string(text), "Apache License")
}

// The same programs and the same chart give the same bytes.
func TestReproducible(t *testing.T) {
	digests := func() (out []string) {
		o := released(t)
		for _, daemon := range daemons {
			index, err := imageOf(o, daemon)
			require.NoError(t, err)
			digest, err := artifact{index: index}.write(filepath.Join(o.out, daemon))
			require.NoError(t, err)
			out = append(out, digest.String())
		}
		chart, err := chartOf(o)
		require.NoError(t, err)
		digest, err := artifact{image: chart}.write(filepath.Join(o.out, "chart"))
		require.NoError(t, err)
		return append(out, digest.String())
	}
	require.Equal(t, digests(), digests())
}

func TestOptions(t *testing.T) {
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
	for name, c := range map[string]struct {
		options options
		want    string
	}{
		"right":          {options{version: "v1.2.3", out: t.TempDir()}, ""},
		"no version":     {options{}, "want a version such as v0.2.0"},
		"a short one":    {options{version: "v1.2"}, "want a version such as v0.2.0"},
		"without a v":    {options{version: "1.2.3"}, "want a version such as v0.2.0"},
		"push to where":  {options{version: "v1.2.3", push: true}, "-push needs -repository"},
		"over a release": {options{version: "v1.2.3", out: full}, "is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.options.check()
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	changelog := filepath.Join(t.TempDir(), "CHANGELOG.md")
	require.NoError(t, os.WriteFile(changelog, []byte("# Changelog\n\n## Unreleased\n\n* new\n\n## v0.1.0\n\n* first\n"), 0o600))
	for version, want := range map[string]string{"v0.1.0": "* first\n", "v0.2.0": "* new\n"} {
		got, err := notesOf(changelog, version)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	require.NoError(t, os.WriteFile(changelog, []byte("# Changelog\n"), 0o600))
	_, err := notesOf(changelog, "v0.1.0")
	require.ErrorContains(t, err, "has neither a section v0.1.0")
}
