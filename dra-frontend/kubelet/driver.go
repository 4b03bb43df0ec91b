// SPDX-License-Identifier: Apache-2.0

// Package kubelet answers kubelet: it prepares and unprepares claims. It reads
// the input of the decisions, calls package decision, and writes the records
// with package ledger. prepare.go has the flow of one call; batch.go reads its input
// before the lock is taken, and anew.go says when a former decision stands.
package kubelet

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// DriverName is the name of the driver and of its DeviceClass.
const DriverName = "dra.cpumem"

// Pods reads a pod from the API server.
type Pods interface {
	Pod(ctx context.Context, namespace, name string) (decision.Pod, error)
}

// Claims reads a claim from the API server.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Cgroups looks at the cgroups of this node.
type Cgroups interface {
	// Has reports whether a pod has a cgroup. Kubelet makes the cgroup before
	// it prepares the pod's claims, and removes the cgroup after the last
	// container has ended. An error means that the answer is not known.
	Has(pod contract.PodRecord) (bool, error)
}

// Node reads the status of this node from the API server.
type Node interface {
	// AllocatableMemory returns the memory in bytes that pods may have, from
	// the node's status.
	AllocatableMemory(ctx context.Context) (int64, error)
}

// Actuator reads the announcement of this node's actuator. An error means that
// the actuator cannot apply decisions.
type Actuator interface {
	Announcement() (contract.Announcement, error)
}

// Recorder keeps the metrics of prepared claims.
type Recorder interface {
	Prepared(err error, took time.Duration)
	Unprepared(err error)
	Claims(n int, exclusive, shared int)
}

// Lock excludes the other instances of the frontend on this node.
type Lock interface {
	Acquire() (release func() error, err error)
}

// Driver implements the kubelet side of the frontend. Code that reads the
// ledger and then writes holds the mutex and the lock: during a rolling update
// a second instance writes the same directory. A node state computed before
// that instance wrote its claim would put the claim's CPUs back into the pool
// (I1).
type Driver struct {
	mu sync.Mutex
	// o.Inventory is the present one, and needs the mutex.
	o Options
}

// Metadata rewrites what containers read about a prepared claim (KEP-5304). It
// writes nothing for a claim that was prepared without metadata.
type Metadata func(ctx context.Context, claim *resourceapi.ResourceClaim, devices []kubeletplugin.Device) error

// Options are the parts of a Driver. Only NoMemoryHigh, MemoryCapacity and
// Metadata are optional.
type Options struct {
	Log    *zap.Logger
	Lock   Lock
	Ledger *ledger.Ledger
	// SlicePool is the name of the pool that this node publishes.
	SlicePool string
	BootID    string
	Guard     bool
	GuardWait time.Duration // how long the guard waits for a container's values: whole seconds
	Inventory decision.Inventory
	// Settings are the settings of a claim without parameters.
	Settings parameters.Settings
	Pods     Pods
	Claims   Claims
	Cgroups  Cgroups
	Node     Node
	Actuator Actuator
	// Machine reads the facts about interrupts and frequencies.
	Machine  func() quiet.Facts
	Recorder Recorder
	// NoMemoryHigh says why memory.high cannot be written on this node, nil if
	// it can.
	NoMemoryHigh error
	// MemoryCapacity returns the node's memory in bytes as kubelet counts it;
	// nil leaves oom_score_adj to kubelet.
	MemoryCapacity func() (int64, error)
	// Metadata is called for claims that are decided anew while kubelet keeps
	// them prepared; nil if no claim has metadata.
	Metadata Metadata
}

// New returns a Driver. Prepare reads the claim files at each call and writes the
// node state before a claim file, so that kubelet may call a Driver before its first
// Reconcile (I4): a successor registers before it is the active instance.
func New(o Options) *Driver {
	if o.Metadata == nil {
		o.Metadata = func(context.Context, *resourceapi.ResourceClaim, []kubeletplugin.Device) error { return nil }
	}
	return &Driver{o: o}
}

// lockDirectory begins a section that reads and writes the directory. It takes the lock
// first: an instance that waits for its turn must not hold the mutex, which a
// change of the machine needs.
func (d *Driver) lockDirectory() (leave func(), err error) {
	release, err := d.o.Lock.Acquire()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	return func() {
		d.mu.Unlock()
		if err := release(); err != nil {
			d.o.Log.Error("lock not released", zap.Error(err))
		}
	}, nil
}

// SetInventory replaces the inventory after a change of topology.
func (d *Driver) SetInventory(i decision.Inventory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.o.Inventory = i
}

// Reconcile computes the node state from the claim files and writes it if it
// differs: after a start, a change of topology, or a file removed by hand. It
// returns the readable claims. The error says why the node takes no new claims.
func (d *Driver) Reconcile() ([]contract.ClaimRecord, error) {
	leave, err := d.lockDirectory()
	if err != nil {
		return nil, err
	}
	defer leave()
	return d.reconcile()
}

func (d *Driver) reconcile() ([]contract.ClaimRecord, error) {
	claims, err := d.o.Ledger.Load()
	if err != nil {
		return nil, err
	}
	if err := claims.Blocked(); err != nil {
		// Without the unreadable claims the computed pool would be too large,
		// so the node file stays as it is (I1, I4).
		return claims.Prepared, err
	}
	return claims.Prepared, d.writeState(claims.Prepared)
}

// Generation returns the generation of the node file, 0 if the file cannot be read.
func (d *Driver) Generation() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.o.Ledger.Generation()
}

// Prepared returns the readable claims.
func (d *Driver) Prepared() ([]contract.ClaimRecord, error) {
	leave, err := d.lockDirectory()
	if err != nil {
		return nil, err
	}
	defer leave()
	claims, err := d.o.Ledger.Load()
	return claims.Prepared, err
}

func (d *Driver) writeState(claims []contract.ClaimRecord) error {
	state, err := nodestate.Compute(d.o.Inventory.Base, claims)
	if err != nil {
		return err
	}
	if err := d.o.Ledger.WriteNode(state); err != nil {
		return err
	}
	d.count(claims)
	return nil
}

func (d *Driver) count(claims []contract.ClaimRecord) {
	claimed := nodestate.ClaimedCPUs(claims)
	d.o.Recorder.Claims(len(claims), claimed.Size(), d.o.Inventory.Base.CPUs.Difference(claimed).Size())
}
