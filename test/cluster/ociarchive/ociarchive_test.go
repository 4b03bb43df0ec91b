// SPDX-License-Identifier: Apache-2.0

package ociarchive_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/ociarchive"
)

type descriptor struct {
	Digest      string
	Size        int
	Annotations map[string]string
}

func TestWrite(t *testing.T) {
	image := ociarchive.Image{
		Reference: "lab.local/x:1", Entrypoint: []string{"/bin/x"},
		Files: []ociarchive.File{{Path: "/bin/x", Data: []byte("program"), Links: []string{"y"}}, {Path: "/z", Data: []byte("z")}},
	}
	var buf bytes.Buffer
	require.NoError(t, ociarchive.Write(&buf, image))
	files := map[string][]byte{}
	walk(t, buf.Bytes(), func(h *tar.Header, data []byte) { files[h.Name] = data })
	require.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(files["oci-layout"]))

	blob := func(d descriptor) []byte {
		data, ok := files["blobs/sha256/"+d.Digest[len("sha256:"):]]
		require.True(t, ok, d.Digest)
		require.Len(t, data, d.Size)
		require.Equal(t, d.Digest, fmt.Sprintf("sha256:%x", sha256.Sum256(data)))
		return data
	}
	var index struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	require.Len(t, index.Manifests, 1)
	require.Equal(t, "lab.local/x:1", index.Manifests[0].Annotations["io.containerd.image.name"])
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	require.NoError(t, json.Unmarshal(blob(index.Manifests[0]), &manifest))
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(blob(manifest.Config), &config))
	require.Equal(t, []string{"/bin/x"}, config.Config.Entrypoint)
	require.Equal(t, []string{manifest.Layers[0].Digest}, config.Rootfs.DiffIDs)

	var names []string
	walk(t, blob(manifest.Layers[0]), func(h *tar.Header, data []byte) {
		names = append(names, fmt.Sprintf("%s %o %s%s", h.Name, h.Mode, h.Linkname, data))
	})
	require.Equal(t, []string{"bin/ 755 ", "tmp/ 1777 ", "bin/x 755 program", "bin/y 777 x", "z 755 z"}, names)
}

func TestWriteIsReproducible(t *testing.T) {
	image := ociarchive.Image{Reference: "a/b:c", Files: []ociarchive.File{{Path: "/a/b/c/d"}, {Path: "/e/f"}}}
	var first, second bytes.Buffer
	require.NoError(t, ociarchive.Write(&first, image))
	require.NoError(t, ociarchive.Write(&second, image))
	require.Equal(t, first.Bytes(), second.Bytes())
}

func TestWriteRefusesOddPaths(t *testing.T) {
	for _, p := range []string{"", "bin/x", "/bin/../x", "/bin/"} {
		t.Run(p, func(t *testing.T) {
			err := ociarchive.Write(io.Discard, ociarchive.Image{Files: []ociarchive.File{{Path: p}}})
			require.ErrorContains(t, err, "not absolute and clean")
		})
	}
}

func TestWriteReportsAFullDisk(t *testing.T) {
	full := errors.New("disk full")
	require.ErrorIs(t, ociarchive.Write(broken{full}, ociarchive.Image{Reference: "a:1"}), full)
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func walk(t *testing.T, archive []byte, visit func(*tar.Header, []byte)) {
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		visit(h, data)
	}
}
