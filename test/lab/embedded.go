// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// ErrDied is the error of a call during which the frontend died.
var ErrDied = errors.New("the frontend died")

// embedded is the frontend's core: package daemon without sockets, watches and
// publishing in the background.
type embedded struct {
	n      *Node
	driver *kubelet.Driver
	dir    *mortal
}

func newEmbedded(n *Node) *embedded {
	offered := n.offered()
	dir, err := cdidir.Open(n.CDI)
	require.NoError(n.t, err)
	require.NoError(n.t, dir.RemoveStale())
	e := &embedded{n: n, dir: &mortal{Dir: dir, left: -1, n: n}}
	e.driver = kubelet.New(kubelet.Options{
		Log: zap.NewNop(), Lock: cdidir.NewLock(n.path("kubelet/ledger.lock")), Ledger: ledger.New(e.dir, n.BootID()),
		SlicePool: NodeName, BootID: n.BootID(),
		Guard: n.config.Guard, GuardWait: n.config.GuardWait.Duration,
		Inventory: decision.InventoryOf(n.config, offered, n.BootID()), Settings: parameters.Defaults(n.config, n.spec.PageSize),
		Pods: podclaims.NewReader(n.API.Client), Claims: podclaims.NewReader(n.API.Client), Cgroups: e,
		Node: podclaims.NewNode(n.API.Client, NodeName), Actuator: e, Recorder: discard{},
		MemoryCapacity: func() (int64, error) { return topology.MemoryTotal(os.DirFS(n.config.ProcRoot)) },
	})
	e.publish()
	return e
}

// publish writes the slices if they differ from the published ones. The daemon
// does so after each change of the claim files: a claim that was allocated with
// another configuration changes what the node offers.
func (e *embedded) publish() {
	claims, err := e.driver.Reconcile()
	require.NoError(e.n.t, err)
	devices := e.n.devices(e.n.offered().Offer(claims))
	if len(e.n.API.Slices()) > 0 && asText(byName(devices)) == e.n.publication() {
		return
	}
	e.n.API.deleteSlices()
	for name, pool := range resourceslices.DriverResources(NodeName, devices).Pools {
		for i, s := range pool.Slices {
			_, err := e.n.API.Client.ResourceV1().ResourceSlices().Create(e.n.t.Context(), &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02d-%s", i, NodeName)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: kubelet.DriverName, NodeName: new(NodeName), Devices: s.Devices,
					Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				},
			}, metav1.CreateOptions{})
			require.NoError(e.n.t, err)
		}
	}
}

// Announcement implements kubelet.Actuator. With the option NoActuator it is always
// a working actuator's, to test the frontend alone.
func (e *embedded) Announcement() (contract.Announcement, error) {
	if e.n.o.NoActuator {
		a := contract.Announcement{V: contract.Version, Versions: []string{contract.Version}, Connected: true}
		a.SetPlatform(contract.Platform{Kernel: e.n.o.OSRelease, Partitions: e.n.partitions()})
		return a, nil
	}
	a, err := contract.ReadAnnouncement(e.n.CDI)
	if err == nil && !a.Connected {
		err = fmt.Errorf("nri-actuator is not connected: %s", a.Disconnected)
	}
	return a, err
}

// Has implements kubelet.Cgroups.
func (e *embedded) Has(p contract.PodRecord) (bool, error) {
	return e.n.cgroups.exists(health.PodDir("kubepods", p.QOS, p.UID)), nil
}

func (e *embedded) ready() error {
	_, err := e.Announcement()
	return err
}

func (e *embedded) stop() {}

func (e *embedded) prepare(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[string]answer, error) {
	results, err := e.driver.PrepareResourceClaims(ctx, claims)
	if e.dir.dead() {
		return nil, ErrDied
	}
	if err != nil {
		return nil, err
	}
	answers := make(map[string]answer)
	for uid, r := range results {
		a := answer{err: r.Err}
		for _, d := range r.Devices {
			a.devices = append(a.devices, device{requests: d.Requests, cdi: d.CDIDeviceIDs})
		}
		answers[string(uid)] = a
	}
	e.publish()
	return answers, nil
}

func (e *embedded) unprepare(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[string]error, error) {
	var objects []kubeletplugin.NamespacedObject
	for _, c := range claims {
		objects = append(objects, kubeletplugin.NamespacedObject{
			NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID,
		})
	}
	results, err := e.driver.UnprepareResourceClaims(ctx, objects)
	if e.dir.dead() {
		return nil, ErrDied
	}
	if err != nil {
		return nil, err
	}
	answers := make(map[string]error)
	for uid, err := range results {
		answers[string(uid)] = err
	}
	e.publish()
	return answers, nil
}

// KillFrontendAfter lets the frontend die before change number changes+1 of the CDI
// directory. Restart the frontend then.
func (n *Node) KillFrontendAfter(changes int) {
	e, ok := n.frontend.(*embedded)
	require.True(n.t, ok, "only an embedded frontend dies at will")
	e.dir.left = changes
}

// mortal is the CDI directory of a process that dies after a number of changes. It
// leaves the unfinished file of a killed writer, and fails each later change.
type mortal struct {
	cdidir.Dir
	n *Node
	// left is the number of changes before the death; negative for no death.
	left int
	over bool
}

func (m *mortal) dead() bool { return m.over }

func (m *mortal) change(name string, do func() error) error {
	if m.left == 0 && !m.over {
		m.over = true
		temporary := filepath.Join(filepath.Dir(m.Path(name)), "."+name+".tmp-killed")
		if err := os.WriteFile(temporary, []byte("{"), 0o600); err != nil {
			return err
		}
	}
	if m.over {
		return ErrDied
	}
	if m.left > 0 {
		m.left--
	}
	return do()
}

// Write implements ledger.Directory.
func (m *mortal) Write(name string, data []byte) error {
	return m.change(name, func() error {
		err := m.Dir.Write(name, data)
		if err == nil {
			m.n.written(name, data)
		}
		return err
	})
}

// Remove implements ledger.Directory.
func (m *mortal) Remove(name string) error {
	return m.change(name, func() error {
		_, there := m.n.Files()[name]
		err := m.Dir.Remove(name)
		if uid, claim := contract.ClaimUIDOfFile(name); claim && there && err == nil {
			m.n.o.History.Add(protocol.Event{Action: protocol.ClaimRemoved, Subject: uid})
		}
		return err
	})
}

type discard struct{}

func (discard) Prepared(error, time.Duration) {}
func (discard) Unprepared(error)              {}
func (discard) Claims(int, int, int)          {}
