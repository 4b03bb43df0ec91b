// SPDX-License-Identifier: Apache-2.0

// Package simulation answers where claims would land on a machine. It runs the
// whole flow in one process and changes nothing: packages zones and
// resourceslices divide and publish the machine as in the daemon, the real structured allocator stands
// for the scheduler, and the frontend's own driver prepares the allocated claims,
// with a ledger in memory. So what is refused here is refused in the cluster,
// with the same message.
//
// Pods are taken one after the other, in the file's order: each is scheduled
// and its claims are prepared before the next pod is looked at. A pod that does
// not get its claims stays where it got stuck, as in a cluster.
//
// The same input gives the same result (I8).
package simulation

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// nodeName is the name of the simulated node, and of its pool.
const nodeName = "simulated"

// Run simulates the pods on the machine, beside the devices of other drivers. The error is
// about the input: a claim that does not fit is a result.
func Run(ctx context.Context, m topology.Machine, c config.Config, o Objects, others OtherDrivers) (Result, error) {
	offered, err := c.Divide(m)
	if err != nil {
		return Result{}, err
	}
	s := simulation{
		objects:   o.Clone(),
		offered:   offered,
		devices:   resourceslices.OptionsOf(c, m.PageSize, nil),
		scheduler: newScheduler(o.classes, others),
		ledger:    ledger.New(newDirectory(), bootID),
		outcomes:  make(map[types.UID]outcome, len(o.claims)),
	}
	s.driver = kubelet.New(kubelet.Options{
		Log: zap.NewNop(), Lock: lock{}, Ledger: s.ledger, SlicePool: nodeName, BootID: bootID, Guard: c.Guard, GuardWait: c.GuardWait.Duration,
		Inventory: decision.InventoryOf(c, offered, bootID), Settings: parameters.Defaults(c, m.PageSize),
		Pods: podLister(o.pods), Claims: s.objects, Cgroups: cgroups{}, Node: node{m}, Actuator: actuator{}, Recorder: discard{},
		Machine: func() quiet.Facts { return quiet.Facts{Unknown: true} },
	})
	for _, pod := range o.pods {
		if err := s.publish(); err != nil {
			return Result{}, err
		}
		if err := s.start(ctx, pod); err != nil {
			return Result{}, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if err := s.publish(); err != nil {
		return Result{}, err
	}
	return s.result(c)
}

type simulation struct {
	objects   Objects
	offered   zones.Division
	devices   resourceslices.Options
	scheduler *scheduler
	driver    *kubelet.Driver
	ledger    *ledger.Ledger
	outcomes  map[types.UID]outcome
}

// publish publishes the zones, as the daemon does when the directory has
// changed.
func (s *simulation) publish() error {
	claims, err := s.driver.Reconcile()
	if err != nil {
		return err
	}
	s.scheduler.publish(resourceslices.Devices(s.offered.Offer(claims), s.devices))
	return nil
}

// outcome is what happened to a claim; the zero value is for a claim without
// pods.
type outcome struct {
	state  State
	reason string
	pods   []string
}

// start takes one pod through the scheduler and kubelet.
func (s *simulation) start(ctx context.Context, pod *corev1.Pod) error {
	claims := s.objects.ClaimsOf(pod)
	if reason, err := s.scheduler.schedule(ctx, claims); err != nil {
		return err
	} else if reason != "" {
		for _, c := range claims {
			if c.Status.Allocation == nil {
				s.outcomes[c.UID] = outcome{state: Unschedulable, reason: reason, pods: append(s.outcomes[c.UID].pods, pod.Name)}
			}
		}
		return nil
	}
	var fresh []*resourceapi.ResourceClaim
	for _, c := range claims {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
		if s.outcomes[c.UID].state != Allocated {
			fresh = append(fresh, c)
		}
	}
	// Like kubelet: one call for all claims that are not prepared.
	prepared, err := s.driver.PrepareResourceClaims(ctx, fresh)
	if err != nil {
		return err
	}
	for _, c := range claims {
		before := s.outcomes[c.UID]
		now, err := s.prepared(ctx, c, pod, prepared)
		if err != nil {
			return err
		}
		now.pods = append(before.pods, pod.Name)
		if before.state == Allocated && now.state == Refused {
			// The pods that have the claim keep it.
			now.state, now.reason = Allocated, fmt.Sprintf("pod %s: %s", pod.Name, now.reason)
		}
		s.outcomes[c.UID] = now
	}
	return nil
}

// prepared returns the outcome of a claim for a pod. Kubelet has a claim
// prepared once; later pods join the claim through the driver itself.
func (s *simulation) prepared(
	ctx context.Context, c *resourceapi.ResourceClaim, pod *corev1.Pod, results map[types.UID]kubeletplugin.PrepareResult,
) (outcome, error) {
	if s.outcomes[c.UID].state == Allocated {
		if err := s.driver.Join(ctx, c); err != nil {
			return outcome{}, err
		}
		record, found, err := s.record(c)
		if err != nil {
			return outcome{}, err
		}
		if found && !slices.ContainsFunc(record.Pods, func(p contract.PodRecord) bool { return p.UID == string(pod.UID) }) {
			return outcome{
				state:  Refused,
				reason: "the claim is prepared for other pods, and memory, hugepages and cpuset partitions cannot be shared",
			}, nil
		}
		return outcome{state: Allocated, reason: s.outcomes[c.UID].reason}, nil
	}
	if err := results[c.UID].Err; err != nil {
		return outcome{state: Refused, reason: err.Error()}, nil
	}
	return outcome{state: Allocated}, nil
}

// record returns the record of a prepared claim.
func (s *simulation) record(c *resourceapi.ResourceClaim) (contract.ClaimRecord, bool, error) {
	claims, err := s.ledger.Load()
	if err != nil {
		return contract.ClaimRecord{}, false, err
	}
	record, found := claims.Find(string(c.UID))
	return record, found, nil
}
