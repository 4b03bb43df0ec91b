// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/capture"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// archive captures a machine into a file.
func archive(t *testing.T, spec topologytest.Spec) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, capture.Write(f, spec.Roots(), spec.PageSize, nil))
	require.NoError(t, f.Close())
	return file
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "simulate", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "a new case needs a golden file: run the test with -update")
	require.Equal(t, string(want), got)
}

func TestSimulateDescribedMachine(t *testing.T) {
	const examples = "../../examples/simulate/"
	out, err := execute("simulate", "--machine", examples+"machine.yaml", examples+"node.yaml")
	require.NoError(t, err)
	golden(t, "machine-node.txt", out)
	doc, err := os.ReadFile("../../docs/how-to/simulate.md")
	require.NoError(t, err)
	require.Contains(t, string(doc), "```\n"+out+"```\n", "the documentation shows it")
	out, err = execute("simulate", "--machine", "{sockets: 2, coresPerL3: 4}",
		"--with", examples+"devices.yaml", "../../examples/recipes/alignment.yaml")
	require.NoError(t, err)
	doc, err = os.ReadFile("../../docs/how-to/recipes/alignment.md")
	require.NoError(t, err)
	require.Contains(t, string(doc), "```\n"+out+"```\n", "the documentation shows it")
	_, err = execute("simulate", "--with", examples+"node.yaml", examples+"node.yaml")
	require.ErrorContains(t, err, examples+"node.yaml: document 1: ")
	out, err = execute("simulate",
		"--machine", "{coresPerL3: 4, threadsPerCore: 2, efficiencyCoresPerL3: 6, offlineCPUs: '3'}", examples+"hybrid.yaml")
	require.NoError(t, err)
	golden(t, "inline-hybrid.txt", out)

	chart := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(chart, []byte("sysfsRoot: /host/sys\ngroupBy: socket\n"), 0o600))
	out, err = execute("simulate", "--machine", "{sockets: 2}", "--config", chart, examples+"node.yaml")
	require.NoError(t, err)
	require.NotContains(t, out, "warning: sysfsRoot", "nothing is read from this machine")
	require.Contains(t, out, "socket-1", "the configuration counts")
	_, err = execute("simulate", "--machine", "{}", "--config", chart+"x", examples+"node.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = execute("simulate", "--machine", "{cores: 4}", examples+"node.yaml")
	require.ErrorContains(t, err, `--machine: unknown field "cores"`)
	_, err = execute("simulate", "--machine", examples+"node.yaml", examples+"node.yaml")
	require.ErrorContains(t, err, examples+"node.yaml: ")
	_, err = execute("simulate", "--machine", "absent", examples+"node.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = execute("simulate", "--machine", "{}", "--from", "x", examples+"node.yaml")
	require.ErrorContains(t, err, "from machine")
}

// The examples of the documentation, on the machines of the acceptance cases.
func TestSimulateGolden(t *testing.T) {
	const examples = "../../examples/"
	for _, c := range []struct {
		name    string
		spec    topologytest.Spec
		file    string
		config  string
		options []string
	}{
		{"T2-latency-critical.txt", topologytest.T2(), "latency-critical.yaml", "", nil},
		{"T2-latency-critical.json", topologytest.T2(), "latency-critical.yaml", "", []string{"-o", "json"}},
		{"T2-fixed.txt", topologytest.T2(), "latency-critical.yaml", "{managedCPUs: '1-3,6-7', sharedPool: {mode: fixed}}", nil},
		{"T2-managed.txt", topologytest.T2(), "latency-critical.yaml", "{managedCPUs: '1-3,5-7', reservedCPUs: '5'}", nil},
		{"T4-node.txt", topologytest.T4(), "simulate/node.yaml", "", nil},
		{"T4-node-sockets.txt", topologytest.T4(), "simulate/node.yaml", "groupBy: socket", nil},
		{"T5-hybrid.txt", topologytest.T5(), "simulate/hybrid.yaml", "", nil},
		{"T6-node.txt", topologytest.T6(), "simulate/node.yaml", "memoryTypes: [dram, unknown]", nil},
		{"T2-database.txt", topologytest.T2(), "recipes/database.yaml", "", nil},
		{"T2-packet-processing.txt", topologytest.T2(), "recipes/packet-processing.yaml", "", nil},
		{"T2-sidecars.txt", topologytest.T2(), "recipes/sidecars.yaml", "", nil},
		{"T2-two-zones.txt", topologytest.T2(), "recipes/two-zones.yaml", "", nil},
		{"T8-node.txt", topologytest.T8(), "simulate/node.yaml", "groupBy: machine", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(config, []byte(c.config), 0o600))
			args := append([]string{"simulate", "--from", archive(t, c.spec), "--config", config, examples + c.file}, c.options...)
			out, err := execute(args...)
			require.NoError(t, err)
			golden(t, c.name, out)
			again, err := execute(args...)
			require.NoError(t, err)
			require.Equal(t, out, again, "I8")
		})
	}
}

func TestSimulateInput(t *testing.T) {
	claim := "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n" +
		"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: dra.cpumem}}]}}\n"
	cmd := command()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetIn(strings.NewReader(claim))
	cmd.SetArgs([]string{"simulate", "-"})
	require.NoError(t, cmd.Execute(), "this machine")
	require.Contains(t, out.String(), `default/c: request "r" on device "numa-0": it asks for nothing`)

	cmd.SetIn(strings.NewReader(claim))
	cmd.SetArgs([]string{"simulate", "--exit-code", "-"})
	require.EqualError(t, cmd.Execute(), "claims or pods that get nothing: 1")

	cmd.SetIn(strings.NewReader("apiVersion: v1\nkind: Service"))
	require.ErrorContains(t, cmd.Execute(), "standard input: nothing to simulate")
	cmd.SetIn(strings.NewReader("kind: Pod"))
	require.ErrorContains(t, cmd.Execute(), `standard input: document 1: apiVersion "", kind "Pod"`)
	file := filepath.Join(t.TempDir(), "claims.yaml")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := execute("simulate", file)
	require.ErrorContains(t, err, file+": document 1")
	_, err = execute("simulate", file+"x")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = execute("simulate")
	require.ErrorContains(t, err, "accepts 1 arg(s)")
	_, err = execute("simulate", "-o", "xml", file)
	require.ErrorContains(t, err, `--output "xml": want one of picture, json, yaml`)
	_, err = execute("simulate", "--from", file, file)
	require.ErrorContains(t, err, "capture")
}

// A file gets no colours, whatever the environment says.
func TestSimulateIntoAFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "picture"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.Equal(t, fileWidth, view(f).Width)
	require.False(t, view(f).Colour)
}
