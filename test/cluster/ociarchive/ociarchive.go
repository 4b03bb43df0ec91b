// SPDX-License-Identifier: Apache-2.0

// Package ociarchive writes one-layer OCI image archives, so that the test cluster's own images need no image builder
// and no registry. The same input gives the same bytes. Package cluster calls it.
package ociarchive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// File is a program in the image.
type File struct {
	Path  string // absolute
	Data  []byte
	Links []string // further names in the same directory
}

// Image is a single-layer image for amd64.
type Image struct {
	Reference  string // registry/name:tag
	Entrypoint []string
	Files      []File
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const mediaPrefix = "application/vnd.oci.image."

// Write writes the image's archive to w.
func Write(w io.Writer, img Image) error {
	layer, err := packLayer(img.Files)
	if err != nil {
		return fmt.Errorf("layer of %s: %w", img.Reference, err)
	}
	out := tar.NewWriter(w)
	put := func(name string, data []byte) error { return putFile(out, name, data, 0o644) }
	blob := func(kind string, data []byte) (descriptor, error) {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		d := descriptor{MediaType: mediaPrefix + kind, Digest: "sha256:" + sum, Size: len(data)}
		return d, put("blobs/sha256/"+sum, data)
	}
	blobJSON := func(kind string, v any) (descriptor, error) {
		data, err := json.Marshal(v)
		if err != nil {
			return descriptor{}, err
		}
		return blob(kind, data)
	}

	layerDesc, err := blob("layer.v1.tar", layer)
	if err != nil {
		return fmt.Errorf("write %s: %w", img.Reference, err)
	}
	configDesc, err := blobJSON("config.v1+json", map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin:/"}, "Entrypoint": img.Entrypoint},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", img.Reference, err)
	}
	manifestDesc, err := blobJSON("manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": mediaPrefix + "manifest.v1+json",
		"config": configDesc, "layers": []descriptor{layerDesc},
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", img.Reference, err)
	}
	manifestDesc.Annotations = map[string]string{
		"io.containerd.image.name": img.Reference, "org.opencontainers.image.ref.name": img.Reference,
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifestDesc}})
	if err != nil {
		return fmt.Errorf("write %s: %w", img.Reference, err)
	}
	if err := put("index.json", index); err != nil {
		return fmt.Errorf("write %s: %w", img.Reference, err)
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return fmt.Errorf("write %s: %w", img.Reference, err)
	}
	return out.Close()
}

// packLayer returns a tar archive of the files, the directories above them, and an empty /tmp.
func packLayer(files []File) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	dirs := map[string]bool{"tmp": true}
	for _, f := range files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("path %q is not absolute and clean", f.Path)
		}
		for d := path.Dir(f.Path[1:]); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	sorted := make([]string, 0, len(dirs))
	for d := range dirs {
		sorted = append(sorted, d)
	}
	slices.Sort(sorted)
	for _, d := range sorted {
		mode := int64(0o755)
		if d == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: mode}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, "/")
		if err := putFile(w, name, f.Data, 0o755); err != nil {
			return nil, err
		}
		for _, l := range f.Links {
			h := &tar.Header{Typeflag: tar.TypeSymlink, Name: path.Join(path.Dir(name), l), Linkname: path.Base(name), Mode: 0o777}
			if err := w.WriteHeader(h); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func putFile(w *tar.Writer, name string, data []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
