// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

// startFrontend starts the frontend, which makes the node file current.
func (w *world) startFrontend(m mishap) error {
	w.frontend = &life{mishap: m, counts: &w.counts}
	dir := directory{ledger.NewClaimDir(cdidir.At(w.cdi()), filepath.Join(w.dir, location), w.bootID()), w.frontend, w}
	w.driver = kubelet.New(kubelet.Options{
		Log: zap.NewNop(), Lock: unlocked{}, Ledger: ledger.New(dir, w.bootID()), SlicePool: "node", BootID: w.bootID(),
		Inventory: w.inventory(), Settings: parameters.Defaults(config.Default(), 4096),
		Pods: w, Claims: w, Cgroups: w, Node: w, Actuator: w, Recorder: unrecorded{},
	})
	if crashed, err := w.do(dir.RemoveStale); err != nil || crashed {
		return err
	}
	return w.reconcile()
}

// inventory returns the node's zones. Each claim has a zone of its CPUs, so that the
// decision has no choice.
func (w *world) inventory() decision.Inventory {
	zones := make(map[string]decision.Zone)
	for _, p := range w.pods {
		zones[p.zone()] = decision.Zone{CPUs: p.cpus, Mems: p.mems}
	}
	return decision.Inventory{
		Zones: zones,
		Pick: func(free contract.CPUSet, n int, _ placement.Options) (contract.CPUSet, error) {
			return contract.CPUs(free.List()[:n]...), nil
		},
		Base: nodestate.Base{BootID: w.bootID(), CPUs: contract.CPUs(0, 1, 2, 3), Mems: contract.NUMANodes(0, 1), Protect: true},
	}
}

// reconcile makes the node file current, unless a claim file cannot be read.
func (w *world) reconcile() error {
	_, err := w.do(func() error {
		_, err := w.driver.Reconcile()
		return err
	})
	if w.blocked() {
		return nil
	}
	return err
}

// prepare is kubelet's call for the claim of a pod. A claim whose CPUs are free must be
// prepared (I2).
func (w *world) prepare(p pod) error {
	_, unable := w.Announcement()
	possible := unable == nil && !w.blocked() && !w.taken(p)
	crashed, err := w.do(func() error {
		results, err := w.driver.PrepareResourceClaims(ctx(), []*resourceapi.ResourceClaim{p.claim()})
		return errors.Join(err, results[types.UID(p.claimUID())].Err)
	})
	if err != nil && !crashed && possible {
		return fmt.Errorf("I2: the claim of the pod with %s: %w", p.name, err)
	}
	return nil
}

// unprepare is kubelet's release of the claim of a pod.
func (w *world) unprepare(p pod) error {
	_, err := w.do(func() error {
		results, err := w.driver.UnprepareResourceClaims(ctx(), []kubeletplugin.NamespacedObject{
			{NamespacedName: types.NamespacedName{Namespace: namespace, Name: p.claimName()}, UID: types.UID(p.claimUID())},
		})
		return errors.Join(err, results[types.UID(p.claimUID())])
	})
	return err
}

// taken reports whether another claim has CPUs of the pod's claim.
func (w *world) taken(p pod) bool {
	for _, other := range w.pods {
		if other.uid != p.uid && other.claimed() && w.held(other) && other.cpus.Overlaps(p.cpus) {
			return true
		}
	}
	return false
}

// Pod implements kubelet.Pods.
func (w *world) Pod(_ context.Context, _, name string) (decision.Pod, error) {
	for _, p := range w.pods {
		if p.uid == name {
			return p.object(), nil
		}
	}
	return decision.Pod{}, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// Claim implements kubelet.Claims.
func (w *world) Claim(_ context.Context, _, name string) (*resourceapi.ResourceClaim, error) {
	return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
}

// Has implements kubelet.Cgroups.
func (w *world) Has(record contract.PodRecord) (bool, error) {
	for _, p := range w.pods {
		if p.uid == record.UID {
			return w.exists(p.dir()), nil
		}
	}
	return false, nil
}

// AllocatableMemory implements kubelet.Node.
func (w *world) AllocatableMemory(context.Context) (int64, error) { return 1 << 30, nil }

// Announcement implements kubelet.Actuator.
func (w *world) Announcement() (contract.Announcement, error) {
	switch {
	case w.actuator == nil || w.actuator.over:
		return contract.Announcement{}, contract.ErrActuatorDead
	case !w.announced.Connected:
		return contract.Announcement{}, errors.New("not connected")
	}
	return w.announced, nil
}

// unlocked implements kubelet.Lock for the only frontend.
type unlocked struct{}

func (unlocked) Acquire() (release func() error, err error) { return func() error { return nil }, nil }

// unrecorded implements kubelet.Recorder.
type unrecorded struct{}

func (unrecorded) Prepared(error, time.Duration) {}
func (unrecorded) Unprepared(error)              {}
func (unrecorded) Claims(int, int, int)          {}
