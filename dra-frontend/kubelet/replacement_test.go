// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

// next returns the claim with pod number i as its only consumer.
func (n *node) next(c *resourceapi.ResourceClaim, i int) *resourceapi.ResourceClaim {
	c = c.DeepCopy()
	c.Status.ReservedFor = nil
	n.late(c, "next", i)
	return c
}

// allocatedAnew returns the claim with a new allocation in the zone.
func allocatedAnew(c *resourceapi.ResourceClaim, zone string) *resourceapi.ResourceClaim {
	c = c.DeepCopy()
	r := &c.Status.Allocation.Devices.Results[0]
	r.Device, r.ShareID = zone, new(types.UID(uid(3000)))
	return c
}

// offersNoMemory takes the memory from the zone, as if the configuration named
// other kinds of memory.
func (n *node) offersNoMemory(zone string) {
	i := t2()
	i.Zones[zone] = decision.Zone{CPUs: i.Zones[zone].CPUs}
	n.inventory = i
	n.restart()
}

// recorded returns the UIDs of the pods in the record of claim i.
func (n *node) recorded(i int) []string {
	var uids []string
	for _, p := range n.record(i).Pods {
		uids = append(uids, p.UID)
	}
	return uids
}

// A64: when the pods of a named claim have ended, the claim is decided anew for
// its next pod if pods cannot share it. Kubelet may ask, or the claim is
// watched. The values are the new pod's, and the CPUs stay.
func TestReplacement(t *testing.T) {
	ask := func(n *node, c *resourceapi.ResourceClaim) error { _, err := n.prepare(c); return err }
	follow := func(n *node, c *resourceapi.ResourceClaim) error { return n.join(c) }
	for name, learn := range map[string]func(*node, *resourceapi.ResourceClaim) error{"kubelet asks": ask, "the claim is followed": follow} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.partitions(true)
			_, err := n.prepare(n.claim(9, "numa-0", capacity{"cpu": "1"}))
			require.NoError(t, err)
			c := n.claim(1, "numa-0", capacity{"cpu": "1", "memory": "1Gi", "hugepages_2Mi": "4Mi"})
			answer, err := n.prepare(c)
			require.NoError(t, err)
			require.NoError(t, n.unprepare(9))
			before := n.record(1)
			require.False(t, before.OwnedByPod)
			require.Equal(t, "1", before.CPUs().String(), "0 was taken then")
			require.Equal(t, contract.PartitionRoot, before.Results[0].Decision.Partition)

			both := c.DeepCopy()
			n.late(both, "next", 5)
			require.NoError(t, learn(n, both), "the one before has it")
			require.Equal(t, before, n.record(1))

			next := n.next(c, 5)
			p := n.pods["next"]
			p.RuntimeClass, p.Containers[0].MemoryLimit, p.Containers[0].Hugepages = "kata", 2*gi, map[string]int64{"2Mi": 8 * mi}
			n.pods["next"] = p
			require.NoError(t, learn(n, next))
			after := n.record(1)
			require.Equal(t, []string{uid(5)}, n.recorded(1))
			require.Equal(t, contract.Decision{
				V: contract.Version, CPUs: contracttest.CPUs("1"), Mems: contracttest.NUMANodes("0"), Requires: []string{},
				Memory:    &contract.Memory{Low: gi, High: contract.Max, Max: contract.Max},
				Hugepages: map[string]contract.Limit{"2Mi": 8 * mi},
			}, after.Results[0].Decision, "a runtime class makes no partition")
			state := n.state()
			require.Equal(t, "0,2-7", state.Shared.CPUs.String())
			require.Len(t, state.Pods, 1)
			require.Equal(t, []string{uid(1)}, state.Pods[uid(5)].Claims)

			again, err := n.prepare(next)
			require.NoError(t, err)
			require.Equal(t, answer.Devices[0].CDIDeviceIDs, again.Devices[0].CDIDeviceIDs)
			require.Equal(t, after, n.record(1), "I8")
		})
	}
}

// I1: a claim is not decided anew, and no CPU is freed, while a pod may run.
func TestReplacementWaits(t *testing.T) {
	for name, c := range map[string]struct {
		obstacle func(*node)
		err      string
		reason   decision.Reason
	}{
		"it runs": {
			func(n *node) { n.running = map[string]bool{uid(1001): true} }, "pod " + uid(1001) + " has not ended", decision.ReasonPods,
		},
		"not known":    {func(n *node) { n.unseen = errors.New("no cgroups here") }, "no cgroups here", decision.ReasonPods},
		"no actuator":  {func(n *node) { n.actuator = contract.ErrActuatorDead }, contract.ErrActuatorDead.Error(), decision.ReasonActuator},
		"blocked node": {func(n *node) { n.damage(t) }, contract.ClaimFile(uid(99)), decision.ReasonFiles},
	} {
		for kind, change := range map[string]func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim{
			"the same allocation": (*resourceapi.ResourceClaim).DeepCopy,
			"allocated anew":      func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim { return allocatedAnew(c, "numa-1") },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				n := newNode(t)
				claim := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
				_, err := n.prepare(claim)
				require.NoError(t, err)
				record, state := n.record(1), n.state()
				next := n.next(change(claim), 5)
				c.obstacle(n)
				require.ErrorContains(t, n.join(next), c.err)
				_, err = n.prepare(next)
				require.ErrorContains(t, err, c.err)
				require.Equal(t, c.reason, decision.ReasonOf(err))
				require.Equal(t, record, n.record(1))
				require.Equal(t, state, n.state())
			})
		}
	}
}

// damage writes a claim file that cannot be read.
func (n *node) damage(t *testing.T) {
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, contract.ClaimFile(uid(99))), []byte("{"), 0o600))
}

// A64, I2: after a deletion by force the scheduler allocates the claim anew
// under its UID, and kubelet does not call the driver.
func TestReplacementAllocatedAnew(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	next := n.next(allocatedAnew(c, "numa-1"), 5)
	require.NoError(t, n.join(next))
	require.Equal(t, "2-3", n.record(1).CPUs().String())
	require.Equal(t, uid(3000), n.record(1).Results[0].ShareID)
	require.Equal(t, "0-1,4-7", n.state().Shared.CPUs.String())
	require.Equal(t, []string{uid(5)}, n.recorded(1))

	// Kubelet would ask for CDI devices that do not exist.
	other := n.next(allocatedAnew(c, "numa-0"), 6)
	results := &other.Status.Allocation.Devices.Results
	*results = append(*results, (*results)[0])
	err = n.join(other)
	require.ErrorContains(t, err, "other requests")
	require.Equal(t, decision.ReasonClaim, decision.ReasonOf(err))
	require.Equal(t, []string{uid(5)}, n.recorded(1))
	_, err = n.prepare(other)
	require.ErrorContains(t, err, "other requests", "kubelet asks after a restart, and keeps the devices of its checkpoint")
	require.Equal(t, []string{uid(5)}, n.recorded(1))

	// What the watch has shown may be out of date.
	for name, change := range map[string]func(*resourceapi.ResourceClaim){
		"another claim":   func(c *resourceapi.ResourceClaim) { c.UID = types.UID(uid(9)) },
		"another node":    func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Pool = "node1" },
		"another driver":  func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Driver = "gpu" },
		"the former pods": func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor = next.Status.ReservedFor },
	} {
		present := n.next(allocatedAnew(c, "numa-0"), 7)
		shown := present.DeepCopy()
		change(present)
		n.claims[c.Name] = present
		require.NoError(t, n.driver.Join(t.Context(), shown), name)
		require.Equal(t, []string{uid(5)}, n.recorded(1), name)
	}
	delete(n.claims, c.Name)
	require.NoError(t, n.driver.Join(t.Context(), n.next(allocatedAnew(c, "numa-0"), 7)), "deleted")
	require.Equal(t, []string{uid(5)}, n.recorded(1))
}

// A claim that kubelet releases while its pods are read is not prepared again.
func TestReplacementOfAClaimThatIsReleased(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"memory": "1Gi"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	n.wrapPods = func(p kubelet.Pods) kubelet.Pods {
		return podFunc(func(ctx context.Context, namespace, name string) (decision.Pod, error) {
			require.NoError(t, n.unprepare(1))
			return p.Pod(ctx, namespace, name)
		})
	}
	n.restart()
	require.NoError(t, n.join(n.next(c, 5)))
	require.Empty(t, n.claimFiles())
	require.Empty(t, n.state().Pods)
}

type podFunc func(ctx context.Context, namespace, name string) (decision.Pod, error)

func (f podFunc) Pod(ctx context.Context, namespace, name string) (decision.Pod, error) {
	return f(ctx, namespace, name)
}

// I5: a container with several claims gets the values of one call for all of
// them. Here kubelet asks for one claim and the other claim is watched, in
// either order.
func TestReplacementBesideAnotherClaim(t *testing.T) {
	const throttled = `"memory":{"throttlingFactor":0.9}`
	both := func(n *node) (named, own *resourceapi.ResourceClaim) {
		named = isolation(n.claim(1, "numa-0", capacity{"memory": "1Gi"}), throttled)
		own = isolation(n.claim(2, "numa-0", capacity{"memory": "3Gi", "hugepages_2Mi": "8Mi"}), throttled)
		n.claims = claimMap{named.Name: named, own.Name: own}
		return named, own
	}
	reference := newNode(t)
	a, b := both(reference)
	reference.together(4*gi, a, b)
	results, err := reference.driver.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{a, b})
	require.NoError(t, err)
	require.NoError(t, errors.Join(results[a.UID].Err, results[b.UID].Err))
	for _, first := range []string{"the named claim", "the other"} {
		t.Run(first+" first", func(t *testing.T) {
			n := newNode(t)
			named, own := both(n)
			n.restart()
			_, err := n.prepare(named)
			require.NoError(t, err)
			alone := n.record(1)
			n.together(4*gi, named, own)
			steps := []func(){
				func() { require.NoError(t, n.join(named)) },
				func() { _, err := n.prepare(own); require.NoError(t, err) },
			}
			if first == "the other" {
				slices.Reverse(steps)
			}
			for _, step := range steps {
				step()
			}
			require.NotEqual(t, alone.Results, n.record(1).Results)
			for i := range 2 {
				require.Equal(t, reference.record(i+1).Results, n.record(i+1).Results)
			}
		})
	}
	t.Run("another driver's claim is not read", func(t *testing.T) {
		n := newNode(t)
		own, gpu := n.claim(1, "numa-0", capacity{"memory": "1Gi"}), n.claim(2, "numa-0", capacity{"memory": "1Gi"})
		n.together(0, own, gpu)
		n.wrapClaims = noClaims{}
		n.restart()
		_, err := n.prepare(own)
		require.NoError(t, err)
	})
	t.Run("the other cannot be read", func(t *testing.T) {
		n := newNode(t)
		named := n.claim(1, "numa-0", capacity{"memory": "1Gi"})
		_, err := n.prepare(named)
		require.NoError(t, err)
		own := n.claim(2, "numa-0", capacity{"memory": "2Gi"})
		n.together(4*gi, named, own)
		before := n.record(1)
		n.wrapClaims = noClaims{}
		n.restart()
		require.ErrorIs(t, n.join(named), errNoClaims)
		_, err = n.prepare(own)
		require.ErrorIs(t, err, errNoClaims)
		require.Equal(t, before, n.record(1))
	})
}

var errNoClaims = errors.New("the API server is away")

type noClaims struct{}

func (noClaims) Claim(context.Context, string, string) (*resourceapi.ResourceClaim, error) {
	return nil, errNoClaims
}

// I1, I4, I5: a frontend that dies at any write of a replacement leaves files
// that Reconcile puts in order. Then the replacement succeeds.
func TestReplacementCrash(t *testing.T) {
	for name, c := range map[string]struct {
		class [2]string
		zone  string
	}{
		"the same":                    {zone: "numa-0"},
		"a partition, then from pool": {class: [2]string{"", "kata"}, zone: "numa-0"},
		"from pool, then a partition": {class: [2]string{"kata", ""}, zone: "numa-0"},
		"in another zone":             {zone: "numa-1"},
	} {
		for writes := range 3 {
			t.Run(name, func(t *testing.T) {
				n := newNode(t)
				n.partitions(true)
				left := -1
				n.wrap = func(d ledger.Directory) ledger.Directory {
					return crashing{Directory: d, check: func() { n.requireOrdered() }, left: &left}
				}
				n.restart()
				class := func(pod, class string) {
					p := n.pods[pod]
					p.RuntimeClass = class
					n.pods[pod] = p
				}
				claim := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
				class("pod-1", c.class[0])
				_, err := n.prepare(claim)
				require.NoError(t, err)
				next := claim
				if c.zone != "numa-0" {
					next = allocatedAnew(claim, c.zone)
				}
				next = n.next(next, 5)
				class("next", c.class[1])

				left = writes
				require.ErrorIs(t, n.join(next), errCrashed)
				left = -1
				n.restart()
				requireReconciled(t, n.driver)
				n.requireOrdered()
				require.Len(t, n.state().Pods, 1, "those of the file that is there")
				require.Contains(t, n.state().Pods, n.recorded(1)[0])

				require.NoError(t, n.join(next))
				require.Equal(t, []string{uid(5)}, n.recorded(1))
				require.Contains(t, n.state().Pods, uid(5))
				require.Equal(t, c.class[1] == "", n.record(1).Results[0].Decision.Partition != "")
				require.NoError(t, n.unprepare(1))
				require.Equal(t, "0-7", n.state().Shared.CPUs.String())
			})
		}
	}
}

// requireOrdered checks that the pool has no claimed CPUs except partition
// CPUs, and that no pod in the node state has a claim that was not decided for
// it.
func (n *node) requireOrdered() {
	state := n.state()
	shared := state.Shared.CPUs
	pods := map[string]bool{}
	for _, path := range n.claimFiles() {
		data, err := os.ReadFile(path)
		require.NoError(n.t, err)
		r, err := contract.DecodeClaim(filepath.Base(path), data)
		require.NoError(n.t, err)
		for _, p := range r.Pods {
			pods[p.UID] = true
		}
		if r.Results[0].Decision.Partition == "" {
			held := r.CPUs()
			require.True(n.t, held.Intersection(shared).IsEmpty(), "I1: pool %s, held %s", shared, held)
		}
	}
	if len(pods) == 0 {
		return // the first preparation writes the node state before the claim file
	}
	for uid := range state.Pods {
		require.True(n.t, pods[uid], "I5: pod %s is listed, the file is of %v", uid, pods)
	}
}

// A write that fails leaves the files of the former decision.
func TestReplacementOnAFullDirectory(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	record, state := n.record(1), n.state()
	n.wrap = func(d ledger.Directory) ledger.Directory { return full{d} }
	n.restart()
	require.ErrorContains(t, n.join(n.next(c, 5)), "no space left on device")
	require.Equal(t, record, n.record(1))
	after := n.state()
	after.Generation = state.Generation
	require.Equal(t, state, after)
}

// Pods that share a claim and were deleted by force keep its CPUs until they
// have ended.
func TestJoinKeepsWhatRuns(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	n.running = map[string]bool{uid(1001): true}
	require.NoError(t, n.join(n.next(c, 5)))
	require.ElementsMatch(t, []string{uid(1001), uid(5)}, n.recorded(1))
	n.running = nil
	require.NoError(t, n.join(n.next(c, 6)))
	require.Equal(t, []string{uid(6)}, n.recorded(1))
}

// A reservation that is not for a pod has a message of its own.
func TestReservedForAPodGroup(t *testing.T) {
	group := resourceapi.ResourceClaimConsumerReference{
		APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "workers", UID: types.UID(uid(77)),
	}
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	pods := c.Status.ReservedFor
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{group, group}
	_, err := n.prepare(c)
	require.ErrorContains(t, err, "is reserved for podgroups.scheduling.k8s.io workers and 1 more and for no pod")
	require.ErrorContains(t, err, "claim template of their own")
	require.Empty(t, n.claimFiles())

	c.Status.ReservedFor = append(pods, group)
	_, err = n.prepare(c)
	require.NoError(t, err, "the pod that is named has it")
	require.Equal(t, []string{uid(1001)}, n.recorded(1))
}

// I1: an orphan is not released while a pod may run.
func TestRelease(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "2"}))
	require.NoError(t, err)
	record := n.record(1)
	for _, c := range []struct {
		running bool
		unseen  error
	}{{running: true}, {unseen: errors.New("no cgroups here")}} {
		n.running, n.unseen = map[string]bool{uid(1001): c.running}, c.unseen
		runs, err := n.driver.MayRun(record)
		require.True(t, runs)
		require.Equal(t, c.unseen, err)
		require.Error(t, n.driver.ReleaseOrphan(record, func() error { return nil }))
		require.Equal(t, record, n.record(1))
	}
	n.running, n.unseen = nil, nil
	runs, err := n.driver.MayRun(record)
	require.NoError(t, err)
	require.False(t, runs)
	require.NoError(t, n.driver.ReleaseOrphan(record, func() error { return nil }))
	require.Empty(t, n.claimFiles())
	require.Equal(t, "0-7", n.state().Shared.CPUs.String())
}

// The pool may have no CPUs except the former and the new CPUs of a claim. The
// claim is decided anew all the same: its former CPUs, on which nothing runs,
// become the pool (I7).
func TestReplacementTakesTurnsWithThePool(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(9, "numa-1", capacity{"cpu": "4"}))
	require.NoError(t, err)
	c := n.claim(1, "numa-0", capacity{"cpu": "1"})
	_, err = n.prepare(c)
	require.NoError(t, err)
	require.Equal(t, "0", n.record(1).CPUs().String())
	_, err = n.prepare(n.claim(8, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
	require.Equal(t, "1", n.record(8).CPUs().String())
	_, err = n.prepare(n.claim(7, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
	require.Equal(t, "5", n.state().Shared.CPUs.String())
	// The zone has lost CPU 0, so the claim cannot keep it.
	n.inventory.Zones["numa-0"] = decision.Zone{CPUs: contract.CPUs(1, 4, 5), Mems: contracttest.NUMANodes("0")}
	n.restart()
	require.NoError(t, n.join(n.next(allocatedAnew(c, "numa-0"), 5)))
	require.Equal(t, "5", n.record(1).CPUs().String())
	require.Equal(t, "0", n.state().Shared.CPUs.String())
	require.Equal(t, []string{uid(5)}, n.recorded(1))
}

// I2: the next pod does not get CPUs that the zone has lost.
func TestReplacementKeepsNoCPUsBeyondTheZone(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.Equal(t, "0-1", n.record(1).CPUs().String())
	n.inventory.Zones["numa-0"] = decision.Zone{CPUs: contract.CPUs(0, 4, 5), Mems: contracttest.NUMANodes("0")}
	n.restart()
	require.NoError(t, n.join(n.next(c, 5)))
	require.Equal(t, "0,4", n.record(1).CPUs().String())
}

// A claim that is allocated to another node is left to that node. Kubelet
// releases it here.
func TestJoinOfAClaimOnAnotherNode(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	record, state := n.record(1), n.state()
	next := n.next(allocatedAnew(c, "numa-0"), 5)
	result(next).Pool = "node1"
	require.NoError(t, n.join(next))
	require.Equal(t, record, n.record(1))
	require.Equal(t, state, n.state())
}

// A replacement for which the node file has no room is refused before a file is
// written (I4).
func TestReplacementWithoutRoom(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	record, state := n.record(1), n.state()
	for i := range 2 {
		crowd := record
		crowd.UID, crowd.Name, crowd.Pods = uid(90+i), "crowd", nil
		crowd.Results = slices.Clone(crowd.Results)
		crowd.Results[0].Decision = contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("7"), Requires: []string{}}
		for j := range 2000 {
			crowd.Pods = append(crowd.Pods, contract.PodRecord{UID: uid(10000 + 20000*i + j), QOS: contract.LevelBurstable})
		}
		data, err := contract.EncodeClaim(crowd)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, contract.ClaimFile(crowd.UID)), data, 0o600))
	}
	require.ErrorContains(t, n.join(n.next(c, 5)), "the node file would have")
	require.Equal(t, record, n.record(1))
	require.Equal(t, state, n.state())
}

// A user blocks no node: a pod's CPU limit, as large as the API server takes it, leaves a node state that can be
// written, and other claims are prepared and released.
func TestReplacementForAPodWithAnAbsurdLimit(t *testing.T) {
	n := newNode(t)
	n.features = append(n.features, contract.FeatureQuota)
	c := isolation(n.claim(1, "numa-0", capacity{"cpu": "1", "memory": "1Gi"}), `"cpu":{"quota":"none"}`)
	_, err := n.prepare(c)
	require.NoError(t, err)
	next := n.next(c, 5)
	p := n.pods["next"]
	p.CPULimit = &contract.CPULimit{Milli: 1e14, Open: true} // 100G CPUs
	n.pods["next"] = p
	require.NoError(t, n.join(next))
	require.Equal(t, []string{uid(5)}, n.recorded(1))
	_, err = n.prepare(n.claim(2, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
	require.NoError(t, n.unprepare(2))
	require.Equal(t, "1-7", n.state().Shared.CPUs.String())
}

// The metadata of a claim is written before its new decision. If that fails,
// the former decision stays.
func TestReplacementWritesMetadata(t *testing.T) {
	n := newNode(t)
	var written []string
	away := errors.New("not registered")
	n.metadata = func(_ context.Context, c *resourceapi.ResourceClaim, devices []kubeletplugin.Device) error {
		require.Equal(t, []string{uid(1001)}, n.recorded(1))
		written = append(written, *devices[0].Metadata.Attributes["cpuset"].StringValue)
		return away
	}
	n.restart()
	c := n.claim(1, "numa-0", capacity{"cpu": "2", "memory": "1Gi"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.Empty(t, written, "the helper writes it with the answer")
	next := n.next(allocatedAnew(c, "numa-1"), 5)
	require.ErrorIs(t, n.join(next), away)
	require.Equal(t, []string{uid(1001)}, n.recorded(1))
	away = nil
	require.NoError(t, n.join(next))
	require.Equal(t, []string{uid(5)}, n.recorded(1))
	require.Equal(t, []string{"2-3", "2-3"}, written)
}
