// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// The records of the golden files. All golden claims have the same UID, because
// each test has its own directory.
const (
	claimUID  = "4f1c2a7e-0b3d-4c5e-8f60-718293a4b5c6"
	otherUID  = "a0b1c2d3-e4f5-4061-8273-8495a6b7c8d9"
	podUID    = "0d9e8f7a-6b5c-4d3e-9f20-112233445566"
	bootID    = "c9c7a3d0-51c1-4a52-9d0c-6a1e5f0b7d42"
	gib       = 1 << 30
	guardPath = "/opt/dra.cpumem/bin/nri-actuator"
)

func claim(results ...contract.ResultRecord) contract.ClaimRecord {
	return contract.ClaimRecord{
		V: contract.Version, Namespace: "team-a", Name: "pinned", UID: claimUID, BootID: bootID,
		Pods:    []contract.PodRecord{{UID: podUID, QOS: contract.LevelBurstable}},
		Results: results,
	}
}

func result(device string, d contract.Decision) contract.ResultRecord {
	return contract.ResultRecord{Request: "main", Pool: "node-1", Device: device, Decision: d}
}

func decision(edit func(*contract.Decision)) contract.Decision {
	d := contract.Decision{V: contract.Version, Requires: []string{}}
	if edit != nil {
		edit(&d)
	}
	return d
}

func cpuDecision(cpus string) contract.Decision {
	return decision(func(d *contract.Decision) { d.CPUs = contracttest.CPUs(cpus) })
}

func memoryDecision() contract.Decision {
	return decision(func(d *contract.Decision) {
		d.Mems = contracttest.NUMANodes("0")
		d.Memory = &contract.Memory{Min: 4 * gib, High: contract.Max, Max: 4 * gib}
		d.Hugepages = map[string]contract.Limit{"2Mi": 256 << 20, "1Gi": contract.Max}
	})
}

func policyDecision(mems, mode, nodes string) contract.Decision {
	return decision(func(d *contract.Decision) {
		d.Mems = contracttest.NUMANodes(mems)
		d.MemoryPolicy = &contract.MemoryPolicy{Mode: mode, Nodes: contracttest.NUMANodes(nodes)}
		d.Requires = sorted(append(d.Requires, d.MemoryPolicy.Features()...))
	})
}

func partitionDecision(cpus, kind string) contract.Decision {
	return decision(func(d *contract.Decision) {
		d.CPUs, d.Partition, d.Requires = contracttest.CPUs(cpus), kind, []string{contract.FeaturePartition}
	})
}

func oomDecision(score int) contract.Decision {
	return decision(func(d *contract.Decision) { d.OOMScoreAdj, d.Requires = &score, []string{contract.FeatureOOMScore} })
}

func quotaDecision() contract.Decision {
	return decision(func(d *contract.Decision) {
		d.CPUs, d.Quota, d.Requires = contracttest.CPUs("4-5"), contract.QuotaNone, []string{contract.FeatureQuota}
	})
}

// quiet is what a result asks of the machine, with all members.
func quiet() contract.Quiet {
	return contract.Quiet{
		NoInterrupts: true, Device: "eth0-rx-*", NoWorkQueues: true,
		Files: map[string]string{
			contract.FileWakeupLatency: contract.NoWakeupLatency, contract.FileGovernor: "performance",
			contract.FileMinFrequency: "2000000", contract.FileMaxFrequency: "3500000",
		},
	}
}

func goldenClaims() map[string]contract.ClaimRecord {
	cpu := result("cpus-numa0", cpuDecision("4-7"))
	cpu.Consumed = map[string]string{"cpus": "4"}
	cpu.Parameters = map[string]string{"align": "core", "smt": "whole"}

	memory := result("memory-numa0", memoryDecision())
	memory.ShareID = "5e6f7081-92a3-44b5-86c7-d8e9fa0b1c2d"
	memory.Consumed = map[string]string{"memory": "4Gi"}

	inMemory := claim(memory)
	inMemory.Pods[0].QOS = contract.LevelKubepods
	inMemory.Pods[0].Hugepages = map[string]contract.Limit{"2Mi": 128 << 20}

	second := result("cpus-numa1", cpuDecision("12-13,15"))
	second.Request = "helper"

	guarded := claim(cpu)
	guarded.Guard = guardPath
	weighted := result("numa-0-1", policyDecision("0-1", contract.ModeWeightedInterleave, "0-1"))
	weighted.Parameters = map[string]string{"memory.policy": contract.ModeWeightedInterleave}
	partition := result("numa-0", partitionDecision("4-7", contract.PartitionIsolated))
	partition.Parameters = map[string]string{"cpu.isolation": "isolated"}
	calm := result("numa-0", quotaDecision())
	calm.Quiet = quiet()
	calm.Decision.Requires = sorted(append(calm.Decision.Requires, contract.MachineFeatures()...))
	quieted := claim(calm)
	quieted.Pods[0].CPULimit = &contract.CPULimit{Milli: 2500, Open: true}
	scored := result("numa-0", oomDecision(-997))
	mounted := memory
	mounted.Hugetlbfs = []string{"1Gi", "2Mi"}
	return map[string]contract.ClaimRecord{
		"claim-hugetlbfs":        claim(mounted),
		"claim-quiet":            quieted,
		"claim-oom-score":        claim(scored),
		"claim-memory-policy":    claim(weighted),
		"claim-partition":        claim(partition),
		"claim-cpu":              claim(cpu),
		"claim-memory-hugepages": inMemory,
		"claim-several":          claim(cpu, memory, second),
		"claim-guard":            guarded,
	}
}

func goldenNodes() map[string]contract.NodeState {
	return map[string]contract.NodeState{
		"node": {
			V: contract.Version, Generation: 42, BootID: bootID,
			Shared: contract.Shared{CPUs: contracttest.CPUs("0,8-15"), Mems: contracttest.NUMANodes("0-1")},
			Pods: map[string]contract.PodState{podUID: {
				Claims: []string{claimUID, otherUID},
				Cgroup: contract.Files{
					"memory.min": "4294967296", "memory.low": "0",
					"hugetlb.2MB.max": "268435456", "hugetlb.2MB.rsvd.max": "268435456", "hugetlb.1GB.max": "max",
				},
			}},
			Ancestors: map[string]contract.Files{
				contract.LevelKubepods:   {"memory.min": "4294967296"},
				contract.LevelBurstable:  {"memory.min": "4294967296", "memory.low": "0"},
				contract.LevelBestEffort: {},
			},
		},
		"node-partitions": {
			V: contract.Version, Generation: 9, BootID: bootID,
			Shared: contract.Shared{CPUs: contracttest.CPUs("0-15"), Mems: contracttest.NUMANodes("0")},
			Pods: map[string]contract.PodState{podUID: {
				Claims: []string{claimUID}, PartitionCPUs: contract.CPUs(4, 5, 6, 7), Requires: []string{contract.FeaturePartition},
			}},
			Ancestors: map[string]contract.Files{},
			PartitionCPUs: map[string]contract.CPUSet{
				contract.LevelKubepods:   contracttest.CPUs("4-7,12"),
				contract.LevelBurstable:  contracttest.CPUs("4-7"),
				contract.LevelBestEffort: contracttest.CPUs("12"),
			},
		},
		"node-machine": {
			V: contract.Version, Generation: 3, BootID: bootID,
			Shared: contract.Shared{CPUs: contracttest.CPUs("0-3,6-15"), Mems: contracttest.NUMANodes("0")},
			Pods: map[string]contract.PodState{podUID: {
				Claims: []string{claimUID}, Quota: "450000 100000",
				Requires: append([]string{contract.FeatureQuota}, contract.MachineFeatures()...),
			}},
			Ancestors: map[string]contract.Files{},
			Machine: contract.Machine{
				InterruptCPUs:    contracttest.CPUs("0-3,6-15"),
				DeviceInterrupts: []contract.DeviceInterrupts{{Pattern: "eth0-rx-*", CPUs: contracttest.CPUs("4-5")}},
				CPUs:             []contract.CPUFiles{{CPUs: contracttest.CPUs("4-5"), Files: quiet().Files}},
				WorkQueueCPUs:    contracttest.CPUs("0-3,6-15"),
			},
		},
		"node-idle": {
			V: contract.Version, Generation: 1, BootID: bootID,
			Shared: contract.Shared{CPUs: contracttest.CPUs("0-15"), Mems: contracttest.NUMANodes("0")},
			Pods:   map[string]contract.PodState{}, Ancestors: map[string]contract.Files{},
		},
	}
}

func goldenAnnouncements() map[string]contract.Announcement {
	return map[string]contract.Announcement{
		"announcement": {
			V: contract.Version, Versions: []string{contract.Version}, Features: []string{},
			Runtime: "containerd", RuntimeVersion: "2.3.0", NRIVersion: "0.12.5",
			Connected: true, Guard: guardPath, Generation: 42, PID: 4711,
			Started: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		},
		"announcement-features": {
			V: contract.Version, Versions: []string{contract.Version}, Features: policies(),
			Runtime: "containerd", RuntimeVersion: "2.3.7", NRIVersion: "v0.12.0",
			Connected: true, Generation: 7, PID: 4711,
			Started: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		},
		"announcement-platform": {
			V: contract.Version, Versions: []string{contract.Version},
			Features: append(policies(), contract.FeaturePartition, contract.FeatureOOMScore),
			Runtime:  "cri-o", RuntimeVersion: "1.37.0", NRIVersion: "unknown", Kernel: "6.12.43+deb13-amd64",
			Connected: true, Generation: 7, PID: 4711,
			Started: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		},
		"announcement-partitions": {
			V: contract.Version, Versions: []string{contract.Version}, Features: []string{contract.FeaturePartition},
			Runtime: "containerd", RuntimeVersion: "2.3.7", NRIVersion: "v0.12.0",
			Connected: true, Generation: 9, InvalidPartitions: map[string]string{claimUID: "Invalid cpu list in cpuset.cpus.exclusive"},
			PID: 4711, Started: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		},
		"announcement-machine": {
			V: contract.Version, Versions: []string{contract.Version}, Features: contract.MachineFeatures(),
			Runtime: "containerd", RuntimeVersion: "2.3.7", NRIVersion: "v0.12.0",
			Connected: true, Generation: 3, FixedInterrupts: map[string]string{"25 virtio1-req.0": "4"},
			MachineFaults: map[string]string{contract.FeatureFrequency: "cpu4/cpufreq/scaling_max_freq: invalid argument"},
			PID:           4711, Started: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		},
		"announcement-kubepods": {
			V: contract.Version, Versions: []string{contract.Version}, Features: []string{},
			Runtime: "containerd", RuntimeVersion: "2.3.7", NRIVersion: "v0.12.0",
			Connected: true, Generation: 7, Kubepods: "kubepods.slice",
			Overwritten: map[string]contract.Files{
				contract.LevelKubepods:  {"memory.min": "0"},
				contract.LevelBurstable: {"memory.low": "0"},
			},
			PID: 4711, Started: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		},
		"announcement-unconnected": {
			V: contract.Version, Versions: []string{contract.Version}, Features: []string{},
			PID: 1, Started: time.Date(2026, 2, 3, 4, 5, 6, 700, time.UTC),
		},
	}
}

// features returns the features that this version knows.
func features() []string {
	return append(policies(), contract.FeaturePartition, contract.FeatureOOMScore, contract.FeatureQuota)
}

func policies() []string {
	return []string{contract.FeatureMemoryPolicy, contract.FeatureWeightedInterleave}
}

func goldenDecisions() map[string]contract.Decision {
	full := memoryDecision()
	full.CPUs = contracttest.CPUs("4-7")
	return map[string]contract.Decision{
		"decision-cpu":                 cpuDecision("4-7"),
		"decision-memory":              memoryDecision(),
		"decision-full":                full,
		"decision-policy":              policyDecision("0,2-3", contract.ModePreferred, "2"),
		"decision-weighted-interleave": policyDecision("0-1", contract.ModeWeightedInterleave, "0-1"),
		"decision-silent":              decision(nil),
		"decision-partition":           partitionDecision("2,6", contract.PartitionRoot),
		"decision-oom-score":           oomDecision(0),
		"decision-quota":               quotaDecision(),
	}
}

// Generators of valid records.

func genUID() *rapid.Generator[string] {
	return rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
}

func genIDs() *rapid.Generator[[]int] {
	return rapid.Custom(func(t *rapid.T) []int {
		set := rapid.SliceOfNDistinct(rapid.IntRange(0, 40), 1, 12, rapid.ID[int]).Draw(t, "ids")
		return sorted(set)
	})
}

func genCPUs() *rapid.Generator[contract.CPUSet] {
	return rapid.Map(genIDs(), func(ids []int) contract.CPUSet { return contract.CPUs(ids...) })
}

func genNodes() *rapid.Generator[contract.NUMANodeSet] {
	return rapid.Map(genIDs(), func(ids []int) contract.NUMANodeSet { return contract.NUMANodes(ids...) })
}

func genLimit(unit int64) *rapid.Generator[contract.Limit] {
	return rapid.OneOf(
		rapid.Map(rapid.Int64Range(0, 1<<20), func(n int64) contract.Limit { return contract.Limit(n * unit) }),
		rapid.SampledFrom([]contract.Limit{0, contract.Max, (contract.Max / contract.Limit(unit)) * contract.Limit(unit)}),
	)
}

func genMemory() *rapid.Generator[*contract.Memory] {
	return rapid.Custom(func(t *rapid.T) *contract.Memory {
		limit := genLimit(4096)
		return &contract.Memory{
			Min: limit.Draw(t, "min"), Low: limit.Draw(t, "low"), High: limit.Draw(t, "high"), Max: limit.Draw(t, "max"),
		}
	})
}

func genHugepages() *rapid.Generator[map[string]contract.Limit] {
	return rapid.Custom(func(t *rapid.T) map[string]contract.Limit {
		var pages map[string]contract.Limit
		for _, size := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"64Ki", "2Mi", "1Gi"}), rapid.ID[string]).Draw(t, "sizes") {
			if pages == nil {
				pages = map[string]contract.Limit{}
			}
			bytes, err := contract.ParsePageSize(size)
			if err != nil {
				t.Fatal(err)
			}
			pages[size] = genLimit(bytes).Draw(t, "pages")
		}
		return pages
	})
}

func genPolicy(mems contract.NUMANodeSet) *rapid.Generator[*contract.MemoryPolicy] {
	return rapid.Custom(func(t *rapid.T) *contract.MemoryPolicy {
		all := mems.List()
		nodes := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, len(all), rapid.ID[int]).Draw(t, "nodes")
		return &contract.MemoryPolicy{
			Mode:  rapid.SampledFrom(contract.MemoryPolicyModes()).Draw(t, "mode"),
			Nodes: contract.NUMANodes(nodes...),
		}
	})
}

// genDecision draws a decision in the form of a decoded decision. Its required
// features are sorted and distinct, as after a merge.
func genDecision() *rapid.Generator[contract.Decision] {
	return rapid.Custom(func(t *rapid.T) contract.Decision {
		d := decision(nil)
		d.CPUs = optional(t, "cpus", genCPUs())
		d.Mems = optional(t, "mems", genNodes())
		d.Memory = optional(t, "memory", genMemory())
		d.Hugepages = genHugepages().Draw(t, "hugepages")
		d.Requires = append(d.Requires, sorted(
			rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID[string]).Draw(t, "requires"))...)
		if !d.Mems.IsEmpty() && rapid.Bool().Draw(t, "with policy") {
			d.MemoryPolicy = genPolicy(d.Mems).Draw(t, "policy")
			d.Requires = sorted(append(d.Requires, d.MemoryPolicy.Features()...))
		}
		if !d.CPUs.IsEmpty() && rapid.Bool().Draw(t, "partition") {
			d.Partition = rapid.SampledFrom(contract.PartitionKinds()).Draw(t, "kind")
			d.Requires = sorted(append(d.Requires, contract.FeaturePartition))
		}
		if !d.CPUs.IsEmpty() && rapid.Bool().Draw(t, "without quota") {
			d.Quota, d.Requires = contract.QuotaNone, sorted(append(d.Requires, contract.FeatureQuota))
		}
		if rapid.Bool().Draw(t, "with OOM score") {
			score := rapid.IntRange(-1000, 1000).Draw(t, "OOM score")
			d.OOMScoreAdj, d.Requires = &score, sorted(append(d.Requires, contract.FeatureOOMScore))
		}
		return d
	})
}

func genClaim() *rapid.Generator[contract.ClaimRecord] {
	return rapid.Custom(func(t *rapid.T) contract.ClaimRecord {
		word := rapid.StringMatching(`[a-z<&"\\é-]{1,8}`)
		r := contract.ClaimRecord{
			V: contract.Version, Namespace: word.Draw(t, "namespace"), Name: word.Draw(t, "name"),
			UID: genUID().Draw(t, "uid"), BootID: genUID().Draw(t, "bootID"),
			Guard:        rapid.SampledFrom([]string{"", guardPath}).Draw(t, "guard"),
			GuardTimeout: rapid.IntRange(0, 300).Draw(t, "guard timeout"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "pods") {
			r.Pods = append(r.Pods, contract.PodRecord{
				UID: genUID().Draw(t, "pod"), QOS: genLevel().Draw(t, "qos"), Hugepages: genHugepages().Draw(t, "pod hugepages"),
				CPULimit: optional(t, "CPU limit", rapid.Just(&contract.CPULimit{Milli: 1})),
			})
		}
		for range rapid.IntRange(1, 4).Draw(t, "results") {
			d := genDecision().Draw(t, "decision")
			q := contract.Quiet{}
			if !d.CPUs.IsEmpty() {
				q = optional(t, "quiet", rapid.Just(quiet()))
			}
			d.Requires = sorted(append(d.Requires, q.Features()...))
			r.Results = append(r.Results, contract.ResultRecord{
				Request: word.Draw(t, "request"), Pool: word.Draw(t, "pool"), Device: word.Draw(t, "device"),
				ShareID:    rapid.SampledFrom([]string{"", otherUID}).Draw(t, "share"),
				Hugetlbfs:  optional(t, "hugetlbfs", rapid.SampledFrom([][]string{{"2Mi"}, {"1Gi", "2Mi"}})),
				Parameters: nonEmpty(rapid.MapOfN(word, word, 0, 3).Draw(t, "parameters")),
				Quiet:      q,
				Decision:   d,
			})
		}
		return r
	})
}

func genFiles(names ...string) *rapid.Generator[contract.Files] {
	return rapid.Custom(func(t *rapid.T) contract.Files {
		files := contract.Files{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "files") {
			files[name] = genLimit(1).Draw(t, "content").String()
		}
		return files
	})
}

func genLevel() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort})
}

func genNode() *rapid.Generator[contract.NodeState] {
	return rapid.Custom(func(t *rapid.T) contract.NodeState {
		machine := rapid.Custom(func(t *rapid.T) contract.Machine {
			m := contract.Machine{
				InterruptCPUs: genCPUs().Draw(t, "interrupt CPUs"), WorkQueueCPUs: optional(t, "work queue CPUs", genCPUs()),
			}
			for range rapid.IntRange(0, 2).Draw(t, "devices") {
				m.DeviceInterrupts = append(m.DeviceInterrupts, contract.DeviceInterrupts{
					Pattern: rapid.StringMatching(`[a-z0-9*?.-]{1,8}`).Draw(t, "pattern"), CPUs: genCPUs().Draw(t, "device CPUs"),
				})
			}
			if rapid.Bool().Draw(t, "with CPU files") {
				m.CPUs = []contract.CPUFiles{{CPUs: genCPUs().Draw(t, "CPUs of files"), Files: quiet().Files}}
			}
			return m
		})
		pod := rapid.Custom(func(t *rapid.T) contract.PodState {
			return contract.PodState{
				Claims: sorted(rapid.SliceOfNDistinct(genUID(), 1, 3, rapid.ID[string]).Draw(t, "claims")),
				Cgroup: nonEmpty(genFiles("memory.min", "memory.low", "hugetlb.2MB.max", "hugetlb.64KB.rsvd.max").Draw(t, "cgroup")),

				PartitionCPUs: optional(t, "partition CPUs", genCPUs()),
				Requires:      optional(t, "requires", rapid.SliceOfN(rapid.SampledFrom(features()), 1, 2)),
			}
		})
		return contract.NodeState{
			V: contract.Version, Generation: rapid.Uint64().Draw(t, "generation"), BootID: genUID().Draw(t, "bootID"),
			// CPU 50 is in no other list, so that each pod has a shared pool.
			Shared: contract.Shared{
				CPUs: contract.CPUs(50).Union(genCPUs().Draw(t, "cpus")),
				Mems: genNodes().Draw(t, "mems"),
			},
			Pods:          rapid.MapOfN(genUID(), pod, 0, 4).Draw(t, "pods"),
			Ancestors:     rapid.MapOf(genLevel(), genFiles("memory.min", "memory.low")).Draw(t, "ancestors"),
			PartitionCPUs: nonEmpty(rapid.MapOfN(genLevel(), genCPUs(), 0, 3).Draw(t, "partition CPUs")),
			Machine:       optional(t, "machine", machine),
		}
	})
}

func genAnnouncement() *rapid.Generator[contract.Announcement] {
	return rapid.Custom(func(t *rapid.T) contract.Announcement {
		text := rapid.StringMatching(`[a-z0-9.]{0,8}`)
		return contract.Announcement{
			V:        contract.Version,
			Versions: append([]string{}, rapid.SliceOf(text).Draw(t, "versions")...),
			Features: append([]string{}, rapid.SliceOf(text).Draw(t, "features")...),
			Runtime:  text.Draw(t, "runtime"), RuntimeVersion: text.Draw(t, "runtimeVersion"), NRIVersion: text.Draw(t, "nriVersion"),
			Kernel:    text.Draw(t, "kernel"),
			Connected: rapid.Bool().Draw(t, "connected"), Guard: rapid.SampledFrom([]string{"", guardPath}).Draw(t, "guard"),
			Generation: rapid.Uint64().Draw(t, "generation"), PID: rapid.IntRange(1, 1<<22).Draw(t, "pid"),
			Started:  time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "started"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC(),
			Kubepods: rapid.SampledFrom([]string{"", "kubepods", "a.slice/a-kubepods.slice"}).Draw(t, "kubepods"),
			Overwritten: optional(t, "overwritten", rapid.Just(map[string]contract.Files{
				contract.LevelBestEffort: {"memory.low": "max"},
			})),
		}
	})
}

func optional[T any](t *rapid.T, label string, g *rapid.Generator[T]) T {
	var none T
	if rapid.Bool().Draw(t, "with "+label) {
		return g.Draw(t, label)
	}
	return none
}

func nonEmpty[M ~map[string]V, V any](m M) M {
	if len(m) == 0 {
		return nil
	}
	return m
}

// swap replaces the one occurrence of old in data. Another count is a panic.
func swap(data []byte, old, replacement string) []byte {
	if n := strings.Count(string(data), old); n != 1 {
		panic(fmt.Sprintf("%q occurs %d times in\n%s", old, n, data))
	}
	return []byte(strings.Replace(string(data), old, replacement, 1))
}
