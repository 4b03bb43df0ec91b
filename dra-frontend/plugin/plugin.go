// SPDX-License-Identifier: Apache-2.0

// Package plugin answers kubelet: it prepares and unprepares claims. The
// scheduler has chosen zone and amounts; what is left to decide here is which
// CPUs of that zone, and every value that follows from the amounts. The flow
// of one claim reads top to bottom in prepare.go, its decision in decide.go.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/cpuset"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

// DriverName is the name of driver and DeviceClass.
const DriverName = "dra.cpumem"

// Inventory is the machine as it is offered, computed from topology and
// configuration. A value of it never changes; a changed machine is a new one.
type Inventory struct {
	// Zones by device name.
	Zones map[string]Zone
	// Pick chooses n CPUs of free.
	Pick func(free cpuset.CPUSet, n int, o placement.Options) (cpuset.CPUSet, error)
	// PageSize is the base page size in bytes.
	PageSize int64
	// Base is what the node state depends on beside the claims.
	Base nodestate.Base
}

// Zone is what a device stands for.
type Zone struct {
	CPUs cpuset.CPUSet
	// Mems is the zone's list of NUMA nodes with memory, in list format.
	Mems string
}

// Pods reads a pod from the API server.
type Pods interface {
	Pod(ctx context.Context, namespace, name string) (Pod, error)
}

// Claims reads a claim from the API server.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Cgroups looks at the cgroups of this node.
type Cgroups interface {
	// Has reports whether a pod has a cgroup. Kubelet makes it before the pod's
	// claims are prepared and removes it after the last container has ended. An
	// error means that it is not known.
	Has(pod contract.PodRecord) (bool, error)
}

// Node reads what the API server says of this node.
type Node interface {
	// AllocatableMemory returns the memory in bytes that pods may have, as the
	// node's status has it.
	AllocatableMemory(ctx context.Context) (int64, error)
}

// Actuator tells what the actuator of this node says of itself; an error means
// that it cannot apply decisions now.
type Actuator interface {
	Announcement() (contract.Announcement, error)
}

// Recorder counts what happened.
type Recorder interface {
	Prepared(err error, took time.Duration)
	Unprepared(err error)
	Claims(n int, exclusive, shared int)
}

// Lock excludes another instance of the frontend on this node.
type Lock interface {
	Acquire() (release func() error, err error)
}

// Driver implements the kubelet side of the frontend. Whatever reads the
// ledger and then writes holds the mutex and the lock: during a rolling update
// a second instance does the same to the same directory, and a node state
// computed before its claim was written would put the claim's CPUs back into
// the pool (I1).
type Driver struct {
	mu        sync.Mutex
	lock      Lock
	log       *zap.Logger
	ledger    *ledger.Ledger
	pool      string
	bootID    string
	guard     bool
	guardWait time.Duration
	inventory Inventory
	settings  parameters.Settings
	pods      Pods
	claims    Claims
	cgroups   Cgroups
	node      Node
	actuator  Actuator
	recorder  Recorder
	// noMemoryHigh and memoryCapacity never change.
	noMemoryHigh   error
	memoryCapacity func() (int64, error)
	metadata       Metadata
}

// Metadata rewrites what containers read of a prepared claim (KEP-5304). It
// writes nothing for a claim that was prepared without metadata.
type Metadata func(ctx context.Context, claim *resourceapi.ResourceClaim, devices []kubeletplugin.Device) error

// Options are the parts of a Driver. All are required but NoMemoryHigh,
// MemoryCapacity and Metadata.
type Options struct {
	Log    *zap.Logger
	Lock   Lock
	Ledger *ledger.Ledger
	// Pool is the name of the pool that this node publishes.
	Pool      string
	BootID    string
	Guard     bool
	GuardWait time.Duration // how long it waits for a container's values: whole seconds
	Inventory Inventory
	// Settings are those of a claim without parameters.
	Settings parameters.Settings
	Pods     Pods
	Claims   Claims
	Cgroups  Cgroups
	Node     Node
	Actuator Actuator
	Recorder Recorder
	// NoMemoryHigh tells why memory.high cannot be written on this node, nil if
	// it can.
	NoMemoryHigh error
	// MemoryCapacity reads the node's memory in bytes as kubelet counts it; nil
	// leaves oom_score_adj to kubelet.
	MemoryCapacity func() (int64, error)
	// Metadata is called for claims that are decided anew while kubelet keeps
	// them prepared; nil where no claim has metadata.
	Metadata Metadata
}

// New returns a Driver. Reconcile is called before kubelet may call it, so that
// the node state is not older than the claims when the first one comes; Prepare
// itself always looks at the claim files (I4).
func New(o Options) *Driver {
	if o.Metadata == nil {
		o.Metadata = func(context.Context, *resourceapi.ResourceClaim, []kubeletplugin.Device) error { return nil }
	}
	return &Driver{
		log: o.Log, lock: o.Lock, ledger: o.Ledger, pool: o.Pool, bootID: o.BootID, guard: o.Guard, guardWait: o.GuardWait, inventory: o.Inventory,
		settings: o.Settings, pods: o.Pods, claims: o.Claims, cgroups: o.Cgroups, node: o.Node, actuator: o.Actuator, recorder: o.Recorder, noMemoryHigh: o.NoMemoryHigh,
		memoryCapacity: o.MemoryCapacity, metadata: o.Metadata,
	}
}

// enter begins a section that reads and writes the directory. The lock comes
// first: an instance that waits for its turn must not keep the mutex from a
// change of the machine meanwhile.
func (d *Driver) enter() (leave func(), err error) {
	release, err := d.lock.Acquire()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	return func() {
		d.mu.Unlock()
		if err := release(); err != nil {
			d.log.Error("lock not released", zap.Error(err))
		}
	}, nil
}

// SetInventory replaces the machine, after a change of topology.
func (d *Driver) SetInventory(i Inventory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inventory = i
}

// Reconcile recomputes the node state from the claim files and writes it if it
// differs: after a start, a change of topology, or files removed by hand. It
// returns the claims that can be read; the error says why the node takes no new
// ones.
func (d *Driver) Reconcile() ([]contract.ClaimRecord, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return d.reconcile()
}

func (d *Driver) reconcile() ([]contract.ClaimRecord, error) {
	claims, err := d.ledger.Load()
	if err != nil {
		return nil, err
	}
	if err := claims.Blocked(); err != nil {
		// Without all claims the pool could only be computed too large, so
		// the node file stays as it is (I1, I4).
		return claims.Prepared, err
	}
	return claims.Prepared, d.writeState(claims.Prepared)
}

// Prepared returns the claims that are prepared and can be read.
func (d *Driver) Prepared() ([]contract.ClaimRecord, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	claims, err := d.ledger.Load()
	return claims.Prepared, err
}

func (d *Driver) writeState(claims []contract.ClaimRecord) error {
	state, err := nodestate.Compute(d.inventory.Base, claims)
	if err != nil {
		return err
	}
	if err := d.ledger.WriteNode(state); err != nil {
		return err
	}
	d.count(claims)
	return nil
}

func (d *Driver) count(claims []contract.ClaimRecord) {
	exclusive := nodestate.Exclusive(claims)
	d.recorder.Claims(len(claims), exclusive.Size(), d.inventory.Base.CPUs.Difference(exclusive).Size())
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. Kubelet names all
// claims of a pod in one call, but for those that it knows to be prepared.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	// I8: the choice of CPUs depends on the order, so that must not be the call's.
	claims = slices.SortedFunc(slices.Values(claims), func(a, b *resourceapi.ResourceClaim) int { return strings.Compare(string(a.UID), string(b.UID)) })
	call := d.call(ctx, claims, d.preparedNames)
	for _, claim := range claims {
		start := time.Now()
		devices, err := d.prepare(ctx, claim, call)
		d.recorder.Prepared(err, time.Since(start))
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		err := d.unprepare(ctx, claim)
		d.recorder.Unprepared(err)
		results[claim.UID] = err
	}
	return results, nil
}

func (d *Driver) unprepare(ctx context.Context, claim kubeletplugin.NamespacedObject) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	// I1: kubelet may have asked again since it gave this call up, and may have
	// prepared the claim for the next pod.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("claim %s: the call was given up: %w", claim, err)
	}
	log := d.log.With(zap.String("claim", claim.String()), zap.String("uid", string(claim.UID)))
	uid := string(claim.UID)
	if !contract.ValidUID(uid) {
		return fmt.Errorf("claim %s: UID %q is not an object UID", claim, uid)
	}
	claims, err := d.ledger.Load()
	if err != nil {
		return err
	}
	record, known := claims.Find(uid)
	if err := d.ledger.Forget(uid); err != nil {
		log.Error("claim not released", zap.Error(err))
		return err
	}
	// Look again: its own file may have been the one that blocked the node, and
	// what could not be read before is held, if it can be read now (I1).
	if claims, err = d.ledger.Load(); err != nil {
		return err
	}
	if claims.Blocked() != nil {
		// The pool must not grow while unknown CPUs are held (I1); Reconcile
		// writes the state once every file can be read.
		log.Warn("claim released; the node state waits for unreadable claim files")
		return nil
	}
	switch err := d.writeState(claims.Prepared); {
	case errors.Is(err, nodestate.ErrNoPool):
		// The claim is released: kubelet has nothing to ask for again. Reconcile
		// writes the state once there is a CPU for the pool (I7).
		log.Warn("claim released; the node state waits for a CPU of the shared pool to come online", zap.Error(err))
		return nil
	case err != nil:
		return err
	}
	if known {
		log.Info("claim released", zap.String("cpus", record.CPUs()))
	}
	return nil
}
