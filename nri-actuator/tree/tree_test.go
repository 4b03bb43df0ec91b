// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

var levels = map[string]string{"": "kubepods", "burstable": "kubepods/burstable", "besteffort": "kubepods/besteffort"}

func cpus(list string) contract.CPUSet { return contracttest.CPUs(list) }

// text is a plan, one step a line.
func text(steps []tree.Step) []string {
	var lines []string
	for _, s := range steps {
		signs := map[tree.Act]string{tree.SaveFormer: " keeps", tree.GiveBack: " back", tree.MarkWritten: " mark"}[s.Act]
		if s.Overwritten {
			signs += " overwritten"
		}
		lines = append(lines, fmt.Sprintf("%s/%s = %q%s", s.Dir, s.File, s.Content, signs))
	}
	return lines
}

func TestDesired(t *testing.T) {
	node := contract.NodeState{
		Shared:        contract.Shared{CPUs: cpus("0-3"), Mems: contracttest.NUMANodes("0")},
		Ancestors:     map[string]contract.Files{"": {"memory.min": "1"}},
		PartitionCPUs: map[string]contract.CPUSet{"": cpus("8-9"), "burstable": cpus("8-9")},
		Pods: map[string]contract.PodState{
			"a": {Cgroup: contract.Files{"memory.min": "1"}, PartitionCPUs: cpus("8-9")},
		},
	}
	pool := contract.Decision{V: contract.Version}.WithShared(node.Shared)
	partition := contract.Decision{V: contract.Version, CPUs: cpus("8-9"), Partition: contract.PartitionRoot}
	require.Equal(t, map[string]tree.Cgroup{
		"kubepods":             {Kind: tree.Level, Files: contract.Files{"memory.min": "1", contract.FileExclusive: "6-9"}},
		"kubepods/burstable":   {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "8-9"}},
		"kubepods/besteffort":  {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "6-7"}},
		"kubepods/burstable/a": {Kind: tree.Pod, Files: contract.Files{"memory.min": "1", contract.FileExclusive: "8-9"}},
		"kubepods/burstable/a/one": {
			Kind: tree.Partitioned, Files: contract.Files{tree.FileCPUs: "8-9", contract.FileExclusive: "8-9"},
		},
		"kubepods/burstable/a/two": {Kind: tree.Pooled, Files: contract.Files{tree.FileCPUs: "0-3", tree.FileMems: "0"}},
		"kubepods/besteffort/b":    {Kind: tree.Pod, Files: contract.Files{contract.FileExclusive: "6-7"}},
	}, tree.Desired(node, levels, []tree.Holding{
		{Dir: "kubepods/burstable/a/one", PodDir: "kubepods/burstable/a", PodUID: "a", Decision: partition, Claimed: true},
		{Dir: "kubepods/burstable/a/two", PodDir: "kubepods/burstable/a", PodUID: "a", Decision: pool},
		// A container that stays as it is, and that the kernel has a partition for.
		{Dir: "kubepods/besteffort/b/c", PodDir: "kubepods/besteffort/b", PodUID: "b", PartitionCPUs: cpus("6-7")},
	}))
}

// A pod's and a level's partition CPUs are the node state's before a container is
// known, and a container without a cgroup has no files.
func TestDesiredBeforeContainers(t *testing.T) {
	node := contract.NodeState{
		Shared:        contract.Shared{CPUs: cpus("0-3"), Mems: contracttest.NUMANodes("0")},
		PartitionCPUs: map[string]contract.CPUSet{"burstable": cpus("8-9")},
		Pods:          map[string]contract.PodState{"a": {PartitionCPUs: cpus("8-9")}},
	}
	exclusive := contract.Files{contract.FileExclusive: "8-9"}
	require.Equal(t, map[string]tree.Cgroup{
		"kubepods":             {Kind: tree.Level},
		"kubepods/burstable":   {Kind: tree.Level, Files: exclusive},
		"kubepods/besteffort":  {Kind: tree.Level},
		"kubepods/burstable/a": {Kind: tree.Pod, Files: exclusive},
	}, tree.Desired(node, levels, []tree.Holding{
		{PodDir: "kubepods/burstable/a", PodUID: "a", Decision: contract.Decision{V: contract.Version}.WithShared(node.Shared)},
	}))
}

func TestGivenBack(t *testing.T) {
	state := tree.State{
		Files:   contract.Files{"returned": "0", "wanted": "0", "ours": "1", "theirs": "7"},
		Former:  contract.Files{"returned": "0", "wanted": "0", "ours": "0", "theirs": "0", "gone": "0"},
		Written: contract.Files{"returned": "1", "wanted": "1", "ours": "1", "theirs": "1", "gone": "1"},
	}
	returned, overwritten := state.GivenBack(contract.Files{"wanted": "2"})
	require.Equal(t, contract.Files{"returned": "0"}, returned)
	require.Equal(t, contract.Files{"theirs": "7"}, overwritten)
}

// A step names its cgroup's kind, what it replaces, and whether another program wrote it.
func TestStepsAreComplete(t *testing.T) {
	steps := tree.Steps(map[string]tree.Cgroup{"kubepods": {Kind: tree.Level, Files: contract.Files{"memory.min": "2"}},
		"kubepods/a": {Kind: tree.Pod, Files: contract.Files{"memory.min": "3"}}},
		map[string]tree.State{
			"kubepods": {Files: contract.Files{"memory.min": "1"}},
			"kubepods/a": {
				Files: contract.Files{"memory.min": "7"}, Former: contract.Files{"memory.min": "0"}, Written: contract.Files{"memory.min": "1"},
			},
		})
	require.Equal(t, []tree.Step{
		{Dir: "kubepods", Kind: tree.Level, File: "memory.min", Content: "2", Found: "1", Act: tree.SaveFormer},
		{Dir: "kubepods/a", Kind: tree.Pod, File: "memory.min", Content: "3", Found: "7", Overwritten: true, Act: tree.SaveFormer},
	}, steps)
}

// Another client of the runtime may name a level or a container as a pod's
// cgroup.
func TestPodsTakeNoOtherPlace(t *testing.T) {
	node := contract.NodeState{
		Shared:    contract.Shared{CPUs: cpus("0-3"), Mems: contracttest.NUMANodes("0")},
		Ancestors: map[string]contract.Files{"": {"memory.min": "1"}},
	}
	pool := contract.Decision{V: contract.Version}.WithShared(node.Shared)
	desired := tree.Desired(node, levels, []tree.Holding{
		{Dir: "kubepods/a/one", PodDir: "kubepods/a", PodUID: "a", Decision: pool},
		{Dir: "kubepods/two", PodDir: "kubepods", PodUID: "b", Decision: pool},
		{Dir: "kubepods/a/one/three", PodDir: "kubepods/a/one", PodUID: "c", Decision: pool},
	})
	require.Equal(t, tree.Cgroup{Kind: tree.Level, Files: contract.Files{"memory.min": "1"}}, desired["kubepods"])
	require.Equal(t, tree.Pooled, desired["kubepods/a/one"].Kind)
}

func TestSteps(t *testing.T) {
	const pod, one, two = "kubepods/burstable/a", "kubepods/burstable/a/one", "kubepods/burstable/a/two"
	for name, c := range map[string]struct {
		desired  map[string]tree.Cgroup
		observed map[string]tree.State
		want     []string
	}{
		"nothing to do": {
			desired:  map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{"memory.min": "1"}}},
			observed: map[string]tree.State{pod: {Files: contract.Files{"memory.min": "1"}}},
		},
		"the former value is kept once": {
			desired: map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{"memory.min": "2", "memory.low": "2"}}},
			observed: map[string]tree.State{pod: {
				Files:   contract.Files{"memory.min": "1", "memory.low": "1"},
				Former:  contract.Files{"memory.low": "0"},
				Written: contract.Files{"memory.low": "1"},
			}},
			want: []string{pod + `/memory.low = "2"`, pod + `/memory.min = "2" keeps`},
		},
		"another program's content is the new former value": {
			desired: map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{"memory.min": "2"}}},
			observed: map[string]tree.State{pod: {
				Files:   contract.Files{"memory.min": "7"},
				Former:  contract.Files{"memory.min": "0"},
				Written: contract.Files{"memory.min": "1"},
			}},
			want: []string{pod + `/memory.min = "2" keeps overwritten`},
		},
		"systemd may have written this driver's older content": {
			desired: map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{"memory.min": "2"}}},
			observed: map[string]tree.State{pod: {
				Files:   contract.Files{"memory.min": "7"},
				Former:  contract.Files{"memory.min": "0"},
				Written: contract.Files{"memory.min": "1"},
				Behind:  true,
			}},
			want: []string{pod + `/memory.min = "2"`},
		},
		"given back, and another program's content stays": {
			desired: map[string]tree.Cgroup{pod: {Kind: tree.Pod}},
			observed: map[string]tree.State{pod: {
				Files:   contract.Files{"memory.min": "1", "memory.low": "7"},
				Former:  contract.Files{"memory.min": "0", "memory.low": "0"},
				Written: contract.Files{"memory.min": "1", "memory.low": "1"},
			}},
			want: []string{pod + `/memory.min = "0" back`},
		},
		"the pool shrinks before a claim gets its CPUs": {
			desired: map[string]tree.Cgroup{
				one: {Kind: tree.Claimed, Files: contract.Files{tree.FileCPUs: "4-7"}},
				two: {Kind: tree.Pooled, Files: contract.Files{tree.FileCPUs: "0-3"}},
			},
			observed: map[string]tree.State{
				one: {Files: contract.Files{tree.FileCPUs: "0-7"}}, two: {Files: contract.Files{tree.FileCPUs: "0-7"}},
			},
			want: []string{two + `/cpuset.cpus = "0-3"`, one + `/cpuset.cpus = "4-7"`},
		},
		"a partition ends as a member with its CPUs": {
			desired:  map[string]tree.Cgroup{one: {Kind: tree.Pooled, Files: contract.Files{tree.FileCPUs: "0-3"}}},
			observed: map[string]tree.State{one: {Files: contract.Files{contract.FilePartition: "root", tree.FileCPUs: "4-7"}}},
			want: []string{
				one + `/cpuset.cpus.partition = "member"`, one + `/cpuset.cpus.exclusive = ""`, one + `/cpuset.cpus = "0-3"`,
			},
		},
		"CPUs change hands from the bottom up and from the top down": {
			desired: map[string]tree.Cgroup{
				"kubepods":            {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "4-7"}},
				"kubepods/besteffort": {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "4-7"}},
				"kubepods/burstable":  {Kind: tree.Level},
				pod:                   {Kind: tree.Pod},
			},
			observed: map[string]tree.State{
				"kubepods":            {Files: contract.Files{contract.FileExclusive: ""}},
				"kubepods/besteffort": {Files: contract.Files{contract.FileExclusive: ""}},
				"kubepods/burstable": {
					Files: contract.Files{contract.FileExclusive: "4-7"}, Former: contract.Files{contract.FileExclusive: ""},
				},
				pod: {Files: contract.Files{contract.FileExclusive: "4-7"}, Former: contract.Files{contract.FileExclusive: ""}},
			},
			want: []string{
				pod + `/cpuset.cpus.exclusive = "" back`, `kubepods/burstable/cpuset.cpus.exclusive = "" back`,
				`kubepods/cpuset.cpus.exclusive = "4-7" keeps`, `kubepods/besteffort/cpuset.cpus.exclusive = "4-7" keeps`,
			},
		},
		"a container's content is marked": {
			desired:  map[string]tree.Cgroup{one: {Kind: tree.Pooled, Files: contract.Files{tree.FileCPUs: "0-3"}}},
			observed: map[string]tree.State{one: {Files: contract.Files{tree.FileCPUs: "0-3"}}},
			want:     []string{one + `/cpuset.cpus = "0-3" mark`},
		},
		"a file that does not exist has no former value": {
			desired:  map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{"hugetlb.2MB.max": "1"}}},
			observed: map[string]tree.State{pod: {Files: contract.Files{}}},
			want:     []string{pod + `/hugetlb.2MB.max = "1"`},
		},
		"a cgroup that loses and gets CPUs keeps its former value": {
			desired: map[string]tree.Cgroup{
				"kubepods": {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "6-9"}},
			},
			observed: map[string]tree.State{"kubepods": {Files: contract.Files{contract.FileExclusive: "4-7"}}},
			want: []string{
				`kubepods/cpuset.cpus.exclusive = "6-7" keeps`, `kubepods/cpuset.cpus.exclusive = "6-9"`,
			},
		},
		"a partition names its CPUs when the cgroups above do": {
			desired: map[string]tree.Cgroup{
				pod: {Kind: tree.Pod, Files: contract.Files{contract.FileExclusive: "4-7"}},
				one: {Kind: tree.Partitioned, Files: contract.Files{contract.FileExclusive: "4-7"}},
			},
			observed: map[string]tree.State{
				pod: {Files: contract.Files{contract.FileExclusive: ""}},
				one: {Files: contract.Files{contract.FileExclusive: "", contract.FilePartition: "root"}},
			},
			want: []string{pod + `/cpuset.cpus.exclusive = "4-7" keeps`, one + `/cpuset.cpus.exclusive = "4-7"`},
		},
		"a partition waits for the cgroups above": {
			desired: map[string]tree.Cgroup{
				one: {Kind: tree.Partitioned, Files: contract.Files{contract.FileExclusive: "4-7"}},
			},
			observed: map[string]tree.State{
				pod: {Files: contract.Files{contract.FileExclusive: "4-6"}},
				one: {Files: contract.Files{contract.FileExclusive: "", contract.FilePartition: "root"}},
			},
		},
		"a pod waits for its level, where another pod has the CPUs": {
			desired: map[string]tree.Cgroup{
				"kubepods/besteffort": {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "4-5"}},
				"kubepods/burstable":  {Kind: tree.Level, Files: contract.Files{contract.FileExclusive: "4-7"}},
				pod:                   {Kind: tree.Pod, Files: contract.Files{contract.FileExclusive: "4-7"}},
			},
			observed: map[string]tree.State{
				"kubepods/besteffort": {Files: contract.Files{contract.FileExclusive: "4-5"}},
				"kubepods/burstable":  {Files: contract.Files{contract.FileExclusive: ""}},
				pod:                   {Files: contract.Files{contract.FileExclusive: ""}},
			},
		},
		"a partition of CPUs that are not all its own ends": {
			desired: map[string]tree.Cgroup{
				one: {Kind: tree.Partitioned, Files: contract.Files{tree.FileCPUs: "4-5", contract.FileExclusive: "4-5"}},
			},
			observed: map[string]tree.State{
				one: {Files: contract.Files{tree.FileCPUs: "4-7", contract.FileExclusive: "4-7", contract.FilePartition: "root"}},
			},
			want: []string{
				one + `/cpuset.cpus.partition = "member"`, one + `/cpuset.cpus.exclusive = ""`,
				one + `/cpuset.cpus = "4-5"`, one + `/cpuset.cpus.exclusive = "4-5"`,
			},
		},
		"a partition of a part of its CPUs stays": {
			desired: map[string]tree.Cgroup{
				one: {Kind: tree.Partitioned, Files: contract.Files{contract.FileExclusive: "4-7"}},
			},
			observed: map[string]tree.State{
				one: {Files: contract.Files{contract.FileExclusive: "4-5", contract.FilePartition: "root"}},
			},
			want: []string{one + `/cpuset.cpus.exclusive = "4-7"`},
		},
		"CPUs are taken back, and the content is marked with the write": {
			desired: map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{contract.FileExclusive: "6-7"}}},
			observed: map[string]tree.State{pod: {
				Files: contract.Files{contract.FileExclusive: "4-9"}, Former: contract.Files{contract.FileExclusive: ""},
				Written: contract.Files{contract.FileExclusive: "4-9"},
			}},
			want: []string{pod + `/cpuset.cpus.exclusive = "6-7"`},
		},
		"a pod's content whose mark was lost is marked": {
			desired: map[string]tree.Cgroup{pod: {Kind: tree.Pod, Files: contract.Files{"memory.min": "1"}}},
			observed: map[string]tree.State{pod: {
				Files: contract.Files{"memory.min": "1"}, Former: contract.Files{"memory.min": "0"},
			}},
			want: []string{pod + `/memory.min = "1" mark`},
		},
		"CPUs of a sibling are not asked for": {
			desired: map[string]tree.Cgroup{
				pod:                    {Kind: tree.Pod, Files: contract.Files{contract.FileExclusive: "4-7"}},
				"kubepods/burstable/b": {Kind: tree.Pod},
			},
			observed: map[string]tree.State{
				pod:                    {Files: contract.Files{contract.FileExclusive: ""}},
				"kubepods/burstable/b": {Files: contract.Files{contract.FileExclusive: "4"}},
			},
		},
		"what cannot be read is not written over, except in a container": {
			desired: map[string]tree.Cgroup{
				pod: {Kind: tree.Pod, Files: contract.Files{"memory.min": "1"}},
				one: {Kind: tree.Pooled, Files: contract.Files{tree.FileCPUs: "0-3"}},
			},
			observed: map[string]tree.State{
				pod: {Unreadable: map[string]bool{"memory.min": true}},
				one: {Unreadable: map[string]bool{tree.FileCPUs: true}},
			},
			want: []string{one + `/cpuset.cpus = "0-3"`},
		},
		"a cgroup that is gone": {desired: map[string]tree.Cgroup{one: {Kind: tree.Pooled, Files: contract.Files{tree.FileCPUs: "0-3"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, text(tree.Steps(c.desired, c.observed)))
		})
	}
}

// kernel is a node's cgroups with the kernel's rules.
type kernel map[string]tree.State

func (k kernel) add(dir string) {
	if _, known := k[dir]; !known {
		k[dir] = tree.State{
			Files:  contract.Files{contract.FileExclusive: "", contract.FilePartition: tree.Member, tree.FileCPUs: "0-15"},
			Former: contract.Files{}, Written: contract.Files{},
		}
	}
}

func (k kernel) exclusive(dir string) contract.CPUSet {
	return cpus(k[dir].Files[contract.FileExclusive])
}

// take takes a step, and fails if the kernel would refuse it.
func (k kernel) take(t *rapid.T, s tree.Step) {
	if s.Act == tree.MarkWritten {
		k[s.Dir].Written[s.File] = s.Content
		return
	}
	if s.File == contract.FileExclusive {
		for other := range k {
			if other != s.Dir && path.Dir(other) == path.Dir(s.Dir) {
				require.False(t, k.exclusive(other).Overlaps(cpus(s.Content)), "%s gets %s, %s has %s", s.Dir,
					s.Content, other, k.exclusive(other))
			}
		}
	}
	if s.Act == tree.SaveFormer {
		k[s.Dir].Former[s.File] = k[s.Dir].Files[s.File]
	}
	k[s.Dir].Files[s.File], k[s.Dir].Written[s.File] = s.Content, s.Content
}

// partitions checks that each partition has its CPUs in all cgroups above it:
// otherwise the kernel loses the CPUs when the partition ends.
func (k kernel) partitions(t *rapid.T) {
	for dir, state := range k {
		if state.Files[contract.FilePartition] == tree.Member {
			continue
		}
		for above := path.Dir(dir); above != "."; above = path.Dir(above) {
			require.True(t, k.exclusive(dir).IsSubsetOf(k.exclusive(above)), "%s is a partition of %s, %s has %s",
				dir, k.exclusive(dir), above, k.exclusive(above))
		}
	}
}

// I1, I4: whatever claims come and go and whenever the process ends, no plan
// gives a claim's CPUs to a claim while a pool container has them, the kernel
// refuses no step, no partition loses its CPUs, and the next plan ends where the
// lost one would have.
func TestPlansSurvive(t *testing.T) {
	type claimant struct {
		dir, level string
		cpus       contract.CPUSet
		partition  string
	}
	rapid.Check(t, func(t *rapid.T) {
		k := kernel{}
		for _, dir := range levels {
			k.add(dir)
		}
		var all []*claimant
		for i := range rapid.IntRange(1, 6).Draw(t, "containers") {
			level := rapid.SampledFrom([]string{"", "burstable", "besteffort"}).Draw(t, "level")
			c := &claimant{dir: fmt.Sprintf("%s/p%d/c", levels[level], i), level: level}
			k.add(path.Dir(c.dir))
			k.add(c.dir)
			all = append(all, c)
		}
		for range rapid.IntRange(1, 8).Draw(t, "states") {
			free := cpus("2-15").List()
			node := contract.NodeState{Pods: map[string]contract.PodState{}, PartitionCPUs: map[string]contract.CPUSet{}}
			pool := cpus("0-15")
			for _, c := range all {
				n := rapid.IntRange(0, 3).Draw(t, "cpus")
				n = min(n, len(free))
				c.cpus, free, c.partition = contract.CPUs(free[:n]...), free[n:], ""
				if n > 0 && rapid.Bool().Draw(t, "partition") {
					c.partition = contract.PartitionRoot
				}
				if c.partition == "" {
					pool = pool.Difference(c.cpus)
					continue
				}
				node.Pods[c.dir] = contract.PodState{PartitionCPUs: c.cpus}
				for _, level := range slices.Compact([]string{"", c.level}) {
					node.PartitionCPUs[level] = node.PartitionCPUs[level].Union(c.cpus)
				}
			}
			node.Shared = contract.Shared{CPUs: pool, Mems: contracttest.NUMANodes("0")}
			plan := func() []tree.Step {
				var holdings []tree.Holding
				for _, c := range all {
					d := contract.Decision{V: contract.Version, CPUs: c.cpus, Partition: c.partition}.WithShared(node.Shared)
					d.Mems = contract.NUMANodeSet{}
					h := tree.Holding{Dir: c.dir, PodDir: path.Dir(c.dir), PodUID: c.dir, Decision: d, Claimed: !c.cpus.IsEmpty()}
					if k[c.dir].Files[contract.FilePartition] != tree.Member {
						h.PartitionCPUs = k.exclusive(c.dir)
					}
					holdings = append(holdings, h)
				}
				observed := maps.Clone(map[string]tree.State(k))
				return tree.Steps(tree.Desired(node, levels, holdings), observed)
			}
			steps := plan()
			if rapid.Bool().Draw(t, "the process ends") {
				steps = steps[:rapid.IntRange(0, len(steps)).Draw(t, "after")]
			}
			run := func(steps []tree.Step) {
				for _, s := range steps {
					if s.Kind == tree.Claimed && s.File == tree.FileCPUs && s.Act != tree.MarkWritten {
						for _, other := range all {
							if other.cpus.IsEmpty() {
								require.False(t, cpus(k[other.dir].Files[tree.FileCPUs]).Overlaps(cpus(s.Content)), "I1: %v", s)
							}
						}
					}
					k.take(t, s)
					k.partitions(t)
				}
			}
			run(steps)
			// Package enforce plans again when a partition has ended, and checks
			// partitions itself.
			for round := 0; ; round++ {
				steps := plan()
				if len(steps) == 0 {
					break
				}
				require.Less(t, round, 3, "%s", strings.Join(text(steps), "\n"))
				run(steps)
			}
			for _, c := range all {
				if c.partition == "" {
					require.True(t, k.exclusive(c.dir).IsEmpty(), "%s is no partition and names %s", c.dir, k.exclusive(c.dir))
					continue
				}
				above := make(map[string]contract.CPUSet)
				for dir := path.Dir(c.dir); dir != "."; dir = path.Dir(dir) {
					above[dir] = k.exclusive(dir)
				}
				d := contract.Decision{V: contract.Version, CPUs: c.cpus, Partition: c.partition}
				require.NoError(t, tree.NamedAbove(d.CPUs, above))
				run(tree.MakePartition(c.dir, d, k[c.dir].Files))
				require.Equal(t, c.partition, k[c.dir].Files[contract.FilePartition])
			}
			k.partitions(t)
			for _, level := range []string{"", "burstable", "besteffort"} {
				require.Equal(t, node.PartitionCPUs[level], k.exclusive(levels[level]), "I3: level %q", level)
			}
		}
	})
}

func TestPartitionSteps(t *testing.T) {
	const dir = "kubepods/burstable/a/one"
	d := contract.Decision{V: contract.Version, CPUs: cpus("4-7"), Partition: contract.PartitionRoot}
	above := func(pod string) map[string]contract.CPUSet {
		return map[string]contract.CPUSet{
			"kubepods": cpus("4-9"), "kubepods/burstable": cpus("4-9"), "kubepods/burstable/a": cpus(pod),
		}
	}
	for name, c := range map[string]struct {
		has  contract.Files
		want []string
	}{
		"a member": {
			has:  contract.Files{contract.FilePartition: "member", contract.FileExclusive: ""},
			want: []string{dir + `/cpuset.cpus.exclusive = "4-7"`, dir + `/cpuset.cpus.partition = "root"`},
		},
		"an invalid partition becomes a member first": {
			has:  contract.Files{contract.FilePartition: "root invalid (x)", contract.FileExclusive: "4-7"},
			want: []string{dir + `/cpuset.cpus.partition = "member"`, dir + `/cpuset.cpus.partition = "root"`},
		},
		"files that could not be read": {
			want: []string{
				dir + `/cpuset.cpus.partition = "member"`, dir + `/cpuset.cpus.exclusive = "4-7"`, dir + `/cpuset.cpus.partition = "root"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, text(tree.MakePartition(dir, d, c.has)))
		})
	}
	require.NoError(t, tree.NamedAbove(d.CPUs, above("4-7")))
	require.EqualError(t, tree.NamedAbove(d.CPUs, above("4-5,9")),
		`cgroup kubepods/burstable/a has "4-5,9" in cpuset.cpus.exclusive, the container's partition needs 4-7`)

	root := contract.Files{contract.FilePartition: "root", contract.FileExclusive: "4-7"}
	require.Equal(t, []string{dir + `/cpuset.cpus.partition = "member"`}, text(tree.MakeMember(dir, root)))
	require.Equal(t, []string{dir + `/cpuset.cpus.partition = "member"`, dir + `/cpuset.cpus.exclusive = ""`},
		text(tree.EndPartition(dir, root)))
	require.Empty(t, tree.Refused(d, "root"))
	require.Equal(t, "(cpu list)", tree.Refused(d, "root invalid (cpu list)"))
	require.Equal(t, "member", tree.Refused(d, "member"))
	require.Equal(t, "the kernel gives no reason", tree.Refused(d, "root invalid"))
}

// partitioned returns pods that each have a container with a partition, as they shall be and as they are.
func partitioned(partitions int) (desired map[string]tree.Cgroup, observed map[string]tree.State) {
	desired, observed = make(map[string]tree.Cgroup), make(map[string]tree.State)
	add := func(dir string, kind tree.Kind, files contract.Files) {
		desired[dir] = tree.Cgroup{Kind: kind, Files: files}
		observed[dir] = tree.State{Files: files, Former: contract.Files{contract.FileExclusive: ""}, Written: files}
	}
	add("kubepods", tree.Level, contract.Files{contract.FileExclusive: fmt.Sprintf("0-%d", partitions-1)})
	for i := range partitions {
		cpus, pod := strconv.Itoa(i), fmt.Sprintf("kubepods/pod%d", i)
		add(pod, tree.Pod, contract.Files{contract.FileExclusive: cpus})
		add(pod+"/c", tree.Partitioned, contract.Files{
			tree.FileCPUs: cpus, contract.FileExclusive: cpus, contract.FilePartition: contract.PartitionRoot,
		})
	}
	return desired, observed
}

// A plan with nothing to write does work for each partition, and not for each pair of them: each
// creation of a partition plans for all pods.
func TestStepsOfManyPartitions(t *testing.T) {
	work := func(partitions int) float64 {
		desired, observed := partitioned(partitions)
		return testing.AllocsPerRun(3, func() { require.Empty(t, tree.Steps(desired, observed)) })
	}
	require.Less(t, work(400), 5*work(100))
}
