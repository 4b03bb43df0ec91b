// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSize(t *testing.T) {
	cases := map[string]struct {
		in   string
		want int
		ok   bool
	}{
		"bytes": {"4096", 4096, true}, "Ki": {"4Ki", 4096, true}, "Mi": {"64Mi", 64 << 20, true}, "Gi": {"1Gi", 1 << 30, true},
		"zero": {"0", 0, false}, "negative": {"-1Mi", 0, false}, "decimal unit": {"1M", 0, false}, "fraction": {"1.5Gi", 0, false},
		"empty": {"", 0, false}, "overflow": {"9000000000Gi", 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseSize(c.in)
			require.Equal(t, c.ok, err == nil)
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzPagesPerNode(f *testing.F) {
	f.Add("7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n", uint64(0x7f00))
	f.Add("7f00 N0=x\n\n", uint64(0x7f00))
	f.Fuzz(func(t *testing.T, maps string, addr uint64) {
		if nodes, err := pagesPerNode(maps, addr); err != nil {
			require.Nil(t, nodes)
		}
	})
}

func TestPagesPerNode(t *testing.T) {
	const maps = "7e00 default N3=9\n7f00 bind:0-1 anon=3 dirty=3 active=0 N0=2 N1=1 kernelpagesize_kB=4\n"
	nodes, err := pagesPerNode(maps, 0x7f00)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"0": 2, "1": 1}, nodes)
	_, err = pagesPerNode(maps, 0x8000)
	require.ErrorContains(t, err, "no mapping at 8000")
}

func TestReadView(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"status":                "Name:\tprobe\nCpus_allowed_list:\t0-1,4-5\nMems_allowed_list:\t0\n",
		"memory.max":            "max\n",
		"cpuset.cpus.effective": "0-1,4-5\n",
		"hugetlb.2MB.rsvd.max":  "67108864\n",
		"cgroup.procs":          "1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	v, err := readView(filepath.Join(dir, "status"), dir)
	require.NoError(t, err)
	line, err := json.Marshal(v)
	require.NoError(t, err)
	require.JSONEq(t, `{"action":"view","cpus":"0-1,4-5","mems":"0","cgroup":{"memory.max":"max",
		"cpuset.cpus.effective":"0-1,4-5","hugetlb.2MB.rsvd.max":"67108864"}}`, string(line))
}

func TestActions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	line, rest, err := act([]string{"touch", "1Mi", "touch", "64Ki"})
	require.NoError(t, err)
	pages := 0
	for _, n := range line.(touched).Nodes {
		pages += n
	}
	require.Equal(t, 1<<20/os.Getpagesize(), pages)
	line, rest, err = act(rest)
	require.NoError(t, err)
	require.Empty(t, rest)
	pages = 0
	for _, n := range line.(touched).Nodes {
		pages += n
	}
	require.Equal(t, 64<<10/os.Getpagesize(), pages, "the second mapping is counted alone")

	_, _, err = act([]string{"cache", file, "3000Ki"})
	require.NoError(t, err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 3000<<10, info.Size())

	sparse := filepath.Join(t.TempDir(), "sparse")
	_, rest, err = act([]string{"read", sparse, "1500Ki", "2", "grow", "256Ki", "64Ki", "1ms", "fill", "2Mi"})
	require.NoError(t, err)
	info, err = os.Stat(sparse)
	require.NoError(t, err)
	require.EqualValues(t, 1500<<10, info.Size())
	_, rest, err = act(rest)
	require.NoError(t, err)
	_, rest, err = act(rest)
	require.NoError(t, err)
	require.Empty(t, rest)

	_, rest, err = act([]string{"sleep", "1ms", "mask"})
	require.NoError(t, err)
	require.Equal(t, []string{"mask"}, rest)

	for _, bad := range [][]string{{"touch"}, {"touch", "x"}, {"hugepages", "3Mi", "1"}, {"hugepages", "2Mi", "x"}, {"dance"}, {"exit"},
		{"cycle", "1ms"}, {"cycle", "x", "1s"}, {"cycle", "1ms", "x"}, {"cycle", "0s", "1s"}, {"cycle", "2s", "1s"},
		{"observe", "0"}, {"observe", "x", "1s"}, {"observe", "0", "0s"},
		{"bind"}, {"bind", "x"}, {"bind", "63"}, {"read", sparse, "1Mi"}, {"read", sparse, "1Mi", "0"}, {"fill"},
		{"grow", "1Mi", "64Ki"}, {"grow", "1Mi", "64Ki", "x"}} {
		_, _, err := act(bad)
		require.Error(t, err, bad)
	}
}
