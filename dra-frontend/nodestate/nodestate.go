// SPDX-License-Identifier: Apache-2.0

// Package nodestate computes the node state from the prepared claims: the
// shared pool, the cgroup values of pods and levels, and the values of the machine. The result depends on
// the arguments only. Package kubelet calls it at start and before every write,
// so that the node file can always be computed again from the claim files.
package nodestate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// Base is the part of the node state's input that does not come from claims.
type Base struct {
	BootID string
	// CPUs are the CPUs of the shared pool while no claim holds any. Mems are
	// all NUMA nodes with memory.
	CPUs contract.CPUSet
	Mems contract.NUMANodeSet
	// UnmanagedCPUs are the online CPUs that the driver neither offers nor puts into the
	// shared pool.
	UnmanagedCPUs contract.CPUSet
	// Online are the online CPUs of the machine.
	Online contract.CPUSet
	// Protect writes memory.min and memory.low of pods and ancestors.
	Protect bool
}

// ErrNoSharedPool means that the shared pool would be empty (I7).
var ErrNoSharedPool = errors.New("no CPU would be left for the shared pool")

// Compute returns the node state for the prepared claims. The ledger sets the
// generation. The error is [ErrNoSharedPool] if the shared pool would be empty.
func Compute(base Base, claims []contract.ClaimRecord) (contract.NodeState, error) {
	// I8: the state does not depend on the order in which its caller has the claims.
	claims = slices.SortedFunc(slices.Values(claims), func(a, b contract.ClaimRecord) int { return strings.Compare(a.UID, b.UID) })
	state := contract.NodeState{
		V:         contract.Version,
		BootID:    base.BootID,
		Pods:      make(map[string]contract.PodState),
		Ancestors: make(map[string]contract.Files),
	}
	held := ClaimedCPUs(claims)
	if base.CPUs.Difference(held).IsEmpty() {
		return contract.NodeState{}, fmt.Errorf("%w: %d claims hold all of %s", ErrNoSharedPool, len(claims), base.CPUs)
	}
	// The kernel takes partition CPUs out of the pool, so the pool's list keeps
	// them.
	pool := base.CPUs.Difference(cpusOf(claims, func(d contract.Decision) bool { return d.Partition == "" }))
	state.Shared = contract.Shared{CPUs: pool, Mems: base.Mems, UnmanagedCPUs: base.UnmanagedCPUs.Difference(held)}

	state.Machine = quiet.Machine(base.Online, claims)

	pods := podSums(claims)
	levels := map[string]*sums{}
	for _, level := range []string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort} {
		levels[level] = &sums{}
	}
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		files := contract.Files{}
		if base.Protect {
			p.protection(files)
		}
		p.hugetlb(files)
		slices.Sort(p.claims)
		state.Pods[uid] = contract.PodState{
			Claims: p.claims, Cgroup: files, PartitionCPUs: p.partitionCPUs, Quota: p.quota(), Requires: p.requires(),
		}
		for _, level := range slices.Compact([]string{contract.LevelKubepods, p.qos}) {
			levels[level].add(p.sums)
		}
	}
	if !levels[contract.LevelKubepods].partitionCPUs.IsEmpty() {
		state.PartitionCPUs = make(map[string]contract.CPUSet)
		for level, s := range levels {
			if !s.partitionCPUs.IsEmpty() {
				state.PartitionCPUs[level] = s.partitionCPUs
			}
		}
	}
	if base.Protect {
		// Each ancestor's own value caps the protection of a container
		// (cgroup-v2.rst, "memory.min"), so each level gets the sum of the pods
		// below it.
		for level, s := range levels {
			files := contract.Files{}
			s.protection(files)
			if len(files) > 0 {
				state.Ancestors[level] = files
			}
		}
	}
	return state, nil
}

// ClaimedCPUs returns the CPUs of the claims' decisions.
func ClaimedCPUs(claims []contract.ClaimRecord) contract.CPUSet {
	return cpusOf(claims, func(contract.Decision) bool { return true })
}

// cpusOf returns the CPUs of the decisions that count.
func cpusOf(claims []contract.ClaimRecord, counts func(contract.Decision) bool) contract.CPUSet {
	var sets []contract.CPUSet
	for _, c := range claims {
		for _, r := range c.Results {
			if counts(r.Decision) {
				sets = append(sets, r.Decision.CPUs)
			}
		}
	}
	return contract.CPUSet{}.Union(sets...)
}

type sums struct {
	min, low      int64
	partitionCPUs contract.CPUSet
}

func (s *sums) add(o sums) {
	s.min += o.min
	s.low += o.low
	s.partitionCPUs = s.partitionCPUs.Union(o.partitionCPUs)
}

// protection adds the files with a sum above zero. The actuator gives a file
// that is not named its former value back.
func (s *sums) protection(files contract.Files) {
	for file, sum := range map[string]int64{"memory.min": s.min, "memory.low": s.low} {
		if sum > 0 {
			files[file] = strconv.FormatInt(sum, 10)
		}
	}
}

type podSum struct {
	sums
	qos       string
	claims    []string
	hugepages map[string]hugepageSum
	// limit is the pod's own CPU limit, nil for none. lifted are the claimed CPUs for which containers have no quota. A claim
	// counts with all such CPUs if the pod uses some of them.
	limit  *contract.CPULimit
	lifted int
	// machine are the machine features that the pod's claims need.
	machine []string
}

// requires returns the features without which an actuator cannot apply the pod's entry.
func (p *podSum) requires() []string {
	var features []string
	if !p.partitionCPUs.IsEmpty() {
		features = append(features, contract.FeaturePartition)
	}
	if p.quota() != "" {
		features = append(features, contract.FeatureQuota)
	}
	slices.Sort(p.machine)
	return append(features, slices.Compact(p.machine)...)
}

// quota returns the content of the pod's cpu.max, empty for kubelet's. The pod's quota
// would throttle a container whose own quota is lifted. If the containers' limits bound the
// pod as its own limit does, the pod needs no quota. Otherwise the pod's limit
// grows by the CPUs of the lifted containers, which cannot use more.
func (p *podSum) quota() string {
	switch {
	case p.lifted == 0 || p.limit == nil:
		return ""
	case !p.limit.Open:
		return contract.NoQuota
	}
	milli := min(p.limit.Milli, mostMilli) + int64(p.lifted)*1000
	return fmt.Sprintf("%d %d", milli*contract.QuotaPeriod/1000, contract.QuotaPeriod)
}

// mostMilli is a million CPUs, in thousandths of a CPU. The API server takes limits whose quota the kernel
// refuses (above 2^44 microseconds) or that no integer has. A quota for more CPUs than a machine has
// bounds nothing.
const mostMilli = 1_000_000_000

// hugepageSum are the parts of a pod's limit for one page size.
type hugepageSum struct {
	claimed   int64
	unlimited bool
	own       contract.Limit
}

func podSums(claims []contract.ClaimRecord) map[string]*podSum {
	pods := make(map[string]*podSum)
	for _, c := range claims {
		for _, p := range c.Pods {
			sum := pods[p.UID]
			if sum == nil {
				sum = &podSum{qos: p.QOS, hugepages: make(map[string]hugepageSum)}
				pods[p.UID] = sum
			}
			sum.claims = append(sum.claims, c.UID)
			for _, r := range c.Results {
				sum.add(r, p)
				sum.machine = append(sum.machine, r.Quiet.Features()...)
			}
		}
	}
	return pods
}

func (p *podSum) add(r contract.ResultRecord, pod contract.PodRecord) {
	d := r.Decision
	if d.Memory != nil {
		p.sums.add(sums{min: int64(d.Memory.Min), low: int64(d.Memory.Low)})
	}
	if d.Partition != "" {
		p.sums.add(sums{partitionCPUs: d.CPUs})
	}
	if d.Quota == contract.QuotaNone && pod.CPULimit != nil {
		p.lifted += d.CPUs.Size()
		p.limit = pod.CPULimit
	}
	for size, limit := range d.Hugepages {
		h := p.hugepages[size]
		h.own = pod.Hugepages[size]
		if limit == contract.Max {
			h.unlimited = true
		} else {
			// The limit of the container can have the limit of its spec in it, which the pod's own limit has as well.
			h.claimed += min(int64(limit), granted(r, size))
		}
		p.hugepages[size] = h
	}
}

// granted returns the hugepages of a size that the scheduler gave the result, in bytes, and the largest number if the record
// does not have them.
func granted(r contract.ResultRecord, size string) int64 {
	q, err := resource.ParseQuantity(r.Consumed["hugepages_"+size])
	if err != nil {
		return math.MaxInt64 // the limit of the container counts then
	}
	return q.Value()
}

// hugetlb adds the pod's hugepage limits. Kubelet writes 0 for page sizes that
// the pod's spec does not request, and the claim would be useless. Both the
// limit at fault time and the limit of reservations must be raised
// (cgroup-v2.rst, "HugeTLB").
func (p *podSum) hugetlb(files contract.Files) {
	for size, h := range p.hugepages {
		value := "max"
		if !h.unlimited && h.own != contract.Max {
			value = strconv.FormatInt(h.claimed+int64(h.own), 10)
		}
		name := "hugetlb." + contract.CgroupPageSize(size)
		files[name+".max"] = value
		files[name+".rsvd.max"] = value
	}
}
