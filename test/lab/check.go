// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// publication returns the devices of the slices as text.
func (n *Node) publication() string { return asText(n.API.Devices()) }

func asText(devices map[string]resourceapi.Device) string {
	data, err := json.MarshalIndent(devices, "", " ")
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Check checks the invariants that hold at every moment. It reads only files and
// container specs.
func (n *Node) Check() {
	n.t.Helper()
	n.checkFiles()
	records := n.Records()
	n.checkDirectory(records)
	n.settle()
	n.checkKernel()
	n.checkContainers(records)
	n.seenContainers()
	n.checkCgroups()
	if len(records) == 0 {
		n.checkEmpty()
	}
}

// checkFiles checks that the contract's schemas and the CDI library accept all
// files.
func (n *Node) checkFiles() {
	n.t.Helper()
	files, same := n.Files(), true
	for name, data := range files {
		if n.seen[name] == string(data) {
			continue
		}
		same = false
		require.NoError(n.t, n.records.File(data), name)
		_, err := cdi.ParseSpec(data)
		require.NoError(n.t, err, name)
	}
	if same && len(files) == len(n.seen) {
		return
	}
	n.seen = make(map[string]string, len(files))
	for name, data := range files {
		n.seen[name] = string(data)
	}
	require.Empty(n.t, n.cdiCache().GetErrors())
}

// checkDirectory checks I1 and I7 in the files, and I4: the node file follows from
// the claim files.
func (n *Node) checkDirectory(records map[string]contract.ClaimRecord) {
	n.t.Helper()
	var held, pooled contract.CPUSet
	below := make(map[string]contract.CPUSet)
	pods := make(map[string][]string)
	type protection struct{ min, low int64 }
	levels := map[string]*protection{"": {}, "burstable": {}, "besteffort": {}}
	for _, uid := range sorted(records) {
		r := records[uid]
		for i, result := range r.Results {
			own := result.Decision.CPUs
			require.False(n.t, own.Overlaps(held), "I1: claim %s result %d has %s, other results have %s", uid, i, own, held)
			held = held.Union(own)
			if result.Decision.Partition == "" {
				pooled = pooled.Union(own)
			}
			for _, p := range r.Pods {
				if result.Decision.Partition != "" {
					for _, at := range append(levelsOf(p.QOS), p.UID) {
						below[at] = below[at].Union(own)
					}
				}
				if m := result.Decision.Memory; m != nil {
					for _, level := range levelsOf(p.QOS) {
						levels[level].min += int64(m.Min)
						levels[level].low += int64(m.Low)
					}
				}
			}
		}
		for _, p := range r.Pods {
			pods[p.UID] = append(pods[p.UID], uid)
		}
	}
	state := n.State()
	require.NotEmpty(n.t, n.pool().Difference(held).String(), "I7")
	require.Equal(n.t, n.pool().Difference(pooled), state.Shared.CPUs,
		"I4: shared pool; claims hold %s, without partitions %s", held, pooled)
	n.checkPartitionCPUs(state, below)
	require.Len(n.t, state.Pods, len(pods), "I4")
	for uid, claims := range pods {
		require.Equal(n.t, claims, state.Pods[uid].Claims, "I4: pod %s", uid)
	}
	for level, p := range levels {
		for file, sum := range map[string]int64{"memory.min": p.min, "memory.low": p.low} {
			want := ""
			if sum > 0 && n.config.MemoryQoS.Owner == config.OwnerDriver {
				want = strconv.FormatInt(sum, 10)
			}
			require.Equal(n.t, want, state.Ancestors[level][file], "I4: ancestor %q, %s", level, file)
		}
	}
}

func levelsOf(qos string) []string {
	if qos == "" {
		return []string{""}
	}
	return []string{"", qos}
}

// settle waits until the actuator has applied the node state to the running
// containers.
func (n *Node) settle() {
	n.t.Helper()
	if !n.acting() {
		return
	}
	n.eventually("the node state to be applied", func() error {
		state, err := n.state()
		if err != nil {
			return err
		}
		a, err := n.Announcement()
		if err == nil && a.Generation != state.Generation {
			err = fmt.Errorf("applied %d, written %d", a.Generation, state.Generation)
		}
		return err
	})
}

// acting reports whether a connected actuator runs.
func (n *Node) acting() bool { return n.actuator != nil && n.runtime.running() }

// checkContainers checks that each container has the values of its claim files and
// of the node file, and no other values (I1, I5, I6, I9).
func (n *Node) checkContainers(records map[string]contract.ClaimRecord) {
	n.t.Helper()
	state := n.State()
	claimed := make(map[string]contract.CPUSet)
	containers := n.runtime.list()
	for _, c := range containers {
		decision, err := c.decision(records)
		if err != nil {
			// The claim is gone. The check below keeps the container off the CPUs of
			// other containers.
			continue
		}
		if !decision.CPUs.IsEmpty() && (decision.Partition == "" || c.started) {
			claimed[c.ID] = decision.CPUs
		}
		want := decision.WithShared(state.SharedOf(c.Pod.UID))
		pooled := decision.CPUs.IsEmpty()
		if !c.started {
			if c.unadjusted {
				continue
			}
			if !pooled {
				require.Equal(n.t, want.CPUs.String(), c.CPUs(), "I5: container %s", c.ID)
			}
			n.has(c.Spec.Linux.Resources.Unified, want.Files(), "I5: spec of "+c.ID)
			continue
		}
		if len(c.devices) == 0 && (c.unadjusted && !n.acting()) {
			continue
		}
		if pooled && !n.acting() {
			continue // an actuator moves the container later
		}
		cpus, mems := "cpuset.cpus", "cpuset.mems"
		if c.cgroup() == n.cgroups.namespace {
			// The actuator can write to the pod's cgroup only.
			cpus, mems = "cpuset.cpus.effective", "cpuset.mems.effective"
		}
		require.Equal(n.t, want.CPUs.String(), c.ReadCgroup(cpus), "I9: %s of %s, pool %s", cpus, c.ID, state.Shared.CPUs)
		require.Equal(n.t, want.Mems.String(), c.ReadCgroup(mems), "I9: %s of %s", mems, c.ID)
		if c.overwritten && !n.acting() {
			continue
		}
		for file, value := range want.Files() {
			require.Equal(n.t, value, c.ReadCgroup(file), "I9: %s of %s", file, c.ID)
		}
	}
	effective := n.effective(containers)
	for _, c := range containers {
		if !c.started || c.unadjusted && !n.acting() {
			continue
		}
		mine := effective[c.ID]
		require.False(n.t, mine.IsEmpty(), "I7: %s has %s", c.ID, c.CPUs())
		for id, theirs := range claimed {
			if id == c.ID || !claimed[c.ID].IsEmpty() && sharesClaim(c, id, containers) {
				continue
			}
			require.False(n.t, mine.Overlaps(theirs), "I1: %s is on %s, %s has %s", c.ID, mine, id, theirs)
		}
	}
}

func sharesClaim(c *Container, other string, all []*Container) bool {
	for _, o := range all {
		if o.ID != other {
			continue
		}
		for _, d := range o.devices {
			for _, mine := range c.devices {
				if mine == d {
					return true
				}
			}
		}
	}
	return false
}

func (n *Node) has(got, want map[string]string, what string) {
	for file, value := range want {
		require.Equal(n.t, value, got[file], "%s: %s", what, file)
	}
}

// decision returns the merged decisions of the container's claim files. It fails
// if a claim file is gone.
func (c *Container) decision(records map[string]contract.ClaimRecord) (contract.Decision, error) {
	decisions := make(map[contract.Key]contract.Decision)
	for _, d := range c.devices {
		name := strings.TrimPrefix(d, contract.ClaimKind+"=")
		cut := strings.LastIndexByte(name, '-')
		index, err := strconv.Atoi(name[cut+1:])
		if err != nil {
			return contract.Decision{}, err
		}
		record, known := records[name[:cut]]
		if !known || index >= len(record.Results) {
			return contract.Decision{}, fmt.Errorf("no file of claim %s", name[:cut])
		}
		decisions[contract.Key{ClaimUID: name[:cut], Index: index}] = record.Results[index].Decision
	}
	return contract.Merge(decisions), nil
}

// checkCgroups checks that levels, and pods with a started container with claims,
// have the values of the node file.
func (n *Node) checkCgroups() {
	n.t.Helper()
	if !n.acting() {
		return
	}
	state := n.State()
	n.checkAncestors(state)
	for _, c := range n.runtime.list() {
		if c.started && len(c.devices) > 0 {
			for file, value := range state.Pods[c.Pod.UID].Cgroup {
				require.Equal(n.t, value, n.ReadCgroup(c.Pod.cgroup(), file), "pod %s: %s", c.Pod.Name, file)
			}
		}
	}
	for level, files := range state.Ancestors {
		for file, value := range files {
			require.Equal(n.t, value, n.ReadCgroup(filepath.Join("kubepods", level), file), "level %q: %s", level, file)
		}
	}
}

// checkEmpty checks I3: without claims, all is as at the start.
func (n *Node) checkEmpty() {
	n.t.Helper()
	state := n.State()
	require.Equal(n.t, n.pool(), state.Shared.CPUs, "I3")
	require.Empty(n.t, state.Pods, "I3")
	for name := range n.Files() {
		_, claim := contract.ClaimUIDOfFile(name)
		require.False(n.t, claim, "I3: %s", name)
	}
	if n.published == "" || !n.acting() {
		return
	}
	n.eventually("the publication of the start (I3, I8)", func() error {
		if now := n.publication(); now != n.published {
			return fmt.Errorf("published at the start: %s\nnow: %s", n.published, now)
		}
		return nil
	})
}

// Temporaries returns the unfinished files in the CDI directory.
func (n *Node) Temporaries() []string {
	entries, err := os.ReadDir(n.CDI)
	require.NoError(n.t, err)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}
