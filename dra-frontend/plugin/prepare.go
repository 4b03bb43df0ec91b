// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// call is what the claims of one call have in common. Each value from the API
// server is read once, for the first claim that needs it.
type call struct {
	// users reads the pods of each claim, by claim UID.
	users map[types.UID]func() (users, error)
	// wants reads the results of the claims and of their pods' other claims.
	wants func() (wants, error)
	// again is set if prepared claims are decided anew. A claim that is not
	// prepared stays so, because kubelet may have released it.
	again bool
	// allocatable reads the node's allocatable memory in bytes.
	allocatable func() (int64, error)
}

// wants are the results with memory or hugepages and the results with CPUs.
type wants struct {
	asked []claimed
	cpus  []cpuUse
}

// call returns a call that has read nothing. other selects the claims to read
// that the claims' pods use beside them.
func (d *Driver) call(ctx context.Context, claims []*resourceapi.ResourceClaim,
	other func() (func(types.NamespacedName) bool, error)) call {
	read := make(map[types.UID]func() (users, error), len(claims))
	add := func(claim *resourceapi.ResourceClaim) {
		read[claim.UID] = sync.OnceValues(func() (users, error) { return d.users(ctx, claim) })
	}
	for _, claim := range claims {
		add(claim)
	}
	return call{
		users: read,
		wants: sync.OnceValues(func() (wants, error) {
			beside, err := d.beside(ctx, claims, read, other)
			if err != nil {
				return wants{}, err
			}
			for _, claim := range beside {
				add(claim)
			}
			all := slices.Concat(claims, beside)
			return wants{asked: d.asked(all), cpus: d.cpuUses(all, read)}, nil
		}),
		allocatable: sync.OnceValues(func() (int64, error) { return d.node.AllocatableMemory(ctx) }),
	}
}

// needsAllocatable reports whether a value of the claim depends on the node's
// allocatable memory. Only memory.high of a result with unlimited memory does.
func (w wants) needsAllocatable(uid string) bool {
	return slices.ContainsFunc(w.asked, func(a claimed) bool { return a.uid == uid && a.unlimited() && a.throttled })
}

// prepare is the flow of one claim. It returns the answer for kubelet.
func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim, call call) ([]kubeletplugin.Device, error) {
	results, err := ownResults(claim)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	// The API server may be slow, so it is read before the lock is taken.
	users, usersErr := call.users[claim.UID]()
	if usersErr == nil && len(users.pods) == 0 {
		usersErr = users.none()
	}
	wants, err := call.wants()
	if usersErr == nil {
		usersErr = err
	}
	if wants.needsAllocatable(users.uid) {
		users.allocatable, users.allocatableErr = call.allocatable()
	}
	users.asked, users.cpus = wants.asked, wants.cpus

	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	// Kubelet may have given this call up and released the claim meanwhile. A
	// claim file that is written after that is never released (I3).
	if ctx.Err() != nil {
		return nil, fmt.Errorf("claim %s/%s: kubelet has given the call up: %w", claim.Namespace, claim.Name, context.Cause(ctx))
	}
	log := d.log.With(zap.String("claim", claim.Namespace+"/"+claim.Name), zap.String("uid", string(claim.UID)))

	claims, err := d.ledger.Load()
	if err != nil {
		return nil, err
	}
	former, known := claims.Find(string(claim.UID))
	if !known && call.again {
		return nil, nil
	}
	if known {
		stands, err := d.stands(former, claim, results)
		if err != nil {
			log.Info("claim not prepared", zap.Error(err))
			return nil, err
		}
		if stands {
			log.Debug("claim is already prepared")
			return answer(former), nil
		}
		log.Info("claim is decided anew, its former pods have gone", zap.Stringer("cpus", former.CPUs()),
			zap.Strings("zones", zonesOf(former)), zap.Strings("pods", podsOf(former)))
		claims.Prepared = claims.Without(former.UID)
	}
	record, err := d.decide(claim, results, users, usersErr, claims.Prepared, keptCPUs(former, results))
	if err != nil {
		log.Info("claim not prepared", zap.Error(err))
		return nil, err
	}
	// A fault of the claim is reported before a fault of the node: kubelet
	// retries, and a retry does not mend the claim.
	if err := claims.Blocked(); err != nil {
		return nil, err
	}
	if len(users.others) > 0 {
		log.Warn("the claim is reserved for something that is no pod as well: pods that have it by that do not start",
			zap.String("for", users.firstOther()))
	}
	if call.again {
		// The metadata is written before the decision: a container that starts
		// must not read the values of another pod.
		if err := d.metadata(ctx, claim, answer(record)); err != nil {
			log.Error("claim not decided anew", zap.Error(err))
			return nil, err
		}
	}
	if err := d.write(former, record, claims.Prepared); err != nil {
		log.Error("claim not prepared", zap.Error(err))
		return nil, err
	}
	d.count(append(slices.Clone(claims.Prepared), record))
	log.Info("claim prepared", zap.Stringer("cpus", record.CPUs()),
		zap.Strings("zones", zonesOf(record)), zap.Strings("pods", podsOf(record)))
	return answer(record), nil
}

// write writes a decided claim beside the other claims. former is the record
// that it replaces, the zero value for none.
func (d *Driver) write(former, record contract.ClaimRecord, others []contract.ClaimRecord) error {
	if former.UID != "" {
		return d.replace(former, record, others)
	}
	before, err := nodestate.Compute(d.inventory.Base, others)
	if err != nil {
		return err
	}
	state, err := nodestate.Compute(d.inventory.Base, append(slices.Clone(others), record))
	if err != nil {
		return err
	}
	return d.ledger.Add(record, state, before)
}

// ownResults returns this driver's allocation results, in order. A claim
// without an allocation or with admin access is an error.
func ownResults(claim *resourceapi.ResourceClaim) ([]resourceapi.DeviceRequestAllocationResult, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", claim.Namespace, claim.Name)
	}
	var own []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != DriverName {
			continue
		}
		if r.AdminAccess != nil && *r.AdminAccess {
			return nil, fmt.Errorf("request %q asks for admin access, which would pin a container to CPUs that others hold; "+
				"this driver has none to give", r.Request)
		}
		own = append(own, r)
	}
	return own, nil
}

// sameAllocation reports whether the record is of these results.
func sameAllocation(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) bool {
	return slices.EqualFunc(record.Results, results, func(was contract.ResultRecord, is resourceapi.DeviceRequestAllocationResult) bool {
		now := resultRecord(is, was.Decision)
		return was.Request == now.Request && was.Pool == now.Pool && was.Device == now.Device &&
			was.ShareID == now.ShareID && maps.Equal(was.Consumed, now.Consumed)
	})
}

func resultRecord(r resourceapi.DeviceRequestAllocationResult, decision contract.Decision) contract.ResultRecord {
	record := contract.ResultRecord{
		Request: r.Request, Pool: r.Pool, Device: r.Device,
		Consumed: make(map[string]string, len(r.ConsumedCapacity)),
		Decision: decision,
	}
	if r.ShareID != nil {
		record.ShareID = string(*r.ShareID)
	}
	for name, q := range r.ConsumedCapacity {
		record.Consumed[string(name)] = q.String()
	}
	return record
}

// answer returns the devices for kubelet. They depend on the record alone (I8).
func answer(record contract.ClaimRecord) []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, len(record.Results))
	for i, r := range record.Results {
		devices[i] = kubeletplugin.Device{
			Requests:     []string{r.Request},
			PoolName:     r.Pool,
			DeviceName:   r.Device,
			CDIDeviceIDs: []string{contract.Key{ClaimUID: record.UID, Index: i}.CDIDevice()},
			Metadata:     metadata(r),
		}
		if r.ShareID != "" {
			share := types.UID(r.ShareID)
			devices[i].ShareID = &share
		}
	}
	return devices
}

func zonesOf(record contract.ClaimRecord) []string {
	var zones []string
	for _, r := range record.Results {
		zones = append(zones, r.Device)
	}
	return zones
}

func podsOf(record contract.ClaimRecord) []string {
	var pods []string
	for _, p := range record.Pods {
		pods = append(pods, p.UID)
	}
	return pods
}
