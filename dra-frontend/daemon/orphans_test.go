// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

const (
	orphanPod = "5f1c2a7e-0b3d-4c5e-8f60-718293a4b5c6"
	orphanDir = "kubepods/burstable/pod" + orphanPod
)

// orphanage is a node with one prepared claim, ns/left on CPUs 0 and 4.
type orphanage struct {
	t        *testing.T
	o        Options
	registry *prometheus.Registry
	client   *fake.Clientset
	sent     sent
	orphans  *orphans
	actuator *os.File
}

func newOrphanage(t *testing.T) *orphanage {
	n := &orphanage{t: t, o: options(t), registry: prometheus.NewRegistry()}
	var err error
	n.o.Metrics, err = metrics.New(n.registry)
	require.NoError(t, err)
	n.o.Config.SysfsRoot, n.o.Kubelet.NodeName = t.TempDir(), "node"
	n.client = fake.NewClientset()
	n.o.Client = n.client
	n.mkdir("kubepods")
	dir, err := cdidir.Open(n.o.Config.CDIDir)
	require.NoError(t, err)
	machine, err := n.o.Config.Divide(topologytest.T2().Machine())
	require.NoError(t, err)
	driver := kubelet.New(kubelet.Options{
		Log: zap.NewNop(), Lock: cdidir.NewLock(filepath.Join(t.TempDir(), "lock")), Ledger: ledger.New(dir, "boot"), BootID: "boot",
		Inventory: decision.InventoryOf(n.o.Config, machine, "boot"), Recorder: n.o.Metrics,
		Cgroups: newPodCgroups(n.o.Config, contract.NewAnnouncementReader(n.o.Config.CDIDir)),
	})
	data, err := contract.EncodeClaim(contract.ClaimRecord{
		V: contract.Version, Namespace: "ns", Name: "left", UID: claimUID, BootID: "boot",
		Pods: []contract.PodRecord{{UID: orphanPod, QOS: contract.LevelBurstable}},
		Results: []contract.ResultRecord{{Request: "zone", Pool: "node", Device: "numa-0",
			Decision: contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("0,4"), Requires: []string{}}}},
	})
	require.NoError(t, err)
	require.NoError(t, atomicfile.Write(n.o.Config.CDIDir, contract.ClaimFile(claimUID), data, 0o600))
	_, err = driver.Reconcile()
	require.NoError(t, err)
	n.announce("kubepods")
	n.orphans = newOrphans(n.o, driver, n.sent.send)
	return n
}

func (n *orphanage) mkdir(dir string) {
	require.NoError(n.t, os.MkdirAll(filepath.Join(n.o.Config.SysfsRoot, "fs/cgroup", dir), 0o755))
}

// announce starts an actuator that announces the cgroup of all pods.
func (n *orphanage) announce(kubepods string) {
	n.actuator = announce(n.t, n.o.Config.CDIDir, contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version}, Connected: true, Kubepods: kubepods,
	})
}

// object makes a claim ns/left with this UID, which is allocated to the nodes with these slice pools.
func (n *orphanage) object(uid types.UID, pools ...string) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "left", UID: uid}}
	for _, pool := range pools {
		claim.Status.Allocation = &resourceapi.AllocationResult{}
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "zone", Driver: kubelet.DriverName, Pool: pool, Device: "numa-0"})
	}
	require.NoError(n.t, n.client.Tracker().Add(claim))
}

// require looks, then checks metric, claim file and number of events.
func (n *orphanage) require(orphaned, prepared bool, events int) {
	n.t.Helper()
	n.orphans.check(n.t.Context())
	want := map[bool]float64{true: 1}[orphaned]
	families, err := n.registry.Gather()
	require.NoError(n.t, err)
	got := -1.0
	for _, f := range families {
		if f.GetName() == "cpumem_frontend_orphaned_claims" {
			got = f.Metric[0].Gauge.GetValue()
		}
	}
	require.InDelta(n.t, want, got, 0, "metric")
	_, err = os.Stat(filepath.Join(n.o.Config.CDIDir, contract.ClaimFile(claimUID)))
	require.Equal(n.t, prepared, err == nil, "%v", err)
	require.Len(n.t, n.sent.all(), events)
}

// A claim without an object is reported. It is released when its pods have
// ended and orphanGrace is over.
func TestOrphans(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(*orphanage)
		orphaned, released bool
	}{
		"gone":                  {func(*orphanage) {}, true, true},
		"another of its name":   {func(n *orphanage) { n.object("another", "node") }, true, true},
		"there":                 {func(n *orphanage) { n.object(claimUID, "node") }, false, false},
		"not allocated":         {func(n *orphanage) { n.object(claimUID) }, true, true},
		"allocated elsewhere":   {func(n *orphanage) { n.object(claimUID, "another") }, true, true},
		"I1: its pod runs":      {func(n *orphanage) { n.mkdir(orphanDir) }, false, false},
		"I1: no actuator":       {func(n *orphanage) { _ = n.actuator.Close() }, true, false},
		"I1: no pod seen yet":   {func(n *orphanage) { n.announce("") }, true, false},
		"I1: another's cgroups": {func(n *orphanage) { n.announce("kubepods.slice") }, true, false},
		"no API server": {func(n *orphanage) {
			n.client.PrependReactor("get", "*", func(ktesting.Action) (bool, kruntime.Object, error) {
				return true, nil, errors.New("away")
			})
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newOrphanage(t)
				c.change(n)
				events := map[bool]int{true: 1}[c.orphaned]
				n.require(c.orphaned, true, events)
				time.Sleep(orphanGrace - time.Second)
				n.require(c.orphaned, true, events)
				time.Sleep(time.Second)
				n.require(c.orphaned && !c.released, !c.released, events)
			})
		})
	}
}

// The release of an orphan removes its metadata files.
func TestOrphansMetadata(t *testing.T) {
	for name, twin := range map[string]bool{"alone": false, "a claim of the same name was made since": true} {
		t.Run(name, func(t *testing.T) { testOrphansMetadata(t, twin) })
	}
}

func testOrphansMetadata(t *testing.T, twin bool) {
	synctest.Test(t, func(t *testing.T) {
		n := newOrphanage(t)
		spec := filepath.Join(n.o.Config.CDIDir, "dra.cpumem_metadata_"+claimUID+"_zone.json")
		other := filepath.Join(n.o.Config.CDIDir, "dra.cpumem_metadata_"+orphanPod+"_zone.json")
		data := filepath.Join(n.o.Kubelet.dataDir(), "dra-device-metadata", "ns_left")
		require.NoError(t, os.MkdirAll(filepath.Join(data, "zone"), 0o755))
		for _, f := range []string{spec, other} {
			require.NoError(t, os.WriteFile(f, []byte("{}"), 0o600))
		}
		if twin {
			mount := fmt.Sprintf(`{"hostPath":%q}`, filepath.Join(data, "zone", "metadata.json"))
			require.NoError(t, os.WriteFile(other, []byte(mount), 0o600))
		}
		n.require(true, true, 1)
		time.Sleep(orphanGrace)
		n.require(false, false, 1)
		require.NoFileExists(t, spec)
		_, err := os.Stat(data)
		require.Equal(t, twin, err == nil, "%v", err)
		require.FileExists(t, other)
	})
}

// A running pod begins orphanGrace again, and no claim is released while the API
// server is away.
func TestOrphanThatRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOrphanage(t)
		n.require(true, true, 1)
		time.Sleep(orphanGrace)
		n.mkdir(orphanDir)
		n.require(false, true, 1)
		require.NoError(t, os.RemoveAll(filepath.Join(n.o.Config.SysfsRoot, "fs/cgroup", orphanDir)))
		n.require(true, true, 2)
		time.Sleep(orphanGrace)
		away := true
		n.client.PrependReactor("get", "*", func(ktesting.Action) (bool, kruntime.Object, error) { return away, nil, errors.New("away") })
		n.require(true, true, 2)
		away = false
		n.require(false, false, 2)
	})
}

// While the actuator is away, the API server is not asked about each claim at each look.
func TestOrphansAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOrphanage(t)
		n.object(claimUID, "node")
		_ = n.actuator.Close()
		for range 20 {
			n.require(false, true, 0)
			time.Sleep(orphanGrace / 10)
		}
		require.Len(t, n.client.Actions(), 2)
	})
}

// A claim that was prepared for another pod since it was found to be an orphan is not released.
func TestOrphanThatIsPreparedAgain(t *testing.T) {
	n := newOrphanage(t)
	claims, err := n.orphans.driver.Prepared()
	require.NoError(t, err)
	again := claims[0]
	again.Pods = []contract.PodRecord{{UID: "6f1c2a7e-0b3d-4c5e-8f60-718293a4b5c6", QOS: contract.LevelBurstable}}
	data, err := contract.EncodeClaim(again)
	require.NoError(t, err)
	require.NoError(t, atomicfile.Write(n.o.Config.CDIDir, contract.ClaimFile(claimUID), data, 0o600))
	metadata := filepath.Join(n.o.Config.CDIDir, "dra.cpumem_metadata_"+claimUID+"_zone.json")
	require.NoError(t, os.WriteFile(metadata, []byte("{}"), 0o600))
	require.False(t, n.orphans.release(claims[0]))
	require.FileExists(t, filepath.Join(n.o.Config.CDIDir, contract.ClaimFile(claimUID)))
	require.FileExists(t, metadata, "the new pod may read it")
	require.True(t, n.orphans.release(again))
	require.NoFileExists(t, filepath.Join(n.o.Config.CDIDir, contract.ClaimFile(claimUID)))
	require.NoFileExists(t, metadata)
}

// I1: both the search for orphans and the release itself ask whether the claim's pods run: a pod may start in between.
func TestReleaseOfAnOrphanAsksAgain(t *testing.T) {
	for name, change := range map[string]func(*orphanage){
		"its pod runs": func(n *orphanage) { n.mkdir(orphanDir) },
		"no actuator":  func(n *orphanage) { _ = n.actuator.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newOrphanage(t)
				metadata := filepath.Join(n.o.Config.CDIDir, "dra.cpumem_metadata_"+claimUID+"_zone.json")
				require.NoError(t, os.WriteFile(metadata, []byte("{}"), 0o600))
				claims, err := n.orphans.driver.Prepared()
				require.NoError(t, err)
				change(n)
				require.False(t, n.orphans.release(claims[0]))
				for range 3 {
					n.orphans.check(t.Context())
					time.Sleep(orphanGrace)
				}
				require.FileExists(t, metadata, "the container may read it")
				require.FileExists(t, filepath.Join(n.o.Config.CDIDir, contract.ClaimFile(claimUID)))
			})
		})
	}
}
