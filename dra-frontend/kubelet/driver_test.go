// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

const (
	bootID   = "11111111-2222-3333-4444-555555555555"
	pageSize = 4096
	gi       = 1 << 30
)

// node is a driver over a CDI directory on disk. restart makes a new driver over
// the same directory.
type node struct {
	t    require.TestingT
	dir  string
	lock string
	pods podMap
	// claims are the claims of the API server by name, as far as a call for another
	// claim reads them.
	claims claimMap
	// running are the UIDs of pods with a cgroup. unseen is the error if
	// cgroups cannot be read.
	running  map[string]bool
	unseen   error
	actuator error
	features []string
	boot     string
	config   config.Config
	// allocatable is the node's memory in bytes, 0 if the API server is away.
	// gets counts its reads.
	allocatable  int64
	gets         int
	noMemoryHigh error
	// capacity returns the node's memory in bytes as kubelet counts it, nil to
	// leave OOM scores to kubelet.
	capacity func() (int64, error)
	// wrap replaces the directory of the ledger, wrapPods the API server's
	// pods.
	wrap     func(ledger.Directory) ledger.Directory
	wrapPods func(kubelet.Pods) kubelet.Pods
	// wrapClaims replaces claims if it is set.
	wrapClaims kubelet.Claims
	metadata   kubelet.Metadata
	inventory  decision.Inventory
	driver     *kubelet.Driver
}

// nodeIn returns a node with no pod and no frontend, whose files are below the
// directory work.
func nodeIn(t require.TestingT, work string) *node {
	return &node{
		t:         t,
		dir:       filepath.Join(work, "cdi"),
		lock:      filepath.Join(work, "lock"),
		pods:      podMap{},
		claims:    claimMap{},
		boot:      bootID,
		inventory: t2(),
		config:    config.Default(),
	}
}

func newNode(t *testing.T) *node {
	n := nodeIn(t, t.TempDir())
	n.allocatable, n.features = 16*gi, []string{contract.FeatureMemoryPolicy}
	n.restart()
	requireReconciled(t, n.driver)
	return n
}

func requireReconciled(t require.TestingT, d *kubelet.Driver) {
	_, err := d.Reconcile()
	require.NoError(t, err)
}

func (n *node) restart() {
	dir, err := cdidir.Open(n.dir)
	require.NoError(n.t, err)
	var d ledger.Directory = dir
	if n.wrap != nil {
		d = n.wrap(dir)
	}
	var pods kubelet.Pods = n.pods
	if n.wrapPods != nil {
		pods = n.wrapPods(pods)
	}
	var claims kubelet.Claims = n.claims
	if n.wrapClaims != nil {
		claims = n.wrapClaims
	}
	n.driver = kubelet.New(kubelet.Options{
		Log:            zap.NewNop(),
		Lock:           cdidir.NewLock(n.lock),
		Ledger:         ledger.New(d, n.boot),
		SlicePool:      "node0",
		BootID:         n.boot,
		Guard:          true,
		GuardWait:      25 * time.Second,
		Inventory:      n.inventory,
		Settings:       parameters.Defaults(n.config, pageSize),
		Pods:           pods,
		Claims:         claims,
		Cgroups:        n,
		Node:           n,
		Actuator:       n,
		Recorder:       discard{},
		NoMemoryHigh:   n.noMemoryHigh,
		MemoryCapacity: n.capacity,
		Metadata:       n.metadata,
	})
}

func (n *node) AllocatableMemory(context.Context) (int64, error) {
	n.gets++
	if n.allocatable == 0 {
		return 0, errors.New("the API server is away")
	}
	return n.allocatable, nil
}

func (n *node) Announcement() (contract.Announcement, error) {
	return contract.Announcement{
		V: contract.Version, Guard: "/opt/guard", Features: n.features, Runtime: "testruntime", RuntimeVersion: "v1", Kernel: "6.1.0",
	}, n.actuator
}

// t2 is topology T2. It picks the lowest free CPUs: package placement tests
// which CPUs are best.
func t2() decision.Inventory {
	return decision.Inventory{
		Zones: map[string]decision.Zone{
			"numa-0": {CPUs: contract.CPUs(0, 1, 4, 5), Mems: contracttest.NUMANodes("0")},
			"numa-1": {CPUs: contract.CPUs(2, 3, 6, 7), Mems: contracttest.NUMANodes("1")},
		},
		Pick: func(free contract.CPUSet, n int, _ placement.Options) (contract.CPUSet, error) {
			return contract.CPUs(free.List()[:n]...), nil
		},
		Base: nodestate.Base{
			BootID: bootID, CPUs: contract.CPUs(0, 1, 2, 3, 4, 5, 6, 7), Mems: contract.NUMANodes(0, 1), Protect: true,
		},
	}
}

type podMap map[string]decision.Pod

func (m podMap) Pod(_ context.Context, _, name string) (decision.Pod, error) {
	p, ok := m[name]
	if !ok {
		return p, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return p, nil
}

// Has implements kubelet.Cgroups.
func (n *node) Has(p contract.PodRecord) (bool, error) { return n.running[p.UID], n.unseen }

type claimMap map[string]*resourceapi.ResourceClaim

func (m claimMap) Claim(_ context.Context, _, name string) (*resourceapi.ResourceClaim, error) {
	c, ok := m[name]
	if !ok {
		return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
	}
	return c, nil
}

type discard struct{}

func (discard) Prepared(error, time.Duration) {}
func (discard) Unprepared(error)              {}
func (discard) Claims(int, int, int)          {}

func uid(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

// claim returns claim number i on a zone. A pod of its own is its consumer, and
// the pod's one container uses it.
func (n *node) claim(i int, zone string, capacity map[resourceapi.QualifiedName]string) *resourceapi.ResourceClaim {
	name, pod := fmt.Sprintf("claim-%d", i), fmt.Sprintf("pod-%d", i)
	n.pods[pod] = decision.Pod{
		Name: pod, PodRecord: contract.PodRecord{UID: uid(1000 + i), QOS: contract.LevelBurstable},
		Containers: []decision.Container{{Name: "main", BesideMain: true, Claims: []decision.ClaimReference{{Claim: name}}}},
	}
	consumed := make(map[resourceapi.QualifiedName]resource.Quantity)
	for k, v := range capacity {
		consumed[k] = resource.MustParse(v)
	}
	share := types.UID(uid(2000 + i))
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid(i))},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(uid(1000 + i))}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "zone", Driver: kubelet.DriverName, Pool: "node0", Device: zone, ShareID: &share, ConsumedCapacity: consumed},
				},
			}},
		},
	}
}

func (n *node) prepare(c *resourceapi.ResourceClaim) (kubeletplugin.PrepareResult, error) {
	results, err := n.driver.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{c})
	require.NoError(n.t, err)
	require.Contains(n.t, results, c.UID)
	return results[c.UID], results[c.UID].Err
}

func (n *node) unprepare(i int) error { return n.unprepareAll(i)[types.UID(uid(i))] }

// unprepareAll releases the claims in one call.
func (n *node) unprepareAll(claims ...int) map[types.UID]error {
	objects := make([]kubeletplugin.NamespacedObject, len(claims))
	for at, i := range claims {
		objects[at] = kubeletplugin.NamespacedObject{
			NamespacedName: types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("claim-%d", i)}, UID: types.UID(uid(i)),
		}
	}
	results, err := n.driver.UnprepareResourceClaims(context.Background(), objects)
	require.NoError(n.t, err)
	require.Len(n.t, results, len(claims))
	return results
}

func (n *node) record(i int) contract.ClaimRecord {
	name := contract.ClaimFile(uid(i))
	data, err := os.ReadFile(filepath.Join(n.dir, name))
	require.NoError(n.t, err)
	r, err := contract.DecodeClaim(name, data)
	require.NoError(n.t, err)
	return r
}

func (n *node) state() contract.NodeState {
	data, err := os.ReadFile(filepath.Join(n.dir, contract.NodeFile))
	require.NoError(n.t, err)
	s, err := contract.DecodeNode(data)
	require.NoError(n.t, err)
	return s
}

func (n *node) claimFiles() []string {
	files, err := filepath.Glob(filepath.Join(n.dir, contract.ClaimFile("*")))
	require.NoError(n.t, err)
	return files
}

type capacity = map[resourceapi.QualifiedName]string

func TestPrepareWritesTheWholeDecision(t *testing.T) {
	n := newNode(t)
	result, err := n.prepare(n.claim(1, "numa-1", capacity{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "64Mi"}))
	require.NoError(t, err)
	require.Len(t, result.Devices, 1)
	require.Equal(t, []string{"dra.cpumem/claim=" + uid(1) + "-0"}, result.Devices[0].CDIDeviceIDs)
	require.Equal(t, "node0", result.Devices[0].PoolName)
	require.NotNil(t, result.Devices[0].ShareID)

	r := n.record(1)
	require.Equal(t, contract.Decision{
		V: contract.Version, CPUs: contracttest.CPUs("2-3"), Mems: contracttest.NUMANodes("1"), Requires: []string{},
		Memory:    &contract.Memory{Min: gi, High: contract.Max, Max: gi},
		Hugepages: map[string]contract.Limit{"2Mi": 64 << 20},
	}, r.Results[0].Decision)
	require.Equal(t, "/opt/guard", r.Guard)
	require.Equal(t, 35, r.GuardTimeout)

	s := n.state()
	require.Equal(t, contract.Shared{CPUs: contracttest.CPUs("0-1,4-7"), Mems: contracttest.NUMANodes("0-1")}, s.Shared)
	require.Equal(t, contract.PodState{Claims: []string{uid(1)}, Cgroup: contract.Files{
		"memory.min": "1073741824", "hugetlb.2MB.max": "67108864", "hugetlb.2MB.rsvd.max": "67108864",
	}}, s.Pods[uid(1001)])
	require.Equal(t, contract.Files{"memory.min": "1073741824"}, s.Ancestors["burstable"])
	require.Equal(t, s.Ancestors["burstable"], s.Ancestors[""])
	require.Empty(t, s.Ancestors["besteffort"])
}

func TestMemoryOnlyClaimStaysInTheSharedPool(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "0", "memory": "1Gi"}))
	require.NoError(t, err)
	d := n.record(1).Results[0].Decision
	require.Empty(t, d.CPUs.String())
	require.Equal(t, "0", d.Mems.String())
	require.Equal(t, "0-7", n.state().Shared.CPUs.String())
}

// A14, I8.
func TestPrepareTwiceGivesTheSameAnswerAndBytes(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
	first, err := n.prepare(c)
	require.NoError(t, err)
	path := filepath.Join(n.dir, contract.ClaimFile(uid(1)))
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	n.restart()
	requireReconciled(t, n.driver)
	// The answer stands without an actuator and without the pod.
	n.actuator = contract.ErrActuatorDead
	delete(n.pods, "pod-1")
	again, err := n.prepare(c)
	require.NoError(t, err)
	require.Equal(t, first, again)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, uint64(2), n.state().Generation, "the node state must not be written again")
}

// A13: each wrong input has a message of its own and leaves nothing behind.
func TestPrepareRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*node, *resourceapi.ResourceClaim)
		want   string
	}{
		"fraction of a CPU":    {func(n *node, c *resourceapi.ResourceClaim) { consume(c, "cpu", "500m") }, "500m is not a whole number"},
		"nothing":              {func(n *node, c *resourceapi.ResourceClaim) { consume(c, "cpu", "0") }, "asks for nothing"},
		"negative":             {func(n *node, c *resourceapi.ResourceClaim) { consume(c, "cpu", "-1") }, "-1 is negative"},
		"missing":              {func(n *node, c *resourceapi.ResourceClaim) { result(c).ConsumedCapacity = nil }, "no consumed capacity"},
		"larger than the zone": {func(n *node, c *resourceapi.ResourceClaim) { consume(c, "cpu", "5") }, "5 CPUs granted, the zone has 4"},
		"odd bytes": {
			change: func(n *node, c *resourceapi.ResourceClaim) { consume(c, "memory", "4097") },
			want:   "not a multiple of the page size 4096",
		},
		"odd hugepages": {
			change: func(n *node, c *resourceapi.ResourceClaim) { consume(c, "hugepages_2Mi", "3Mi") },
			want:   "not a multiple of the page size",
		},
		"unknown capacity": {func(n *node, c *resourceapi.ResourceClaim) { consume(c, "gpus", "1") }, "capacity gpus is not one"},
		// A77: a slice that was written with another node's token leads here.
		"pool of another node": {
			change: func(n *node, c *resourceapi.ResourceClaim) { result(c).Pool = "node1" },
			want:   `pool "node1", this node's pool is "node0"`,
		},
		"unknown device": {func(n *node, c *resourceapi.ResourceClaim) { result(c).Device = "numa-9" }, "no such zone"},
		"memory that is not offered any more": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			n.offersNoMemory("numa-0")
		}, "the zone offers none"},
		"no allocation": {func(n *node, c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }, "is not allocated"},
		"admin access":  {func(n *node, c *resourceapi.ResourceClaim) { yes := true; result(c).AdminAccess = &yes }, "admin access"},
		"actuator dead": {
			change: func(n *node, c *resourceapi.ResourceClaim) { n.actuator = contract.ErrActuatorDead },
			want:   "nri-actuator is not running",
		},
		"pod gone":     {func(n *node, c *resourceapi.ResourceClaim) { delete(n.pods, "pod-1") }, "not reserved for any pod that exists"},
		"not reserved": {func(n *node, c *resourceapi.ResourceClaim) { c.Status.ReservedFor = nil }, "not reserved for any pod"},
		"limit below the claim": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			n.pods["pod-1"].Containers[0].MemoryLimit = 1 << 20
		}, "is below the claimed 1073741824 bytes"},
		"memory shared by many containers": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			p := n.pods["pod-1"]
			one := p.Containers[0]
			for i := range 99 {
				one.Name = fmt.Sprintf("c%d", i)
				p.Containers = append(p.Containers, one)
			}
			n.pods["pod-1"] = p
		}, "pod-1/c4 and 94 more)"},
		"memory shared by two containers": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			p := n.pods["pod-1"]
			p.Containers = append(p.Containers, decision.Container{Name: "second", BesideMain: true, Claims: p.Containers[0].Claims})
			n.pods["pod-1"] = p
		}, "pod-1/main, pod-1/second"},
		"a sidecar and the init container after it": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			p := n.pods["pod-1"]
			use := p.Containers[0].Claims
			p.Containers = []decision.Container{
				{Name: "sidecar", BesideMain: true, Claims: use},
				{Name: "init", Claims: use},
				{Name: "main", BesideMain: true},
			}
			n.pods["pod-1"] = p
		}, "pod-1/sidecar, pod-1/init"},
		"some containers with a limit of their own": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			p := n.pods["pod-1"]
			use := p.Containers[0].Claims
			p.Containers = []decision.Container{{Name: "init", Claims: use}, {Name: "main", BesideMain: true, MemoryLimit: 2 * gi, Claims: use}}
			n.pods["pod-1"] = p
		}, "give all of them a limit, or none"},
		"pod limit below the claim": {func(n *node, c *resourceapi.ResourceClaim) {
			consume(c, "memory", "1Gi")
			p := n.pods["pod-1"]
			p.MemoryLimit = 1 << 20
			n.pods["pod-1"] = p
		}, "memory limit of pod pod-1 of 1048576 bytes is below the claimed 1073741824 bytes"},
		"A19 parameters": {func(n *node, c *resourceapi.ResourceClaim) {
			configure(c, opaque(`"cpu":{"placement":"random"}`))
		}, `request "zone" on device "numa-0": the claim's parameters for all requests: cpu.placement: "random", want one of`},
		"A19 a policy that the actuator does not know": {func(n *node, c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Results[0].ConsumedCapacity["memory"] = resource.MustParse("1Gi")
			configure(c, opaque(`"memory":{"policy":"weightedInterleave"}`))
		}, `its parameters need "weightedInterleave", which this node cannot do: the runtime is testruntime v1 with NRI`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			before := n.state()
			c := n.claim(1, "numa-0", capacity{"cpu": "1"})
			tc.change(n, c)
			_, err := n.prepare(c)
			require.ErrorContains(t, err, tc.want)
			require.Empty(t, n.claimFiles())
			require.Equal(t, before, n.state())
		})
	}
}

func result(c *resourceapi.ResourceClaim) *resourceapi.DeviceRequestAllocationResult {
	return &c.Status.Allocation.Devices.Results[0]
}

func consume(c *resourceapi.ResourceClaim, name resourceapi.QualifiedName, q string) {
	result(c).ConsumedCapacity[name] = resource.MustParse(q)
}

// A13: results of other drivers are left out.
func TestPrepareOfOtherDrivers(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "1"})
	result(c).Driver = "gpu.example.com"
	got, err := n.prepare(c)
	require.NoError(t, err)
	require.Empty(t, got.Devices)
	require.Empty(t, n.claimFiles())

	c = n.claim(2, "numa-0", capacity{"cpu": "1"})
	other := *result(c)
	other.Driver = "gpu.example.com"
	c.Status.Allocation.Devices.Results = append([]resourceapi.DeviceRequestAllocationResult{other}, c.Status.Allocation.Devices.Results...)
	got, err = n.prepare(c)
	require.NoError(t, err)
	require.Len(t, got.Devices, 1)
}

func TestZoneWithoutFreeCPUs(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "3"}))
	require.NoError(t, err)
	_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "2"}))
	require.ErrorContains(t, err, "2 CPUs granted, 1 of the zone's 4 are free (5), holders of the other CPUs: claim default/claim-1 (0-1,4)")
	require.NoError(t, n.unprepare(1))
	_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "2"}))
	require.NoError(t, err)
}

// I7: the last CPU stays in the pool, whatever the scheduler grants.
func TestPoolIsNeverEmpty(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "4"}))
	require.NoError(t, err)
	_, err = n.prepare(n.claim(2, "numa-1", capacity{"cpu": "4"}))
	require.ErrorContains(t, err, "no CPU would be left")
	require.Equal(t, "2-3,6-7", n.state().Shared.CPUs.String())
	require.Len(t, n.claimFiles(), 1)
}

// A16.
func TestClaimOfTheSameNameIsAnother(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
	c := n.claim(2, "numa-0", capacity{"cpu": "1"})
	c.Name = "claim-1"
	n.pods["pod-2"].Containers[0].Claims[0].Claim = "claim-1"
	_, err = n.prepare(c)
	require.NoError(t, err)
	require.NotEqual(t, n.record(1).CPUs(), n.record(2).CPUs())
}

// A22, I3.
func TestUnprepare(t *testing.T) {
	n := newNode(t)
	start := n.state()
	require.NoError(t, n.unprepare(7), "an unknown claim is success")
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "2Mi"}))
	require.NoError(t, err)
	require.NoError(t, n.unprepare(1))
	require.NoError(t, n.unprepare(1), "twice is success")
	end := n.state()
	end.Generation = start.Generation
	require.Equal(t, start, end)
	require.Empty(t, n.claimFiles())
}

// A22: a claim file that cannot be removed keeps its CPUs.
func TestUnprepareKeepsCPUsWhileTheFileStays(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "2"}))
	require.NoError(t, err)
	failing := true
	n.wrap = func(d ledger.Directory) ledger.Directory { return &stuck{Directory: d, stuck: &failing} }
	n.restart()
	require.ErrorContains(t, n.unprepare(1), "its CPUs stay taken")
	require.Equal(t, "2-7", n.state().Shared.CPUs.String())
	failing = false
	require.NoError(t, n.unprepare(1))
	require.Equal(t, "0-7", n.state().Shared.CPUs.String())
}

// A22, I1: a claim that cannot be released does not keep the other claims of the call, and its CPUs
// stay out of the pool.
func TestUnprepareBesideAFileThatStays(t *testing.T) {
	n := newNode(t)
	for i := 1; i <= 3; i++ {
		_, err := n.prepare(n.claim(i, "numa-0", capacity{"cpu": "1"}))
		require.NoError(t, err)
	}
	kept := n.record(2).CPUs()
	failing := true
	n.wrap = func(d ledger.Directory) ledger.Directory {
		return &stuck{Directory: d, stuck: &failing, name: contract.ClaimFile(uid(2))}
	}
	n.restart()
	results := n.unprepareAll(1, 2, 3)
	require.NoError(t, results[types.UID(uid(1))])
	require.ErrorContains(t, results[types.UID(uid(2))], "its CPUs stay taken")
	require.NoError(t, results[types.UID(uid(3))])
	require.Equal(t, contracttest.CPUs("0-7").Difference(kept).String(), n.state().Shared.CPUs.String())
	failing = false
	require.NoError(t, n.unprepare(2))
	require.Equal(t, "0-7", n.state().Shared.CPUs.String())
}

// stuck is a directory from which the file with the name cannot be removed. Without a name, no file can
// be removed.
type stuck struct {
	ledger.Directory
	stuck *bool
	name  string
}

func (s *stuck) Remove(name string) error {
	if *s.stuck && (s.name == "" || s.name == name) {
		return errors.New("device busy")
	}
	return s.Directory.Remove(name)
}

// A18, I4: an unreadable claim file blocks new claims and changes nothing else.
func TestUnreadableClaimFileBlocks(t *testing.T) {
	for name, damage := range map[string]func(n *node, path string, data []byte) []byte{
		"truncated": func(_ *node, _ string, data []byte) []byte { return data[:len(data)/2] },
		"empty":     func(*node, string, []byte) []byte { return nil },
		"unknown version": func(_ *node, _ string, data []byte) []byte {
			return []byte(strings.ReplaceAll(string(data), `"v1"`, `"v9"`))
		},
		"from another boot": func(n *node, _ string, data []byte) []byte {
			n.boot = "99999999-2222-3333-4444-555555555555"
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c := n.claim(1, "numa-0", capacity{"cpu": "2"})
			_, err := n.prepare(c)
			require.NoError(t, err)
			path := filepath.Join(n.dir, contract.ClaimFile(uid(1)))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(n, path, data), 0o600))
			before := n.state()

			n.restart()
			_, err = n.driver.Reconcile()
			require.ErrorContains(t, err, path)
			_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "1"}))
			require.ErrorContains(t, err, path)
			require.Equal(t, before, n.state(), "the pool must not grow over CPUs that may be held")

			// The node recovers if the claim is released or its file is
			// removed.
			require.NoError(t, n.unprepare(1))
			_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "1"}))
			require.NoError(t, err)
		})
	}
}

// A17.
func TestForeignFilesAndBrokenDirectories(t *testing.T) {
	n := newNode(t)
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "vendor.json"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "vendor.yaml"), []byte("cdiVersion: 1"), 0o600))
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)

	aside := n.dir + ".aside"
	require.NoError(t, os.Rename(n.dir, aside))
	_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "1"}))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(n.dir, nil, 0o600))
	_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "1"}))
	require.ErrorContains(t, err, "not a directory")
	require.NoError(t, os.Remove(n.dir))
	require.NoError(t, os.Rename(aside, n.dir))
	_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
}

// I2: a claim that is allocated anew without being unprepared gets the new
// allocation.
func TestClaimAllocatedAnew(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "2"}))
	require.NoError(t, err)
	// Kubelet makes the pod's cgroup before it prepares the claim.
	n.running = map[string]bool{uid(1001): true}
	_, err = n.prepare(n.claim(1, "numa-1", capacity{"cpu": "1"}))
	require.NoError(t, err)
	require.Equal(t, "numa-1", n.record(1).Results[0].Device)
	require.Equal(t, "2", n.record(1).CPUs().String())
	require.Equal(t, "0-1,3-7", n.state().Shared.CPUs.String())
	require.NoError(t, n.unprepare(1))
	require.Equal(t, "0-7", n.state().Shared.CPUs.String())
}

// An init container that ends before the main container starts may use the same
// memory.
func TestInitContainerSharesMemory(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"memory": "1Gi"})
	p := n.pods["pod-1"]
	p.Containers = append([]decision.Container{{Name: "init", Claims: p.Containers[0].Claims}}, p.Containers...)
	n.pods["pod-1"] = p
	_, err := n.prepare(c)
	require.NoError(t, err)
}

// A claim does not lower the hugepage limits of the pod's own spec.
func TestOwnHugepagesAreNotTakenAway(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"hugepages_2Mi": "4Mi"})
	n.pods["pod-1"].Containers[0].Hugepages = map[string]int64{"2Mi": 8 << 20, "1Gi": 1 << 30}
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.Equal(t, map[string]contract.Limit{"2Mi": 8 << 20}, n.record(1).Results[0].Decision.Hugepages)
}

// The reservation of a pod that was deleted by force does not keep another pod
// from the claim.
func TestReservationOfAPodThatIsGone(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "1"})
	c.Status.ReservedFor = append([]resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "gone", UID: types.UID(uid(9))},
	}, c.Status.ReservedFor...)
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.Len(t, n.record(1).Pods, 1)
}

// The generation grows also if the node file was removed by hand.
func TestNodeFileLost(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
	before := n.state()
	require.NoError(t, os.Remove(filepath.Join(n.dir, contract.NodeFile)))
	requireReconciled(t, n.driver)
	after := n.state()
	require.Greater(t, after.Generation, before.Generation)
	after.Generation = before.Generation
	require.Equal(t, before, after)
}

// reserve reserves the claim for count more pods that use it.
func (n *node) reserve(c *resourceapi.ResourceClaim, count int) {
	for range count {
		i := 10000 + len(n.pods)
		name := fmt.Sprintf("pod-%d", i)
		n.pods[name] = decision.Pod{
			Name: name, PodRecord: contract.PodRecord{UID: uid(i), QOS: contract.LevelBurstable},
			Containers: []decision.Container{{Name: "main", BesideMain: true, Claims: []decision.ClaimReference{{Claim: c.Name}}}},
		}
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: name, UID: types.UID(uid(i)),
		})
	}
}

// The node file has a limit. A claim that comes near to it is refused with
// numbers and without a write. The prepared claims can still change.
func TestNodeFileIsFull(t *testing.T) {
	n := newNode(t)
	var err error
	var first *resourceapi.ResourceClaim
	last := 0
	for err == nil {
		last++
		require.Less(t, last, 7, "the file has no end")
		c := n.claim(last, fmt.Sprintf("numa-%d", last/4), capacity{"cpu": "1"})
		n.reserve(c, 600)
		if _, err = n.prepare(c); first == nil {
			first = c
		}
	}
	require.ErrorContains(t, err, fmt.Sprintf("for %d claims in %d pods", last, last*601))
	require.ErrorContains(t, err, "bytes")
	require.Len(t, n.claimFiles(), last-1)
	requireReconciled(t, n.driver)

	// A pod that joins is refused too.
	n.reserve(first, 400)
	require.ErrorContains(t, n.join(first), fmt.Sprintf("for %d claims in %d pods", last-1, (last-1)*601+400))

	require.NoError(t, n.unprepare(1))
	_, err = n.prepare(n.claim(last, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
}

// full is a directory that takes node files and no claim files.
type full struct{ ledger.Directory }

func (f full) Write(name string, data []byte) error {
	if name != contract.NodeFile {
		return errors.New("no space left on device")
	}
	return f.Directory.Write(name, data)
}

// A17: a claim that cannot be written holds no CPU.
func TestFullDirectory(t *testing.T) {
	n := newNode(t)
	before := n.state()
	n.wrap = func(d ledger.Directory) ledger.Directory { return full{d} }
	n.restart()
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "2"}))
	require.ErrorContains(t, err, "no space left on device")
	after := n.state()
	require.Equal(t, before.Shared, after.Shared)
	require.Empty(t, after.Pods)
	require.Empty(t, n.claimFiles())

	n.wrap = nil
	n.restart()
	_, err = n.prepare(n.claim(1, "numa-0", capacity{"cpu": "2"}))
	require.NoError(t, err)
}
