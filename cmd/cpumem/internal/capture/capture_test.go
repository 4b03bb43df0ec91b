// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func written(t require.TestingT, roots topology.Roots, pageSize int64) []byte {
	var out bytes.Buffer
	require.NoError(t, capture.Write(&out, roots, pageSize, nil))
	return out.Bytes()
}

func same(t require.TestingT, s topologytest.Spec) {
	data := written(t, s.Roots(), s.PageSize)
	m, err := capture.Open(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, s.PageSize, m.PageSize)
	got, err := topology.Discover(m.Roots, m.PageSize)
	require.NoError(t, err)
	require.Equal(t, s.Machine(), got)
	require.Equal(t, data, written(t, m.Roots, m.PageSize), "a capture of a capture is the capture")
}

func TestMachinesSurvive(t *testing.T) {
	for _, c := range topologytest.All() {
		t.Run(c.Name, func(t *testing.T) { same(t, c.Spec) })
	}
	rapid.Check(t, func(t *rapid.T) { same(t, topologytest.Random(t)) })
}

func TestThisMachine(t *testing.T) {
	roots := topology.Roots{Sys: os.DirFS("/sys"), Proc: os.DirFS("/proc")}
	m, err := capture.Open(bytes.NewReader(written(t, roots, int64(os.Getpagesize()))))
	require.NoError(t, err)
	got, err := topology.Discover(m.Roots, m.PageSize)
	require.NoError(t, err)
	want, err := topology.Discover(roots, int64(os.Getpagesize()))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NotEmpty(t, m.Kernel)
}

// A machine that the reader refuses is captured, and refused with the same
// error.
func TestRefusedMachine(t *testing.T) {
	s := topologytest.T2()
	for path, text := range map[string]string{
		"devices/system/cpu/cpu5/topology/core_cpus_list":             "x y z",
		"devices/system/node/node1/hugepages/hugepages-3kB/x":         "1",
		"devices/system/node/node0/hugepages/hugepages-1024kB/absent": "1",
	} {
		sys := s.Sys()
		sys[path] = &fstest.MapFile{Data: []byte(text)}
		roots := topology.Roots{Sys: sys, Proc: s.Proc()}
		_, want := topology.Discover(roots, s.PageSize)
		require.Error(t, want)
		m, err := capture.Open(bytes.NewReader(written(t, roots, s.PageSize)))
		require.NoError(t, err)
		_, got := topology.Discover(m.Roots, m.PageSize)
		require.EqualError(t, got, want.Error())
	}
}

func TestWriteErrors(t *testing.T) {
	s := topologytest.T1()
	sys := s.Sys()
	sys["devices/system/cpu/online"] = &fstest.MapFile{Data: make([]byte, 1<<20+1)}
	err := capture.Write(io.Discard, topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize, nil)
	require.ErrorContains(t, err, "devices/system/cpu/online is larger than 1048576 bytes")

	err = capture.Write(io.Discard, topology.Roots{Sys: os.DirFS(os.DevNull), Proc: s.Proc()}, s.PageSize, nil)
	require.ErrorContains(t, err, "devices/system/cpu/online")

	require.ErrorIs(t, capture.Write(full{}, s.Roots(), s.PageSize, nil), io.ErrShortWrite)
}

// The configuration comes back as it was written; a capture without a
// configuration has none.
func TestConfiguration(t *testing.T) {
	s := topologytest.T1()
	for _, config := range [][]byte{nil, {}, []byte("# ours\ngroupBy: machine\n")} {
		var file bytes.Buffer
		require.NoError(t, capture.Write(&file, s.Roots(), s.PageSize, config))
		m, err := capture.Open(&file)
		require.NoError(t, err)
		require.Equal(t, config, m.Config)
	}
	err := capture.Write(io.Discard, s.Roots(), s.PageSize, make([]byte, 1<<20+1))
	require.ErrorContains(t, err, "the configuration is larger than 1048576 bytes")
}

// A capture of a directory without a kernel's files would be of no use.
func TestNothingToCapture(t *testing.T) {
	dir := t.TempDir()
	err := capture.Write(io.Discard, topology.At(dir+"/sys", dir+"/proc"), 4096, nil)
	require.ErrorContains(t, err, dir+"/sys/devices/system/cpu/online")
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.MkdirAll(dir+"/sys/devices/system/cpu/online", 0o755))
	err = capture.Write(io.Discard, topology.At(dir+"/sys", dir+"/proc"), 4096, nil)
	require.ErrorContains(t, err, "read "+dir+"/sys/devices/system/cpu/online: is a directory")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestOnlyWhatIsRead(t *testing.T) {
	s := topologytest.T2()
	sys := s.Sys()
	sys["class/dmi/id/product_serial"] = &fstest.MapFile{Data: []byte("secret")}
	sys["devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages"] = &fstest.MapFile{Data: []byte("secret")}
	proc := s.Proc()
	proc["sys/kernel/hostname"] = &fstest.MapFile{Data: []byte("secret")}
	proc["sys/kernel/osrelease"] = &fstest.MapFile{Data: []byte("6.12.0\n")}
	proc["sys/kernel/arch"] = &fstest.MapFile{Data: []byte("x86_64\n")}
	data := written(t, topology.Roots{Sys: sys, Proc: proc}, s.PageSize)
	files := unpack(t, data)
	require.NotContains(t, files, "sys/devices/system/cpu/cpu0/topology/core_id", "not read")
	for name, text := range files {
		require.NotContains(t, text, "secret", name)
	}
	m, err := capture.Open(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, []string{"6.12.0", "x86_64"}, []string{m.Kernel, m.Arch})
}

func unpack(t *testing.T, data []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	out := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		out[h.Name] = string(text)
	}
}

// The file system of an opened capture keeps the rules of io/fs.
func TestFileSystem(t *testing.T) {
	s := topologytest.T1()
	m, err := capture.Open(bytes.NewReader(written(t, s.Roots(), s.PageSize)))
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(m.Roots.Sys, "devices/system/cpu/online", "devices/system/node/node0/distance"))
	for _, name := range []string{"../etc/passwd", "/", "", "devices/"} {
		_, err := m.Roots.Sys.Open(name)
		require.Error(t, err, name)
	}
}

type entry struct {
	name, text string
	kind       byte
}

const good = `{"format":1,"pageSize":4096}`

func packed(t require.TestingT, entries ...entry) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	require.NoError(t, err)
	a := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.text)), Mode: 0o644}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname, h.Size, e.text = e.text, 0, ""
		}
		require.NoError(t, a.WriteHeader(h))
		_, err := a.Write([]byte(e.text))
		require.NoError(t, err)
	}
	require.NoError(t, a.Close())
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestOpenRefuses(t *testing.T) {
	manifest := entry{name: "manifest.json", text: good}
	whole := packed(t, manifest, entry{name: "sys/a", text: strings.Repeat("0123456789", 5000)})
	broken := bytes.Clone(whole)
	broken[len(broken)-6] ^= 0xff // a byte of the checksum
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":             {nil, "not a gzipped archive"},
		"not gzip":          {[]byte("PK\x03\x04 a zip file"), "not a gzipped archive"},
		"no manifest":       {packed(t, entry{name: "sys/a", text: "1"}), "no manifest.json"},
		"empty archive":     {packed(t), "no manifest.json"},
		"manifest not JSON": {packed(t, entry{name: "manifest.json", text: "format: 1"}), "manifest.json: invalid"},
		"other format":      {packed(t, entry{name: "manifest.json", text: `{"format":2}`}), "format 2; this program reads format 1"},
		"long kernel": {
			data: packed(t, entry{name: "manifest.json", text: `{"format":1,"kernel":"` + strings.Repeat("6", 129) + `"}`}),
			want: "longer than 128 bytes",
		},
		"manifest twice": {packed(t, manifest, manifest), `"manifest.json": is in the archive twice`},
		"config twice": {
			data: packed(t, manifest, entry{name: "config.yaml"}, entry{name: "config.yaml"}),
			want: `"config.yaml": is in the archive twice`,
		},
		"config is a dir":   {packed(t, manifest, entry{name: "config.yaml/", kind: tar.TypeDir}), "wrong type"},
		"manifest is a dir": {packed(t, entry{name: "manifest.json/", kind: tar.TypeDir}), "wrong type"},
		"file twice":        {packed(t, manifest, entry{name: "sys/a"}, entry{name: "sys/a"}), `"sys/a": is in the archive twice`},
		"file and dir": {
			data: packed(t, manifest, entry{name: "sys/a"}, entry{name: "sys/a/b"}),
			want: `"sys/a/b": is a file and a directory`,
		},
		"dir and file": {
			data: packed(t, manifest, entry{name: "sys/a/b"}, entry{name: "sys/a"}),
			want: `"sys/a": is a file and a directory`,
		},
		"dir over file": {
			data: packed(t, manifest, entry{name: "sys/a"}, entry{name: "sys/a/", kind: tar.TypeDir}),
			want: "is a file and a directory",
		},
		"sys is a file": {packed(t, manifest, entry{name: "sys"}), "wrong type"},
		"parent":        {packed(t, manifest, entry{name: "sys/../../etc/passwd"}), "is not a path inside the archive"},
		"absolute":      {packed(t, manifest, entry{name: "/etc/passwd"}), "is not a path inside the archive"},
		"dots":          {packed(t, manifest, entry{name: "sys/./a"}), "is not a path inside the archive"},
		"long name": {
			data: packed(t, manifest, entry{name: "sys/" + strings.Repeat("a/", 200) + "a"}),
			want: "is not a path inside the archive",
		},
		"elsewhere": {
			data: packed(t, manifest, entry{name: "etc/passwd"}),
			want: "is neither manifest.json nor config.yaml nor below sys/ or proc/",
		},
		"symbolic link": {packed(t, manifest, entry{name: "sys/a", text: "/etc/passwd", kind: tar.TypeSymlink}), "is a link"},
		"hard link": {
			data: packed(t, manifest, entry{name: "sys/a", text: "/etc/passwd", kind: tar.TypeLink}),
			want: "is a link",
		},
		"device": {packed(t, manifest, entry{name: "sys/a", kind: tar.TypeBlock}), "is a link or a special file"},
		"large file": {
			data: packed(t, manifest, entry{name: "sys/a", text: strings.Repeat("0", 1<<20+1)}),
			want: "is larger than 1048576 bytes",
		},
		"cut off":        {whole[:len(whole)/2], "cut off"},
		"cut off at end": {whole[:len(whole)-9], "cut off"},
		"wrong checksum": {broken, "damaged or cut off"},
		"not an archive": {zipped(t, strings.Repeat("x", 4096)), "damaged or cut off after 0 entries"},
		"a bomb": {
			data: bytes.Repeat(zipped(t, strings.Repeat("\x00", 1<<22)), 65),
			want: "larger than 268435456 bytes when unpacked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := capture.Open(bytes.NewReader(c.data))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := capture.Open(bytes.NewReader(whole))
	require.NoError(t, err)
}

func zipped(t require.TestingT, text string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := io.WriteString(z, text)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestTooMuch(t *testing.T) {
	// A gzip file may have several parts: the large part is packed once.
	var data bytes.Buffer
	part := zipped(t, strings.Repeat("0", 1<<20))
	for i := range 65 {
		var header bytes.Buffer
		h := &tar.Header{Name: "sys/" + strings.Repeat("a", i+1), Typeflag: tar.TypeReg, Size: 1 << 20}
		require.NoError(t, tar.NewWriter(&header).WriteHeader(h))
		data.Write(zipped(t, header.String()))
		data.Write(part)
	}
	_, err := capture.Open(&data)
	require.ErrorContains(t, err, "the files have more than 67108864 bytes")

	deep := make([]entry, 0, 3000)
	for i := range 3000 {
		deep = append(deep, entry{name: fmt.Sprintf("sys/%d/%sa", i, strings.Repeat("a/", 100))})
	}
	_, err = capture.Open(bytes.NewReader(packed(t, deep...)))
	require.ErrorContains(t, err, "more than 262144 files and directories", "directories that no entry names count")
}

// A capture that was unpacked, edited and packed again: other order, entries
// for directories, manifest last.
func TestRepacked(t *testing.T) {
	m, err := capture.Open(bytes.NewReader(packed(t, entry{name: "sys/", kind: tar.TypeDir}, entry{name: "sys/a/", kind: tar.TypeDir},
		entry{name: "sys/a/b", text: "1"}, entry{name: "sys/a/", kind: tar.TypeDir}, entry{name: "manifest.json", text: good})))
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(m.Roots.Sys, "a/b"))
}

// Open ends with any bytes, and what it opens can be read. The bytes are also
// tried as the archive inside, because few bytes have the right checksum.
func FuzzOpen(f *testing.F) {
	s := topologytest.T1()
	whole := written(f, s.Roots(), s.PageSize)
	f.Add(whole)
	z, err := gzip.NewReader(bytes.NewReader(whole))
	require.NoError(f, err)
	inside, err := io.ReadAll(z)
	require.NoError(f, err)
	f.Add(inside)
	f.Add(packed(f, entry{name: "manifest.json", text: good}, entry{name: "sys/a", text: "/", kind: tar.TypeSymlink}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, zipped(t, string(data))} {
			m, err := capture.Open(bytes.NewReader(data))
			if err != nil {
				require.True(t, strings.HasPrefix(err.Error(), "capture: "))
				continue
			}
			_, _ = topology.Discover(m.Roots, m.PageSize)
		}
	})
}

// Every machine of the library is captured and read back as it is.
func TestLibrary(t *testing.T) {
	for _, c := range topologytest.Library() {
		t.Run(c.Name, func(t *testing.T) {
			var file bytes.Buffer
			require.NoError(t, capture.Write(&file, c.Spec.Roots(), c.Spec.PageSize, nil))
			m, err := capture.Open(&file)
			require.NoError(t, err)
			got, err := topology.Discover(m.Roots, m.PageSize)
			require.NoError(t, err)
			require.Equal(t, c.Spec.Machine(), got)
		})
	}
}
