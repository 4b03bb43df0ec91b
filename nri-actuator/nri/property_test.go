// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// claimed is a pod with a claim in the model.
type claimed struct {
	pod, claim string
	decisions  map[contract.Key]contract.Decision
	env        []string
}

// TestNoOverlap covers I1, I5, I7, I9 for any order of actions of the frontend,
// the runtime and other programs, over restarts of the actuator. No container
// runs on claimed CPUs of another container, a container with a claim has the
// contract's merge, and a container without a claim is never refused.
func TestNoOverlap(t *testing.T) {
	base := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		release := rapid.SampledFrom([]kerneltest.Release{kerneltest.Linux612, kerneltest.Linux7}).Draw(t, "kernel")
		m := &model{t: t, r: newRuntimeOn(t, filepath.Join(base, fmt.Sprint(runs)), release), claims: map[string]*claimed{}}
		t.Repeat(map[string]func(*rapid.T){
			"prepare":     m.prepare,
			"unprepare":   m.unprepare,
			"create":      m.create,
			"start":       m.start,
			"update":      m.update,
			"remove":      m.remove,
			"event":       func(*rapid.T) { _ = m.r.plugin.Apply(t.Context()) },
			"restart":     m.restart,
			"tamper":      m.tamper,
			"break node":  m.breakNode,
			"mend node":   m.mendNode,
			"no actuator": m.createAlone,
			"":            m.check,
		})
	})
}

type model struct {
	t      *rapid.T
	r      *runtime
	claims map[string]*claimed // by pod UID
	next   int
	broken bool
	// blind: an actuator that starts without a node state knows no pool. Until
	// the frontend writes a state, I7 goes before I1.
	blind bool
}

func (m *model) prepare(t *rapid.T) {
	if m.broken {
		t.Skip("this action: the node state is broken, nothing is prepared")
	}
	m.next++
	c := &claimed{pod: testnode.UID(100 + m.next), claim: testnode.UID(500 + m.next), decisions: map[contract.Key]contract.Decision{}}
	var list []contract.Decision
	free := contracttest.CPUs(m.r.node.Free()).List()
	for i := range rapid.IntRange(1, 2).Draw(t, "results") {
		d := contract.Decision{V: contract.Version, Mems: contracttest.NUMANodes(rapid.SampledFrom([]string{"", "0", "1"}).Draw(t, "mems"))}
		if n := rapid.IntRange(0, 3).Draw(t, "cpus"); n > 0 && len(free) > n {
			d.CPUs, free = contract.CPUs(free[:n]...), free[n:]
			kinds := append([]string{""}, contract.PartitionKinds()...)
			if m.r.kernel == "6.12.0" { // which has no isolated partitions
				kinds = []string{"", contract.PartitionRoot}
			}
			if d.Partition = rapid.SampledFrom(kinds).Draw(t, "partition"); d.Partition != "" {
				d.Requires = []string{contract.FeaturePartition}
			}
		}
		if rapid.Bool().Draw(t, "memory") {
			d.Memory = &contract.Memory{
				Min: 4096, Low: 8192, High: contract.Max, Max: contract.Limit(4096 * rapid.IntRange(1, 9).Draw(t, "max")),
			}
		}
		list = append(list, d)
		c.decisions[contract.Key{ClaimUID: c.claim, Index: i}] = d
	}
	c.env = m.r.node.Prepare(c.pod, c.claim, list...)
	m.claims[c.pod] = c
}

func (m *model) unprepare(t *rapid.T) {
	var idle []string
	for pod := range m.claims {
		if !slices.ContainsFunc(m.all(), func(c *container) bool { return c.pod.Uid == pod }) {
			idle = append(idle, pod)
		}
	}
	if m.broken || len(idle) == 0 {
		t.Skip("this action: the node state is broken, or no claim is unused")
	}
	slices.Sort(idle)
	c := m.claims[rapid.SampledFrom(idle).Draw(t, "pod")]
	m.r.node.Unprepare(c.pod, c.claim, contract.Merge(c.decisions).CPUs.String())
	delete(m.claims, c.pod)
}

// draw picks a pod with a claim or another pod.
func (m *model) draw(t *rapid.T) (id, pod string, env []string) {
	m.next++
	id = fmt.Sprintf("c%03d", m.next)
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(m.claims)), m.partitionUsed)
	pods = append(pods, podA, podB)
	pod = rapid.SampledFrom(pods).Draw(t, "pod")
	if c := m.claims[pod]; c != nil {
		env = c.env
	}
	return id, pod, env
}

// partitionUsed reports whether the pod's claim is a partition and has its container: one
// container alone has such a claim.
func (m *model) partitionUsed(pod string) bool {
	return contract.Merge(m.claims[pod].decisions).Partition != "" &&
		slices.ContainsFunc(m.all(), func(c *container) bool { return c.pod.Uid == pod })
}

func (m *model) create(t *rapid.T) {
	id, pod, env := m.draw(t)
	_, err := m.r.create(id, pod, env...)
	switch {
	case env == nil:
		require.NoError(t, err, "I7")
	case m.broken:
		require.Error(t, err, "I5")
	default:
		require.NoError(t, err)
	}
}

// createAlone creates a container that no actuator sees, as a runtime does
// after its plugin has died.
func (m *model) createAlone(t *rapid.T) {
	id, pod, env := m.draw(t)
	s := sandbox(pod)
	m.r.addPod(pod)
	c, err := m.r.create(id, podB)
	require.NoError(t, err)
	c.pod, c.dir, c.spec = s, m.r.podDir(pod)+"/"+id, map[string]string{"cpuset.cpus": "0-15"}
	c.api.PodSandboxId, c.api.Env, c.api.Linux.CgroupsPath = s.Id, env, s.Linux.CgroupParent+"/"+id
	m.restart(t)
}

func (m *model) start(t *rapid.T) {
	c := m.pick(t, func(c *container) bool { return !c.running })
	err := m.r.start(c)
	if m.claims[c.pod.Uid] == nil {
		require.NoError(t, err, "I7")
	}
}

func (m *model) update(t *rapid.T) {
	_ = m.r.update(m.pick(t, func(c *container) bool { return c.running }))
}

func (m *model) remove(t *rapid.T) {
	require.NoError(t, m.r.remove(m.pick(t, func(*container) bool { return true })))
}

func (m *model) restart(*rapid.T) {
	m.r.connect()
	m.blind = m.broken
}

func (m *model) tamper(t *rapid.T) {
	c := m.pick(t, func(c *container) bool { return c.running })
	m.r.later(time.Hour)
	if file := rapid.SampledFrom([]string{
		"cpuset.cpus", "cpuset.mems", contract.FilePartition,
	}).Draw(t, "file"); file != contract.FilePartition {
		m.r.node.SetFile(c.dir, file, "0")
	} else if c.spec[file] != "" {
		m.r.node.SetFile(c.dir, file, "member")
	}
	if m.broken {
		m.mendNode(t)
	}
	require.NoError(t, m.r.plugin.Apply(t.Context()))
}

func (m *model) breakNode(t *rapid.T) {
	if rapid.Bool().Draw(t, "removed") {
		_ = os.Remove(filepath.Join(m.r.node.CDI, contract.NodeFile))
	} else {
		m.r.node.WriteFile(contract.NodeFile, []byte("{"))
	}
	m.broken = true
}

func (m *model) mendNode(t *rapid.T) {
	m.r.node.Change(func(*contract.NodeState) {})
	m.broken, m.blind = false, false
	require.NoError(t, m.r.plugin.Apply(t.Context()))
}

func (m *model) all() []*container {
	var all []*container
	for _, id := range slices.Sorted(maps.Keys(m.r.containers)) {
		all = append(all, m.r.containers[id])
	}
	return all
}

func (m *model) pick(t *rapid.T, ok func(*container) bool) *container {
	var some []*container
	for _, c := range m.all() {
		if ok(c) {
			some = append(some, c)
		}
	}
	if len(some) == 0 {
		t.Skip("this action: no such container")
	}
	return rapid.SampledFrom(some).Draw(t, "container")
}

func (m *model) check(t *rapid.T) {
	if m.blind {
		return
	}
	m.checkAbove(t)
	for _, c := range m.all() {
		claim := m.claims[c.pod.Uid]
		if claim == nil || !c.running {
			continue
		}
		want := contract.Merge(claim.decisions)
		if !want.CPUs.IsEmpty() {
			require.Equal(t, want.CPUs.String(), m.r.cpus(c), "I5, I9: %s", c.api.Id)
			if want.Partition != "" {
				require.Equal(t, want.Partition, m.r.node.File(c.dir, contract.FilePartition), "I5: %s", c.api.Id)
			}
			for _, other := range m.all() {
				if other.running && other.pod.Uid != c.pod.Uid && m.claims[other.pod.Uid] != nil &&
					!contract.Merge(m.claims[other.pod.Uid].decisions).CPUs.IsEmpty() {
					require.False(t, want.CPUs.Overlaps(contracttest.CPUs(m.r.cpus(other))),
						"I1: %s on the CPUs of %s", other.api.Id, c.api.Id)
				}
				// The kernel takes partition CPUs from all other cgroups.
				if other.running && other.pod.Uid != c.pod.Uid {
					has := m.r.node.File(other.dir, "cpuset.cpus.effective")
					require.False(t, want.CPUs.Overlaps(contracttest.CPUs(has)), "I1: %s on the CPUs of %s", other.api.Id, c.api.Id)
				}
			}
		}
		if !want.Mems.IsEmpty() {
			require.Equal(t, want.Mems.String(), m.r.node.File(c.dir, "cpuset.mems"), "I5: %s", c.api.Id)
		}
		if want.Memory != nil {
			for file, value := range want.Memory.Files() {
				require.Equal(t, value, m.r.node.File(c.dir, file), "I5: %s", c.api.Id)
			}
		}
	}
}

// checkAbove checks that all cgroups above a partition have its CPUs: the
// kernel loses CPUs of a partition that ends without them.
func (m *model) checkAbove(t *rapid.T) {
	for _, dir := range m.r.node.Dirs() {
		if !slices.Contains(contract.PartitionKinds(), m.r.node.File(dir, contract.FilePartition)) {
			continue
		}
		cpus := contracttest.CPUs(m.r.node.File(dir, contract.FileExclusive))
		for up := filepath.Dir(dir); up != "."; up = filepath.Dir(up) {
			has := contracttest.CPUs(m.r.node.File(up, contract.FileExclusive))
			require.True(t, cpus.IsSubsetOf(has), "%s is a partition of %s, and %s lacks some", dir, cpus, up)
		}
	}
}
