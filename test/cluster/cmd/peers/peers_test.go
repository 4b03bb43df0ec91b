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

func starts() isolation.Starts {
	return isolation.Starts{
		Kinds:  []string{isolation.None, isolation.Pool, isolation.Partition},
		Levels: []int{0, 20, 40}, Seconds: map[string][][]float64{
			isolation.None: {{3, 3.1, 2.9}, {3, 3, 3}, {3.3, 3.2, 3.4}},
			isolation.Pool: {{4, 3.8, 4.4}, {5, 5.1, 4.9}, {6, 6.1, 8.9}}, isolation.Partition: {{4, 3.9, 4.1}, {4.1, 4.2, 4}, {4.4, 4.3, 4.5}},
		}, Driver: map[string][][]float64{
			isolation.None: {{.001, .002, .003}, {.003}, {.003}}, isolation.Pool: {{.03}, {.04}, {.066}},
			isolation.Partition: {{.03}, {.04}, {.033}},
		},
	}
}

func TestTable(t *testing.T) {
	text := startTable(starts())
	for _, want := range []string{
		"| containers | no claim | claim, pool | to no claim | growth | claim, partition | to no claim | growth |",
		"| 0 | 3.0 (2.9 to 3.1) | 4.0 (3.8 to 4.4) | **1.33** | 1.00 | 4.0 (3.9 to 4.1) | **1.33** | 1.00 |",
		"| 40 | 3.3 (3.2 to 3.4) | 6.1 (6.0 to 8.9) | **1.85** | 1.39 | 4.4 (4.3 to 4.5) | **1.33** | 1.00 |",
	} {
		require.Contains(t, text, want)
	}
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

func TestPicture(t *testing.T) {
	static := isolation.Starts{
		Kinds: []string{isolation.None, isolation.Static}, Levels: []int{0, 20, 40},
		Seconds: map[string][][]float64{isolation.None: {{2}, {3}, {4}}, isolation.Static: {{3}, {4}, {5}}},
	}
	picture := drawCosts([]isolation.Starts{starts(), static})
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
	for _, bad := range []string{"", "20,40", "0,40,20", "0,20,20", "0,25", "0,x"} {
		_, err := levels(bad)
		require.Error(t, err, bad)
	}
}

// A contender that is measured again replaces its numbers only, in the order of the page.
func TestResults(t *testing.T) {
	dir := t.TempDir()
	before, err := readResults(filepath.Join(dir, numbers))
	require.NoError(t, err)
	require.Empty(t, before)
	marks := "<!-- written by " + target + " -->\n<!-- end of what " + target + " writes -->\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, page), []byte(marks), 0o600))
	static := isolation.Starts{
		Kinds: []string{isolation.None, isolation.Static}, Levels: []int{0},
		Seconds: map[string][][]float64{isolation.None: {{2}}, isolation.Static: {{3, 5, 4, 9}, {7}}}, Driver: map[string][][]float64{},
	}
	require.Equal(t, [][]float64{{3, 4.5, 9}}, static.Summary().Seconds[isolation.Static], "a level that is not complete is left out")
	first := before.with(result{ID: "static", Name: "Static", Kernel: "6.1", Repetitions: 4, Starts: static.Summary()}).
		with(result{ID: "driver", Name: "Driver", Kernel: "6.1", Repetitions: 3, Starts: starts().Summary()})
	require.NoError(t, first.write(dir))
	known, err := readResults(filepath.Join(dir, numbers))
	require.NoError(t, err)
	require.Equal(t, first, known)
	require.Equal(t, []int{3, 1, 0}, []int{known.levels("driver"), known.levels("static"), known.levels("peer")})
	again := known.with(result{ID: "driver", Name: "Driver", Kernel: "6.12", Repetitions: 3, Starts: starts().Summary()})
	require.NoError(t, again.write(dir))
	text, err := os.ReadFile(filepath.Join(dir, page))
	require.NoError(t, err)
	require.Contains(t, string(text), "Driver, on Linux 6.12, 3 starts each:\n\n"+startTable(starts())+partTable(starts())+
		"\nStatic, on Linux 6.1, 4 starts each:\n\n"+startTable(static))
	require.FileExists(t, filepath.Join(dir, picture))
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
