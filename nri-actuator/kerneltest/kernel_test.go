// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"cmp"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func write(dir, file, content string) Operation {
	return Operation{Kind: Write, Dir: dir, File: file, Content: content}
}

const exclusive, partition = "cpuset.cpus.exclusive", "cpuset.cpus.partition"

// container returns a machine with 8 CPUs and the container a/b/c, below cgroups that
// name the CPUs 2 to 5 if the kernel has partitions there.
func container(t *testing.T, release Release) *Kernel {
	k := New(release, Regular(8, 2))
	require.NoError(t, k.Do(Operation{Kind: Write, File: "cgroup.subtree_control", Content: "+cpuset +memory +hugetlb"}))
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		require.NoError(t, k.Mkdir(dir))
		if dir != "a/b/c" {
			require.NoError(t, k.Write(dir, "cgroup.subtree_control", "+cpuset +memory +hugetlb"))
			if release.HasRemotePartitions() {
				require.NoError(t, k.Write(dir, exclusive, "2-5"))
			}
		}
	}
	return k
}

func read(t *testing.T, k *Kernel, dir, file string) string {
	content, err := k.Read(dir, file)
	require.NoError(t, err)
	return content
}

// The facts that this driver's design rests on (docs/concepts/exclusivity.md).
func TestPartitions(t *testing.T) {
	for name, c := range map[string]struct {
		operations []Operation
		// partition is what the container is, machine what the root can use.
		partition, machine string
		// lost are the CPUs that Linux 6.12 loses, on7 is what the container is on Linux 7
		// if that differs.
		lost, on7 string
	}{
		"a partition takes its CPUs from the machine": {
			operations: []Operation{write("a/b/c", exclusive, "2-3"), write("a/b/c", partition, "root")},
			partition:  "root", machine: "0-1,4-7",
		},
		"CPUs that the cgroups above do not name": {
			operations: []Operation{write("a/b/c", exclusive, "6"), write("a/b/c", partition, "root")},
			partition:  "root invalid (Invalid cpu list in cpuset.cpus.exclusive)", machine: "0-7",
		},
		"a member gives the CPUs back": {
			operations: []Operation{write("a/b/c", exclusive, "2-3"), write("a/b/c", partition, "root"), write("a/b/c", partition, "member")},
			partition:  "member", machine: "0-7",
		},
		"CPUs that a cgroup above names no longer when the partition ends": {
			operations: []Operation{
				write("a/b/c", exclusive, "2-3"), write("a/b/c", partition, "root"), write("a/b", exclusive, ""),
				write("a/b/c", partition, "member"),
			},
			partition: "member", machine: "0-7", lost: "2-3",
		},
		"a sibling that runs on one of the CPUs": {
			operations: []Operation{
				write("a/b/c", exclusive, "2-3"), write("a/b/c", partition, "root"), {Kind: Mkdir, Dir: "a/b/d"}, write("a/b/d", "cpuset.cpus", "0,3"),
			},
			partition: "root invalid", machine: "0-7", lost: "2-3", on7: "root",
		},
	} {
		for _, release := range []Release{Linux612, Linux7} {
			t.Run(name+", "+release.Name, func(t *testing.T) {
				k := container(t, release)
				for _, o := range c.operations {
					require.NoError(t, k.Do(o), "%s", o)
				}
				if release.Name == Linux7.Name && c.on7 != "" {
					require.Equal(t, c.on7, read(t, k, "a/b/c", partition))
					return
				}
				require.Equal(t, c.partition, read(t, k, "a/b/c", partition))
				if c.lost != "" && release.Name == Linux612.Name {
					require.Equal(t, c.lost, k.Lost())
					return
				}
				require.Empty(t, k.Lost())
				require.Equal(t, c.machine, read(t, k, "", "cpuset.cpus.effective"))
			})
		}
	}
}

// Linux 6.1 tries no invalid partition again: another kind has the reason of the former.
func TestInvalidPartitionKeepsItsReason(t *testing.T) {
	k := container(t, Linux61)
	for _, o := range []Operation{
		write("a/b/c", partition, "root"), write("a/b", "cpuset.cpus", "1-3"), write("a/b/c", partition, "isolated"),
	} {
		require.NoError(t, k.Do(o), "%s", o)
	}
	require.Equal(t, "isolated invalid (Parent is not a partition root)", read(t, k, "a/b/c", partition))
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		operation Operation
		want      error
	}{
		"a cgroup with children":        {Operation{Kind: Rmdir, Dir: "a"}, syscall.EBUSY},
		"a cgroup that does not exist":  {Operation{Kind: Rmdir, Dir: "x"}, syscall.ENOENT},
		"a process beside children":     {Operation{Kind: Attach, Dir: "a"}, syscall.EBUSY},
		"a read-only file":              {Operation{Kind: Write, Dir: "a", File: "cpuset.cpus.effective", Content: "1"}, syscall.EACCES},
		"CPUs that the machine has not": {Operation{Kind: Write, Dir: "a", File: "cpuset.cpus", Content: "9"}, syscall.EINVAL},
		"an unknown controller": {
			Operation{Kind: Write, Dir: "a/b/c", File: "cgroup.subtree_control", Content: "+x"}, syscall.EINVAL,
		},
		"a partition below the root": {Operation{Kind: Write, Dir: "a", File: "cpuset.cpus.partition", Content: "root"}, ErrOutside},
		"an unknown kind": {
			Operation{Kind: Write, Dir: "a/b/c", File: "cpuset.cpus.partition", Content: "yes"}, syscall.EINVAL,
		},
		"an amount that is no number":       {Operation{Kind: Write, Dir: "a", File: "memory.max", Content: "1x"}, syscall.EINVAL},
		"the same cgroup twice":             {Operation{Kind: Mkdir, Dir: "a/b"}, syscall.EEXIST},
		"a cgroup below one that is absent": {Operation{Kind: Mkdir, Dir: "x/y"}, syscall.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, container(t, Linux612).Do(c.operation), c.want)
		})
	}
}

// A process in a cgroup namespace cannot write the files of the namespace's root, which
// are its parent's (cgroup-v2.rst, "Model of Delegation"). All others it can write.
func TestNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		operation Operation
		want      error
	}{
		"its own cpuset":          {Operation{Dir: "a/b/c", File: "cpuset.cpus", Content: "2"}, syscall.EPERM},
		"its own partition":       {Operation{Dir: "a/b/c", File: "cpuset.cpus.partition", Content: "member"}, syscall.EPERM},
		"its own memory":          {Operation{Dir: "a/b/c", File: "memory.min", Content: "0"}, syscall.EPERM},
		"its own, no amount":      {Operation{Dir: "a/b/c", File: "memory.min", Content: "x"}, syscall.EPERM},
		"its own, read-only":      {Operation{Dir: "a/b/c", File: "cpuset.cpus.effective", Content: "2"}, syscall.EACCES},
		"its own, no such file":   {Operation{Dir: "a/b/c", File: "cpuset.x", Content: "2"}, syscall.ENOENT},
		"its own controllers":     {Operation{Dir: "a/b/c", File: "cgroup.subtree_control", Content: ""}, nil},
		"controllers, inside":     {Operation{Dir: "a/b/c", File: "cgroup.subtree_control", Content: "+cpuset"}, syscall.EBUSY},
		"its parent":              {Operation{Dir: "a/b", File: "memory.min", Content: "4096"}, nil},
		"a sibling":               {Operation{Dir: "a/b/d", File: "cpuset.cpus", Content: "2"}, nil},
		"from a cgroup of groups": {Operation{Dir: "a/b/d", File: "cpuset.cpus", Content: "2", Namespace: "a"}, syscall.EBUSY},
		"from a cgroup that is not there": {
			Operation{Dir: "a/b/d", File: "cpuset.cpus", Content: "2", Namespace: "x"}, syscall.ENOENT,
		},
	} {
		for _, release := range Releases() {
			t.Run(name+", "+release.Name, func(t *testing.T) {
				k := New(release, Regular(8, 2))
				for _, dir := range []string{"", "a", "a/b", "a/b/c", "a/b/d"} {
					if dir != "" {
						require.NoError(t, k.Mkdir(dir))
					}
					if dir != "a/b/c" && dir != "a/b/d" {
						require.NoError(t, k.Write(dir, "cgroup.subtree_control", "+cpuset +memory +hugetlb"))
					}
				}
				before := k.text()
				o := c.operation
				o.Kind, o.Namespace = Write, cmp.Or(o.Namespace, "a/b/c")
				err := k.Do(o)
				require.ErrorIs(t, err, c.want, "%s", o)
				require.Zero(t, k.Processes("a/b/c"))
				if c.want != nil {
					require.Equal(t, before, k.text())
				}
			})
		}
	}
}

// A copy shares nothing with its origin: what happens to one leaves the other.
func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		release := rapid.SampledFrom(Releases()).Draw(t, "release")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		k := New(release, Regular(8, 2))
		require.NoError(t, k.Write("", "cgroup.subtree_control", "+cpuset +memory +hugetlb"))
		for range 60 {
			_ = k.Do(k.Random(r))
		}
		before, copied := k.text(), k.Clone()
		require.Equal(t, before, copied.text())
		for range 20 {
			_ = copied.Do(copied.Random(r))
		}
		require.Equal(t, before, k.text())
	})
}

// text returns all files.
func (k *Kernel) text() map[string]string {
	all := make(map[string]string)
	for _, dir := range append(k.Dirs(), "") {
		files, _ := k.Files(dir)
		for _, file := range files {
			all[dir+"/"+file], _ = k.Read(dir, file)
		}
	}
	return all
}

// Linux 7 loses the CPUs of a partition that names none for itself, if its cpuset.cpus
// changes. This driver names the CPUs of each partition.
func TestLinux7LosesCPUs(t *testing.T) {
	k := container(t, Linux7)
	for _, w := range [][2]string{{"cpuset.cpus", "2-3"}, {"cpuset.cpus.partition", "root"}, {"cpuset.cpus", "3"}} {
		require.NoError(t, k.Write("a/b/c", w[0], w[1]))
	}
	require.Equal(t, "2", k.Lost())
}

// On Linux 7 each online CPU is of the root or of exactly one partition, if partitions
// name their CPUs for themselves.
func TestNoCPUIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		k := New(Linux7, Regular(8, 2))
		require.NoError(t, k.Write("", "cgroup.subtree_control", "+cpuset +memory +hugetlb"))
		for range 300 {
			o := k.Random(r)
			if c, err := k.find(o.Dir); err == nil && c.exclusive.empty() && o.File == "cpuset.cpus.partition" {
				continue
			}
			if c, err := k.find(o.Dir); err == nil && c.kind != member && o.File == "cpuset.cpus.exclusive" && o.Content == "" {
				continue
			}
			_ = k.Do(o)
			require.Empty(t, k.Lost(), "after %s", o)
			seen := k.root.effective
			for _, c := range k.remotes {
				require.False(t, seen.overlaps(c.effective), "after %s: %s has %s of another's", o, c.dir, c.effective)
				seen = seen.union(c.effective)
			}
		}
	})
}
