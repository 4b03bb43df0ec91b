// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func text(format string, args ...any) *fstest.MapFile {
	return &fstest.MapFile{Data: fmt.Appendf(nil, format, args...)}
}

// l3s returns the L3 of each CPU.
func l3s(m topology.Machine) []int {
	var out []int
	for _, c := range m.CPUs {
		out = append(out, c.L3)
	}
	return out
}

// A07: kernels show masks of CPUs besides lists, or instead of lists.
func TestMasksOfCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := topologytest.Random(t)
		sys, replaced := s.Sys(), false
		for path, list := range maps.Clone(sys) {
			dir, isList := strings.CutSuffix(path, "/shared_cpu_list")
			if !isList || !rapid.Bool().Draw(t, path) {
				continue
			}
			replaced = true
			delete(sys, path)
			sys[dir+"/shared_cpu_map"] = text("%s\n", mask(t, strings.TrimSpace(string(list.Data))))
		}
		m, err := topology.Discover(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize)
		require.NoError(t, err)
		require.Equal(t, s.Machine(), m, "replaced: %v", replaced)
	})
}

// mask returns the list in the kernel's format of masks: words of 32 bits, the
// highest first.
func mask(t *rapid.T, list string) string {
	ids, err := contract.ParseCPUs(list)
	require.NoError(t, err)
	words := make([]uint32, ids.List()[ids.Size()-1]/32+rapid.IntRange(1, 3).Draw(t, "words"))
	for _, id := range ids.List() {
		words[id/32] |= 1 << (id % 32)
	}
	var out []string
	for i := len(words) - 1; i >= 0; i-- {
		format := "%08x"
		if i == len(words)-1 && rapid.Bool().Draw(t, "short") {
			format = "%x"
		}
		out = append(out, fmt.Sprintf(format, words[i]))
	}
	return strings.Join(out, ",")
}

// A07: a faulty cache file costs only its NUMA node the caches, not the
// machine, and gives a warning.
func TestFaultyCaches(t *testing.T) {
	s := topologytest.T2()
	for i := range s.CPUs {
		s.CPUs[i].L3 = s.CPUs[i].Core // two L3s on each node
	}
	require.Equal(t, []int{0, 1, 2, 3, 0, 1, 2, 3}, l3s(s.Machine()))
	const dir = "devices/system/cpu/cpu1/cache/index2/"
	for _, c := range []struct {
		name, file string
		text       *fstest.MapFile // nil: absent
		want       string
	}{
		{"sharers disagree", "shared_cpu_list", text("0-1,5"), `cpu1/cache/index*/shared_cpu_list: "0-1,5", but CPU 0 in it says "0,4"`},
		{"without a thread of the core", "shared_cpu_list", text("1"), "shared_cpu_list: 1, without all CPUs 1,5 of the core"},
		{"without oneself", "shared_cpu_list", text("5"), `"5" lacks CPU 1 itself`},
		{"offline CPUs only", "shared_cpu_list", text("64"), dir + "shared_cpu_list: no online CPU shares the cache"},
		{"rubbish", "shared_cpu_list", text("x y z"), dir + "shared_cpu_list"},
		{"no list and no mask", "shared_cpu_list", nil, dir + "shared_cpu_map"},
		{"rubbish for a level", "level", text("three"), dir + `level: "three"`},
		{"rubbish for a type", "type", text("Trace"), dir + `type: "Trace" is not Unified`},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := s.Sys()
			if delete(sys, dir+c.file); c.text != nil {
				sys[dir+c.file] = c.text
			}
			m, err := discover(sys)
			require.NoError(t, err)
			require.Equal(t, []int{0, 0, 2, 3, 0, 0, 2, 3}, l3s(m), "node 0 stands for its caches, those of node 1 are as they are")
			require.Len(t, m.Warnings, 1)
			require.Contains(t, m.Warnings[0], c.want)
			require.Contains(t, m.Warnings[0], "NUMA node 0 on socket 0")
			m.Warnings = nil
			healthy := s.Machine()
			for i := range m.CPUs {
				healthy.CPUs[i].L3 = m.CPUs[i].L3
			}
			require.Equal(t, healthy, m)
		})
	}
	t.Run("a rubbish mask", func(t *testing.T) {
		for _, rubbish := range []string{"", "x", "1,,2", "123456789", "0,123", strings.Repeat("00000000,", 2100) + "1"} {
			sys := s.Sys()
			delete(sys, dir+"shared_cpu_list")
			sys[dir+"shared_cpu_map"] = text("%s\n", rubbish)
			m, err := discover(sys)
			require.NoError(t, err)
			require.Len(t, m.Warnings, 1)
			require.Contains(t, m.Warnings[0], dir+"shared_cpu_map")
		}
	})
}

// A cache behind the L3 is none that cores are grouped by, and those before it are not read.
func TestOtherCachesThanTheL3(t *testing.T) {
	s := topologytest.T2()
	for i := range s.CPUs {
		s.CPUs[i].L3 = s.CPUs[i].Core // two L3s on each node
	}
	for _, c := range []struct {
		name  string
		files map[string]string // of each CPU's directory cache
	}{
		{"level 4 of all CPUs", map[string]string{"index3/type": "Unified", "index3/level": "4", "index3/shared_cpu_list": "0-7"}},
		{"rubbish before the L3", map[string]string{"index0/type": "Trace", "index1/level": "three"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := s.Sys()
			for _, cpu := range s.CPUs {
				for name, content := range c.files {
					sys[fmt.Sprintf("devices/system/cpu/cpu%d/cache/%s", cpu.ID, name)] = text("%s\n", content)
				}
			}
			m, err := discover(sys)
			require.NoError(t, err)
			require.Equal(t, s.Machine(), m)
		})
	}
}

// A07: sockets where the kernel knows no ids of packages.
func TestSocketsWithoutIDs(t *testing.T) {
	const new, old = "package_cpus_list", "core_siblings_list"
	one, two := make([]int, 8), []int{0, 0, 1, 1, 0, 0, 1, 1}
	core := func(cpu int) string { return fmt.Sprintf("%d,%d", cpu%4, cpu%4+4) }
	for _, c := range []struct {
		name string
		// id and list are the texts of a CPU's files, empty for no file.
		id   func(cpu int) string
		file string
		list func(cpu int) string
		want []int
		err  string
	}{
		{"-1, " + new + " knows", all("-1"), new, halves, two, ""},
		{"no file, " + old + " knows", all(""), old, halves, two, ""},
		{"some -1, " + new + " knows", some, new, halves, two, ""},
		{"-1, the list is the core", all("-1"), new, core, one, ""},
		{"-1, no list", all("-1"), new, all(""), one, ""},
		{"no file, no list", all(""), new, all(""), one, ""},
		{"some -1, no list", some, new, all(""), nil, "4 of 8 CPUs have no socket"},
		{"-1, some have a list", all("-1"), new, func(cpu int) string { return []string{halves(cpu), ""}[cpu/4] }, one, ""},
		{"-1, the lists disagree", all("-1"), new, func(cpu int) string { return []string{"0-7", halves(cpu)}[cpu/4] }, nil,
			`cpu0/topology/package_cpus_list: "0-7", but CPU 4 in it says "0-1,4-5"`},
		{"-1, a rubbish list", all("-1"), new, all("x"), nil, "cpu0/topology/package_cpus_list"},
		{"ids, whatever the list says", func(cpu int) string { return fmt.Sprint(cpu / 2 % 2) }, new, all("x"), two, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := topologytest.T2().Sys()
			for id := range 8 {
				dir := fmt.Sprintf("devices/system/cpu/cpu%d/topology/", id)
				delete(sys, dir+"physical_package_id")
				if id := c.id(id); id != "" {
					sys[dir+"physical_package_id"] = text("%s\n", id)
				}
				if list := c.list(id); list != "" {
					sys[dir+c.file] = text("%s\n", list)
				}
			}
			m, err := discover(sys)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			var got []int
			for _, cpu := range m.CPUs {
				got = append(got, cpu.Socket)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func all(text string) func(int) string { return func(int) string { return text } }

// halves returns the CPUs of the CPU's socket on T2.
func halves(cpu int) string { return []string{"0-1,4-5", "2-3,6-7"}[cpu/2%2] }

func some(cpu int) string { return []string{"-1", "3"}[cpu%2] }

// A07: some kernels end a file with a NUL.
func TestNUL(t *testing.T) {
	s := topologytest.T6()
	sys := s.Sys()
	for path, f := range sys {
		sys[path] = text("%s\x00", f.Data)
		if len(path)%2 == 0 {
			sys[path] = text("%s\x00\n", strings.TrimSpace(string(f.Data)))
		}
	}
	m, err := topology.Discover(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize)
	require.NoError(t, err)
	require.Equal(t, s.Machine(), m)

	sys["devices/system/cpu/online"] = text("0-3\x004-7")
	_, err = discover(sys)
	require.ErrorContains(t, err, "devices/system/cpu/online")
}

// Some virtual machines show no cache of any CPU.
func TestMachineWithoutCaches(t *testing.T) {
	spec := topologytest.T2()
	sys := spec.Sys()
	maps.DeleteFunc(sys, func(path string, _ *fstest.MapFile) bool { return strings.Contains(path, "/cache/") })
	m, err := discover(sys)
	require.NoError(t, err)
	require.Empty(t, m.Warnings)
	for _, c := range m.CPUs {
		node, _ := m.Node(c.Node)
		require.Equal(t, node.CPUs.List()[0], c.L3)
	}
}

// Messages name the file below its root.
func TestMessagesNameTheRoot(t *testing.T) {
	host := t.TempDir()
	roots := topology.At(filepath.Join(host, "sys"), filepath.Join(host, "proc"))
	_, err := topology.Discover(roots, 4096)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "open "+host+"/sys/devices/system/cpu/online: no such file or directory")

	s := topologytest.T1()
	s.NoNUMA = true
	require.NoError(t, os.CopyFS(filepath.Join(host, "sys"), s.Sys()))
	_, err = topology.Discover(roots, 4096)
	require.EqualError(t, err, "open "+host+"/proc/meminfo: no such file or directory")
	require.NoError(t, os.CopyFS(filepath.Join(host, "proc"), s.Proc()))
	m, err := topology.Discover(roots, 4096)
	require.NoError(t, err)
	require.Equal(t, s.Machine(), m)

	for file, want := range map[string]string{
		"online":                            `devices/system/cpu/online: list "x": `,
		"cpu1/topology/physical_package_id": `devices/system/cpu/cpu1/topology/physical_package_id: "x" is not a number`,
		"cpu1/topology/core_cpus_list":      `devices/system/cpu/cpu1/topology/core_cpus_list: list "x"`,
		"cpu2/topology/core_cpus_list":      `devices/system/cpu/cpu2/topology/core_cpus_list: list "x"`,
	} {
		path := filepath.Join(host, "sys/devices/system/cpu", file)
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o600))
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		_, err = topology.Discover(roots, 4096)
		require.ErrorContains(t, err, host+"/sys/"+want)
		require.NoError(t, os.WriteFile(path, good, 0o600))
	}
}

// flapping is a file tree that changes while it is read: after the given number
// of opened files, the next phase begins.
type flapping struct {
	phases []fstest.MapFS
	after  int
	opened int
}

func (f *flapping) now() fstest.MapFS { return f.phases[min(f.opened/f.after, len(f.phases)-1)] }

func (f *flapping) Open(name string) (fs.File, error) {
	f.opened++
	return f.now().Open(name)
}

func (f *flapping) ReadDir(name string) ([]fs.DirEntry, error) { return f.now().ReadDir(name) }

// CPUs may go or come at any moment of the reading. The machine is read as it
// is afterwards.
func TestCPUsThatGoWhileTheyAreRead(t *testing.T) {
	whole, part := topologytest.T2(), topologytest.T2()
	part.CPUs[7].Offline, part.CPUs[4].Offline = true, true
	for name, phases := range map[string][]fstest.MapFS{
		"go": {whole.Sys(), part.Sys()}, "come": {part.Sys(), whole.Sys()},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := discover(phases[len(phases)-1])
			require.NoError(t, err)
			all := &flapping{phases: phases[:1], after: 1}
			_, err = topology.Discover(topology.Roots{Sys: all}, 4096)
			require.NoError(t, err)
			for after := 1; after < all.opened; after++ {
				got, err := topology.Discover(topology.Roots{Sys: &flapping{phases: phases, after: after}}, 4096)
				require.NoError(t, err, "after %d files", after)
				require.Equal(t, want.Online(), got.Online(), "after %d files", after)
				require.Equal(t, want.CPUs, got.CPUs, "after %d files", after)
			}
		})
	}
	t.Run("for ever", func(t *testing.T) {
		_, err := topology.Discover(topology.Roots{Sys: &restless{MapFS: whole.Sys(), other: part.Sys()}}, 4096)
		require.ErrorContains(t, err, "devices/system/cpu/online: CPUs go or come while they are read")
	})
	t.Run("a file that is missing for good", func(t *testing.T) {
		sys := whole.Sys()
		delete(sys, "devices/system/cpu/cpu7/topology/core_cpus_list")
		_, err := discover(sys)
		require.ErrorContains(t, err, "cpu7/topology/core_cpus_list")
	})
}

// restless shows another list of online CPUs at each reading.
type restless struct {
	fstest.MapFS
	other fstest.MapFS
}

func (r *restless) Open(name string) (fs.File, error) {
	if name == "devices/system/cpu/online" {
		r.MapFS, r.other = r.other, r.MapFS
	}
	return r.MapFS.Open(name)
}
