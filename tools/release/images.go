// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// artifact is what a registry gets: an index of images, or an image.
type artifact struct {
	repository, tag string
	index           v1.ImageIndex
	image           v1.Image
}

// write writes an OCI layout, and returns the artifact's digest.
func (a artifact) write(dir string) (v1.Hash, error) {
	if a.index != nil {
		if _, err := layout.Write(dir, a.index); err != nil {
			return v1.Hash{}, err
		}
		return a.index.Digest()
	}
	to, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = to.AppendImage(a.image)
	}
	if err != nil {
		return v1.Hash{}, err
	}
	return a.image.Digest()
}

func (a artifact) push(to name.Tag, options ...remote.Option) error {
	if a.index != nil {
		return remote.WriteIndex(to, a.index, options...)
	}
	return remote.Write(to, a.image, options...)
}

// root owns all files of images and chart; their time is always the same.
const root, epoch = 0, 0

// imageOf returns the index of a daemon's images. Each has the daemon's programs, as the
// Dockerfiles say, and their licences.
func imageOf(o options, daemon string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	licenses := make(map[string][]byte)
	for name, file := range map[string]string{"LICENSE": filepath.Join(o.root, "LICENSE"), licensesFile: filepath.Join(o.out, licensesFile)} {
		var err error
		if licenses["licenses/"+name], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	for _, arch := range architectures {
		programs := make(map[string][]byte)
		for _, program := range programsOf(daemon) {
			var err error
			if programs[program], err = os.ReadFile(filepath.Join(o.out, programPath(program, arch))); err != nil {
				return nil, err
			}
		}
		layer, err := layerOf(programs, 0o755)
		if err != nil {
			return nil, err
		}
		texts, err := layerOf(licenses, 0o644)
		if err != nil {
			return nil, err
		}
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		if image, err = mutate.AppendLayers(image, layer, texts); err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: time.Unix(epoch, 0).UTC()}
		// The host's files belong to root.
		config.Config.User, config.Config.Entrypoint = "0:0", []string{"/" + daemon}
		config.Config.Labels = map[string]string{
			"org.opencontainers.image.title": daemon, "org.opencontainers.image.version": o.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		}
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index, nil
}

func layerOf(files map[string][]byte, mode int64) (v1.Layer, error) {
	packed, err := pack(files, mode)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

const chartName = "dra-driver-cpumem"

// chartOf returns the chart with the release's version, as helm pulls it (helm.sh,
// "Use OCI-based registries"), and writes it as a file, too.
func chartOf(o options) (v1.Image, error) {
	dir := filepath.Join(o.root, "charts", chartName)
	files := make(map[string][]byte)
	var metadata []byte
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if name == "Chart.yaml" {
			if data, err = withVersion(data, o.version); err == nil {
				metadata, err = yaml.YAMLToJSON(data)
			}
		}
		files[path.Join(chartName, filepath.ToSlash(name))] = data
		return err
	})
	if err != nil {
		return nil, err
	}
	unpacked, err := pack(files, 0o644)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	gz := gzip.NewWriter(&packed)
	if _, err := gz.Write(unpacked); err != nil {
		return nil, err
	}
	if err := gz.Close(); err != nil {
		return nil, err
	}
	file := filepath.Join(o.out, fmt.Sprintf("%s-%s.tgz", chartName, strings.TrimPrefix(o.version, "v")))
	if err := os.WriteFile(file, packed.Bytes(), 0o644); err != nil {
		return nil, err
	}
	return newChartImage(metadata, packed.Bytes())
}

// withVersion sets the chart's version, without the v, and the images' default tag.
func withVersion(chart []byte, version string) ([]byte, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(chart, &fields); err != nil {
		return nil, err
	}
	fields["version"], fields["appVersion"] = strings.TrimPrefix(version, "v"), version
	return yaml.Marshal(fields)
}

// pack packs files in the order of their names.
func pack(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{
			Name: name, Mode: mode, Size: int64(len(files[name])), Uid: root, Gid: root,
			ModTime: time.Unix(epoch, 0), Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// chartImage is an image whose configuration is the chart's metadata.
type chartImage struct {
	v1.Image
	config   []byte
	manifest []byte
	layer    v1.Layer
}

const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

func newChartImage(metadata, packed []byte) (v1.Image, error) {
	layer := static.NewLayer(packed, chartContent)
	config := static.NewLayer(metadata, chartConfig)
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), chartConfig)
	image, err := mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	if manifest.Config.Digest, err = config.Digest(); err != nil {
		return nil, err
	}
	manifest.Config.MediaType, manifest.Config.Size = chartConfig, int64(len(metadata))
	raw, err := json.Marshal(manifest)
	return &chartImage{Image: image, config: metadata, manifest: raw, layer: layer}, err
}

// RawConfigFile implements v1.Image.
func (c *chartImage) RawConfigFile() ([]byte, error) { return c.config, nil }

// RawManifest implements v1.Image.
func (c *chartImage) RawManifest() ([]byte, error) { return c.manifest, nil }

// Manifest implements v1.Image.
func (c *chartImage) Manifest() (*v1.Manifest, error) {
	return v1.ParseManifest(bytes.NewReader(c.manifest))
}

// ConfigName implements v1.Image.
func (c *chartImage) ConfigName() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(c.config))
	return hash, err
}

// Digest implements v1.Image.
func (c *chartImage) Digest() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(c.manifest))
	return hash, err
}

// Size implements v1.Image.
func (c *chartImage) Size() (int64, error) { return int64(len(c.manifest)), nil }
