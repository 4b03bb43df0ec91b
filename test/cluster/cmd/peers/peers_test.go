// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/bench"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

func level(containers, repetitions int, seconds, driver map[string][]float64) isolation.Level {
	return isolation.Level{Containers: containers, Repetitions: repetitions, Seconds: seconds, Driver: driver}
}

func starts() isolation.Starts {
	const none, pool, partition = isolation.None, isolation.Pool, isolation.Partition
	type kinds = map[string][]float64
	return isolation.Starts{Kinds: []string{none, pool, partition}, Levels: []isolation.Level{
		level(0, 3, kinds{none: {3, 3.1, 2.9}, pool: {4, 3.8, 4.4}, partition: {4, 3.9, 4.1}},
			kinds{none: {.001, .002, .003}, pool: {.03}, partition: {.03}}),
		level(20, 3, kinds{none: {3, 3, 3}, pool: {5, 5.1, 4.9}, partition: {4.1, 4.2, 4}}, kinds{none: {.003}, pool: {.04}, partition: {.04}}),
		level(40, 2, kinds{none: {3.2, 3.4}, pool: {6, 6.1, 8.9}, partition: {4.4, 4.3, 4.5}},
			kinds{none: {.003}, pool: {.066}, partition: {.033}}),
	}}
}

// static has a level for each number, with as many repetitions.
func static(repetitions int, containers ...int) isolation.Starts {
	s := isolation.Starts{Kinds: []string{isolation.None, isolation.Static}}
	for _, n := range containers {
		s.Levels = append(s.Levels, level(n, repetitions,
			map[string][]float64{isolation.None: {2, 2}, isolation.Static: {3, 5, 4, 9}},
			map[string][]float64{isolation.None: {0}, isolation.Static: {0}}))
	}
	return s
}

func TestTable(t *testing.T) {
	text := startTable(starts())
	for _, want := range []string{
		"| containers | starts | no claim | claim, pool | to no claim | growth | claim, partition | to no claim | growth |",
		"| 0 | 3 | 3.00 (2.90 to 3.10) | 4.00 (3.80 to 4.40) | **1.33** | 1.00 | 4.00 (3.90 to 4.10) | **1.33** | 1.00 |",
		"| 40 | 2 | 3.30 (3.20 to 3.40) | 6.10 (6.00 to 8.90) | **1.85** | 1.39 | 4.40 (4.30 to 4.50) | **1.33** | 1.00 |",
	} {
		require.Contains(t, text, want)
	}
}

// A level of an earlier run may lack a kind.
func TestTable_Device(t *testing.T) {
	s := starts()
	s.Kinds = []string{isolation.None, isolation.Device, isolation.Pool}
	s.Levels[0].Seconds[isolation.Device], s.Levels[0].Driver[isolation.Device] = []float64{3.2, 3.1, 3.3}, []float64{0}
	text := startTable(s)
	for _, want := range []string{
		"| containers | starts | no claim | claim of a PCI device | to no claim | claim, pool | to no claim | to a device | growth |\n" +
			"|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
		"| 0 | 3 | 3.00 (2.90 to 3.10) | 3.20 (3.10 to 3.30) | **1.07** | 4.00 (3.80 to 4.40) | **1.33** | **1.25** | 1.00 |",
		"| 40 | 2 | 3.30 (3.20 to 3.40) | - | - | 6.10 (6.00 to 8.90) | **1.85** | - | 1.39 |",
	} {
		require.Contains(t, text, want)
	}
	require.Contains(t, partTable(s), "| containers | no claim | part | claim, pool | part |")
	require.NotContains(t, drawCosts([]isolation.Starts{s}), "PCI")
}

func TestPartTable(t *testing.T) {
	text := partTable(starts())
	for _, want := range []string{
		"| containers | no claim | part | claim, pool | part | claim, partition | part |",
		"| 0 | 2 ms (1 to 3) | **0.001** | 30 ms (30 to 30) | **0.010** | 30 ms (30 to 30) | **0.010** |",
		"| 40 | 3 ms (3 to 3) | **0.001** | 66 ms (66 to 66) | **0.020** | 33 ms (33 to 33) | **0.010** |",
	} {
		require.Contains(t, text, want)
	}
	require.Empty(t, partTable(isolation.Starts{Kinds: []string{isolation.None, isolation.Static}}), "this driver is not in this cluster")
}

// A level of a former version has no CPU times.
func TestCPUTable(t *testing.T) {
	s := starts()
	require.Empty(t, cpuTable(s))
	s.Levels[1].CPU = map[string][]float64{isolation.None: {.5, 1.5}, isolation.Pool: {2, 3, 4}}
	require.Contains(t, cpuTable(s), "| containers | no claim | claim, pool | claim, partition |\n|--:|--:|--:|--:|\n"+
		"| 20 | 1000 ms (500 to 1500) | 3000 ms (2000 to 4000) | - |\n")
	s.Kinds = []string{isolation.None, isolation.Static}
	require.Empty(t, cpuTable(s), "this driver is not in this cluster")
}

func TestPicture(t *testing.T) {
	picture := drawCosts([]isolation.Starts{starts(), static(1, 0, 20, 40)})
	for _, want := range []string{"claim, pool", "claim, partition", "static policy", "containers without a claim", "<circle"} {
		require.Contains(t, picture, want)
	}
	require.NotContains(t, picture, "NaN")
	require.NotContains(t, picture, "Inf")
}

func TestLevels(t *testing.T) {
	all, err := levels("0,20,40")
	require.NoError(t, err)
	require.Equal(t, []int{0, 20, 40}, all)
	all, err = levels("200")
	require.NoError(t, err)
	require.Equal(t, []int{200}, all)
	for _, bad := range []string{"", "-10", "0,40,20", "0,20,20", "0,25", "0,x"} {
		_, err := levels(bad)
		require.Error(t, err, bad)
	}
}

// A contender that is measured again replaces its own numbers only, level by level, in the order of the page.
func TestResults(t *testing.T) {
	dir := t.TempDir()
	before, err := readResults(filepath.Join(dir, numbers))
	require.NoError(t, err)
	require.Empty(t, before)
	marks := "<!-- written by " + target + " -->\n<!-- end of what " + target + " writes -->\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, page), []byte(marks), 0o600))
	first := before.with(result{ID: "static", Name: "Static", Kernel: "6.1", Starts: static(4, 0, 80).Summary()}).
		with(result{ID: "driver", Name: "Driver", Kernel: "6.1", Starts: starts().Summary()})
	require.NoError(t, first.write(dir))
	known, err := readResults(filepath.Join(dir, numbers))
	require.NoError(t, err)
	require.Equal(t, first, known)
	require.Equal(t, starts().Summary(), known.of("driver"))
	require.Empty(t, known.of("peer"))

	more := known.with(result{ID: "static", Name: "Static", Kernel: "6.1", Starts: static(5, 40, 80, 200).Summary()})
	require.NoError(t, more.write(dir))
	text, err := os.ReadFile(filepath.Join(dir, page))
	require.NoError(t, err)
	all := static(5, 0, 40, 80, 200)
	all.Levels[0].Repetitions = 4
	require.Contains(t, string(text), "Driver, on Linux 6.1:\n\n"+startTable(starts())+partTable(starts())+
		"\nStatic, on Linux 6.1:\n\n"+startTable(all))
	require.FileExists(t, filepath.Join(dir, picture))

	for name, r := range map[string]result{
		"another kernel":  {ID: "static", Name: "Static", Kernel: "6.12", Starts: static(4, 0).Summary()},
		"another version": {ID: "static", Name: "Static 2", Kernel: "6.1", Starts: static(4, 0).Summary()},
	} {
		require.Equal(t, r.Starts, more.with(r).of("static"), name)
	}
}

// The page and the picture are made from the numbers that are kept.
func TestPageHasTheNumbers(t *testing.T) {
	const docs = "../../../../docs/explanation"
	known, err := readResults(filepath.Join(docs, numbers))
	require.NoError(t, err)
	require.NotEmpty(t, known)
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(docs, page))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, page), text, 0o600))
	require.NoError(t, known.write(dir))
	for _, name := range []string{page, picture, numbers} {
		was, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		is, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, string(was), string(is), "%s", name)
	}
}

// The peer is measured if the user gives one, with its images.
func TestContenders(t *testing.T) {
	all, err := contenders(&bench.Bench{}, "")
	require.NoError(t, err)
	require.Len(t, all, 2)
	dir := t.TempDir()
	_, err = contenders(&bench.Bench{}, dir)
	require.ErrorContains(t, err, "pod.yaml")
	for _, name := range []string{"pod.yaml", "image.tar"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	all, err = contenders(&bench.Bench{}, dir)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, []string{filepath.Join(dir, "image.tar")}, all[2].options.Images)
	require.Equal(t, "pod.yaml", string(all[2].pod))
}
