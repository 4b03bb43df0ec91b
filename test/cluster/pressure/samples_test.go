// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const watched = `at 10.50
/cg/a/memory.stat:anon 1048576
/cg/a/memory.stat:file 2097152
/cg/a/memory.events:oom_kill 0
/cg/a/memory.current:4194304

at 11.00
/cg/a/memory.stat:anon 524288
/cg/a/memory.events:oom_kill 1
/cg/b/memory.current:1048576

at 11.75
/cg/b/memory.current:3145728
`

func TestSamples(t *testing.T) {
	samples, err := parseSamples(watched)
	require.NoError(t, err)
	require.Len(t, samples, 3)
	a := line("a", samples, "/cg/a", keyAnon)
	require.Equal(t, []Point{{0, 1}, {0.5, 0.5}}, a.Points, "gone at the third sample")
	require.EqualValues(t, 1, last(samples, "/cg/a", keyOOMKill))
	require.Zero(t, last(samples, "/cg/none", keyOOMKill))
	require.Equal(t, 1.0, a.At(0.4))
	require.Equal(t, 0.5, a.At(9))
	require.Zero(t, Line{}.At(1))
	require.InDelta(t, 2/0.75, rateAbove(line("b", samples, "/cg/b", keyCurrent), 0.5), 1e-9)
	require.Zero(t, rateAbove(line("b", samples, "/cg/b", keyCurrent), 2), "one point above gives no rate")

	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "x", ContainerID: "containerd://a"}}}}
	dir, err := directory(samples, pod, "x")
	require.NoError(t, err)
	require.Equal(t, "/cg/a", dir)
	_, err = directory(samples, pod, "y")
	require.ErrorContains(t, err, "in no sample")
}

func FuzzParseSamples(f *testing.F) {
	f.Add(watched)
	f.Add("/cg/a/memory.current:1\n")
	f.Add("at x\n")
	f.Fuzz(func(t *testing.T, text string) {
		samples, err := parseSamples(text)
		require.Equal(t, err != nil, len(samples) == 0)
	})
}

func TestParseNUMAMemory(t *testing.T) {
	got, err := parseNUMAMemory("Node 4 MemTotal:       771120 kB\nNode 4 Inactive(file):  12 kB\nNode 4 HugePages_Total:    64\n")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"MemTotal": 771120 << 10, "Inactive(file)": 12 << 10}, got)
	for _, bad := range []string{"", "Node 4 MemTotal: x kB\n", "Node 4 MemFree: 1 kB\n"} {
		_, err := parseNUMAMemory(bad)
		require.Error(t, err, bad)
	}
}

// The parser reads the script's own output, also when a cgroup is missing.
func TestWatchScript(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.stat": "anon 7\nfile_mapped 1\nfile 8\n", "memory.events": "high 3\noom_kill 0\n",
		"memory.current": "15\n", "memory.min": "0\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	script := watchScript([]string{dir, dir + "/gone"}, map[string]string{dir + "/memory.min": "5"})
	// Take one sample, and leave the host's files alone.
	script = strings.ReplaceAll(script, stopFile, filepath.Join(dir, "stop"))
	script = strings.ReplaceAll(script, "usleep 300000", "touch "+filepath.Join(dir, "stop"))
	out, err := exec.Command("sh", "-c", script).Output()
	require.NoError(t, err)
	samples, err := parseSamples(string(out))
	require.NoError(t, err)
	require.Len(t, samples, 1)
	require.Equal(t, map[string]int64{keyAnon: 7, keyFile: 8, keyHigh: 3, keyOOMKill: 0, keyCurrent: 15, keyMin: 5}, samples[0].values[dir])
}
