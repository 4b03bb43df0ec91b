// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"io/fs"
	"maps"
	"path"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// readWith reads T2 with additional files in /sys.
func readWith(files map[string]string) (topology.Machine, error) {
	s := topologytest.T2()
	sys := maps.Clone(s.Sys())
	for name, data := range files {
		sys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return topology.Discover(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize)
}

// A71: the CPUs of the boot parameter. Absent CPUs do not count.
func TestIsolatedCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no file":       {nil, ""},
		"none":          {map[string]string{"devices/system/cpu/isolated": "\n"}, ""},
		"some":          {map[string]string{"devices/system/cpu/isolated": "2-3,6\n"}, "2-3,6"},
		"not there":     {map[string]string{"devices/system/cpu/isolated": "6-31\n"}, "6-7"},
		"not partition": {map[string]string{"fs/cgroup/cpuset.cpus.isolated": "2-3\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := readWith(c.files)
			require.NoError(t, err)
			require.Equal(t, c.want, m.Isolated.String())
			require.Empty(t, m.Restricted.String())
		})
	}
}

// A72: cgroups may keep CPUs from pods. Partitions of the pods themselves are
// no restriction, although they take CPUs from the root and all other cgroups.
func TestRestrictedCPUs(t *testing.T) {
	const root, plain, systemd, kind = "fs/cgroup/", "fs/cgroup/kubepods/",
		"fs/cgroup/kubepods.slice/", "fs/cgroup/kubelet.slice/kubelet-kubepods.slice/"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no cgroups": {nil, ""},
		"no kubepods, as in a container of its own": {
			files: map[string]string{root + "cpuset.cpus.effective": "0-3", root + "cpuset.cpus": "0-3", root + "cgroup.type": "domain"},
			want:  "",
		},
		"nothing restricted": {
			files: map[string]string{root + "cpuset.cpus.effective": "0-7\n", plain + "cpuset.cpus": "\n"},
			want:  "",
		},
		"kubepods": {
			files: map[string]string{root + "cpuset.cpus.effective": "0-7\n", plain + "cpuset.cpus": "0-5\n"},
			want:  "6-7",
		},
		"kubepods of systemd, wider than the machine": {map[string]string{systemd + "cpuset.cpus": "2-31\n"}, "0-1"},
		"an ancestor and the container that is the node": {map[string]string{
			root + "cgroup.type": "domain\n", root + "cpuset.cpus": "0-5\n", root + "cpuset.cpus.effective": "0-4\n",
			"fs/cgroup/kubelet.slice/cpuset.cpus": "1-7\n", kind + "cpuset.cpus": "\n",
		}, "0,6-7"},
		"a service's partition": {map[string]string{
			root + "cpuset.cpus.effective": "0-5\n", plain + "cpuset.cpus": "\n",
			plain + "cpuset.cpus.effective": "0-5\n", plain + "cpuset.cpus.exclusive": "\n",
		}, "6-7"},
		"partitions of pods": {map[string]string{
			root + "cpuset.cpus.effective": "0-1,4-7\n", plain + "cpuset.cpus": "\n",
			plain + "cpuset.cpus.effective": "0-1,4-7\n", plain + "cpuset.cpus.exclusive": "2-3\n",
		}, ""},
		"partitions of pods and of a service": {map[string]string{
			root + "cpuset.cpus.effective": "0-1,4-5\n", plain + "cpuset.cpus": "\n", plain + "cpuset.cpus.exclusive": "2-3\n",
		}, "6-7"},
		"partitions of pods below a restricted kubepods": {map[string]string{
			root + "cpuset.cpus.effective": "0-1,4-7\n", plain + "cpuset.cpus": "0-6\n", plain + "cpuset.cpus.exclusive": "2-3\n",
		}, "7"},
		"kubepods of both cgroup drivers": {map[string]string{
			root + "cpuset.cpus.effective": "0-1,4-7\n", plain + "cpuset.cpus": "\n", plain + "cpuset.cpus.exclusive": "\n",
			systemd + "cpuset.cpus": "0-6\n", systemd + "cpuset.cpus.exclusive": "2-3\n",
		}, "7"},
		"before Linux 6.7":      {map[string]string{root + "cpuset.cpus.effective": "0-6\n", plain + "cpuset.cpus": "\n"}, "7"},
		"no cpuset of the root": {map[string]string{plain + "cpuset.cpus": "\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := readWith(c.files)
			require.NoError(t, err)
			require.Equal(t, c.want, m.Restricted.String())
			require.Empty(t, m.Isolated.String())
		})
	}
}

// A72: kubelet has a --cgroup-root of its own.
func TestRestrictedCPUsBelowAnotherCgroup(t *testing.T) {
	roots := topologytest.T2().Roots()
	sys := topologytest.T2().Sys()
	for file, content := range map[string]string{
		"cpuset.cpus.effective": "0-7\n", "own.slice/cpuset.cpus": "2-7\n", "own.slice/own-kubepods.slice/cpuset.cpus": "\n",
	} {
		sys["fs/cgroup/"+file] = &fstest.MapFile{Data: []byte(content)}
	}
	roots.Sys = sys
	for kubepods, want := range map[string]string{"": "", "kubepods": "", "own.slice/own-kubepods.slice": "0-1", "absent": ""} {
		roots.Kubepods = kubepods
		m, err := topology.Discover(roots, 4096)
		require.NoError(t, err, kubepods)
		require.Equal(t, want, m.Restricted.String(), kubepods)
	}
}

// A72: the partitions that have the CPUs are found, those of pods are not among them.
func TestPartitionsElsewhere(t *testing.T) {
	const root, deep = "fs/cgroup/", "fs/cgroup/rt.slice/1/2/3/4/5/6/7/8/9"
	files := map[string]string{
		root + "cpuset.cpus.effective": "0-1,4\n", root + "kubepods/cpuset.cpus": "\n", root + "kubepods/cpuset.cpus.exclusive": "2-3\n",
		root + "kubepods/cpuset.cpus.partition": "member\n", root + "kubepods/pod/cpuset.cpus.partition": "root\n",
		root + "kubepods/pod/cpuset.cpus.effective": "2-3\n", root + "kubepods/pod/ctr/cpuset.cpus.partition": "root\n",
		root + "rt.slice/cpuset.cpus.partition": "root\n", root + "rt.slice/cpuset.cpus.effective": "5\n",
		root + "rt.slice/in/cpuset.cpus.partition": "isolated\n", root + "rt.slice/in/cpuset.cpus.effective": "6\n",
		root + "lost.slice/cpuset.cpus.partition":        "root invalid (Cpu list in cpuset.cpus not exclusive)\n",
		root + "lost.slice/cpuset.cpus.effective":        "0-7\n",
		root + "gone.slice/cpuset.cpus.partition":        "root\n",
		root + "plain.slice/below/cpuset.cpus.partition": "root\n",
		root + "plain.slice/below/cpuset.cpus.effective": "7\n",
		deep + "/cpuset.cpus.partition":                  "root\n",
		deep + "/cpuset.cpus.effective":                  "7\n",
	}
	for dir := path.Dir(deep); dir != root+"rt.slice"; dir = path.Dir(dir) {
		files[dir+"/cpuset.cpus.partition"] = "member\n"
	}
	m, err := readWith(files)
	require.NoError(t, err)
	require.Equal(t, "5-7", m.Restricted.String())
	require.ElementsMatch(t, []topology.ForeignPartition{
		{Cgroup: "rt.slice", Kind: "root", CPUs: contracttest.CPUs("5")},
		{Cgroup: "rt.slice/in", Kind: "isolated", CPUs: contracttest.CPUs("6")},
	}, m.ForeignPartitions)
}

// A07: a list that cannot be read is an error that names the file.
func TestPodCPUsThatCannotBeRead(t *testing.T) {
	for _, file := range []string{
		"devices/system/cpu/isolated", "fs/cgroup/kubepods/cpuset.cpus", "fs/cgroup/kubepods/cpuset.cpus.exclusive",
		"fs/cgroup/cpuset.cpus.effective",
	} {
		files := map[string]string{"fs/cgroup/kubepods/cpuset.cpus": "", "fs/cgroup/cpuset.cpus.effective": "0-7"}
		files[file] = "some"
		_, err := readWith(files)
		require.ErrorContains(t, err, file)
	}
}

// ending is a tree in which the pods' last partition ends when the root's file
// has been read.
type ending struct{ fstest.MapFS }

func (e ending) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	if name == "fs/cgroup/cpuset.cpus.effective" {
		e.MapFS["fs/cgroup/kubepods/cpuset.cpus.exclusive"] = &fstest.MapFile{Data: []byte("\n")}
	}
	return f, err
}

// A72: a partition of pods that ends during the reading restricts no CPU.
func TestPartitionEndsWhileReading(t *testing.T) {
	s := topologytest.T2()
	sys := ending{maps.Clone(s.Sys())}
	for name, data := range map[string]string{
		"cpuset.cpus.effective": "0-1,4-7", "kubepods/cpuset.cpus": "", "kubepods/cpuset.cpus.exclusive": "2-3",
	} {
		sys.MapFS["fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(data)}
	}
	m, err := topology.Discover(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize)
	require.NoError(t, err)
	require.Empty(t, m.Restricted.String())
}
