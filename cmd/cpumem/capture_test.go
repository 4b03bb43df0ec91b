// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func TestCapture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	out, err := execute("capture", "-o", file)
	require.NoError(t, err)
	require.Empty(t, out)

	here, err := execute("inspect")
	require.NoError(t, err)
	there, err := execute("inspect", "--from", file)
	require.NoError(t, err)
	require.Equal(t, here, there)
	out, err = execute("inspect", "--from", file, "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"memoryType": "dram"`)

	// Redirected output is the archive.
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	out, err = execute("capture")
	require.NoError(t, err)
	require.Equal(t, data[:2], []byte(out)[:2])

	// An archive is its owner's, and no archive replaces a file.
	found, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), found.Mode())
	require.NoError(t, os.WriteFile(file, data[:len(data)/2], 0o600))
	_, err = execute("capture", "-o", file)
	require.ErrorIs(t, err, os.ErrExist)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, kept, len(data)/2)
	_, err = execute("inspect", "--from", file)
	// The cut may be inside of an entry, which is named then.
	require.ErrorContains(t, err, file+": capture: ")
	require.ErrorContains(t, err, "damaged or cut off")
	_, err = execute("inspect", "--from", file+"x")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = execute("inspect", "-o", "xml")
	require.ErrorContains(t, err, `--output "xml": want one of table, resourceslice, json, yaml`)
	out, err = execute("inspect", "-o", "resourceslice")
	require.NoError(t, err)
	require.Contains(t, out, "kind: ResourceSlice")
	_, err = execute("capture", "-o", filepath.Join(file, "below"))
	require.Error(t, err)
}

// The archive has the daemon's configuration. A file in --config wins.
func TestCaptureWithConfiguration(t *testing.T) {
	dir := t.TempDir()
	const claims = "../../examples/latency-critical.yaml"
	file, ours, other := filepath.Join(dir, "machine.tar.gz"), filepath.Join(dir, "ours.yaml"), filepath.Join(dir, "other.yaml")
	require.NoError(t, os.WriteFile(ours, []byte("groupBy: machine # as ever\n"), 0o600))
	require.NoError(t, os.WriteFile(other, []byte("groupBy: socket\n"), 0o600))
	_, err := execute("capture", "--config", ours, "-o", file)
	require.NoError(t, err)
	for _, c := range []struct{ config, zone string }{{"", "machine "}, {ours, "machine "}, {other, "socket-0 "}} {
		out, err := execute("inspect", "--from", file, "--config", c.config)
		require.NoError(t, err)
		require.Contains(t, out, "\n"+c.zone)
		out, err = execute("simulate", "--from", file, "--config", c.config, claims)
		require.NoError(t, err)
		require.Contains(t, out, "\n"+c.zone)
	}

	_, err = execute("capture", "--config", filepath.Join(dir, "absent.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(other, []byte("groupBy: rack\n"), 0o600))
	_, err = execute("capture", "--config", other)
	require.ErrorContains(t, err, other+`: groupBy: "rack"`)
	require.NoError(t, os.WriteFile(other, []byte("sysfsRoot: "+dir+"/sys\n"), 0o600))
	out, err := execute("inspect", "--config", other)
	require.NoError(t, err, "the chart's sysfsRoot is missing outside of the container")
	require.Contains(t, out, "warning: sysfsRoot "+dir+"/sys: no such file or directory; /sys is read instead\n")
	require.Contains(t, out, "\nnuma-0 ")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sys"), 0o700))
	failed := filepath.Join(dir, "failed.tar.gz")
	_, err = execute("capture", "--config", other, "-o", failed)
	require.ErrorContains(t, err, dir+"/sys/devices/system/cpu/online")
	require.NoFileExists(t, failed)
	_, err = execute("inspect", "--config", other)
	require.ErrorContains(t, err, "open "+dir+"/sys/devices/system/cpu/online: no such file or directory")
}

// An error about an archive names the archive.
func TestErrorsNameTheArchive(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.tar.gz")
	s := topologytest.T2()
	sys := s.Sys()
	sys["devices/system/cpu/cpu5/topology/core_cpus_list"].Data = []byte("x y z")
	for config, want := range map[string]string{
		"": "sysfs devices/system/cpu/cpu5/topology/core_cpus_list", "groupBy: rack": `configuration: groupBy: "rack"`,
	} {
		f, err := os.Create(broken)
		require.NoError(t, err)
		require.NoError(t, capture.Write(f, topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize, []byte(config)))
		require.NoError(t, f.Close())
		_, err = execute("inspect", "--from", broken)
		require.ErrorContains(t, err, broken+": "+want)
		_, err = execute("simulate", "--from", broken, "../../examples/latency-critical.yaml")
		require.ErrorContains(t, err, broken+": "+want)
	}
}

// A07: impossible facts from the kernel give a warning beside the picture.
func TestWarnings(t *testing.T) {
	s := topologytest.T2()
	sys := s.Sys()
	sys["devices/system/cpu/cpu1/cache/index2/shared_cpu_list"].Data = []byte("1,5\n")
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, capture.Write(f, topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize, nil))
	require.NoError(t, f.Close())
	for _, args := range [][]string{{"inspect", "--from", file}, {"simulate", "--from", file, "../../examples/latency-critical.yaml"}} {
		out, err := execute(args...)
		require.NoError(t, err)
		require.Contains(t, out, "warning: sysfs devices/system/cpu/cpu0/cache/index*/shared_cpu_list: ")
	}
}

func TestNoCaptureOnATerminal(t *testing.T) {
	// A character device, as a terminal is.
	terminal, err := os.Open("/dev/zero")
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	cmd := command()
	cmd.SetOut(terminal)
	cmd.SetArgs([]string{"capture"})
	require.ErrorContains(t, cmd.Execute(), "nothing for a terminal")

	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = null.Close() })
	cmd.SetOut(null)
	require.NoError(t, cmd.Execute())
}
