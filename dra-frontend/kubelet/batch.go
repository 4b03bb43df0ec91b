// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// batch has the claims of one call with their pods, and what else the API server
// knows about them. A batch is read before the lock is taken, because the API
// server may be slow.
type batch struct {
	claims      []allocated
	otherClaims []decision.Claim
	// err is why no claim of the call can be decided, nil if claims can be.
	err error
	// allocatableMemory is in bytes, 0 if no claim depends on it.
	allocatableMemory    int64
	allocatableMemoryErr error
	// machine has facts if a claim depends on them.
	machine quiet.Facts
}

// allocated is a claim with this driver's results.
type allocated struct {
	decision.Claim
	object  *resourceapi.ResourceClaim
	results []resourceapi.DeviceRequestAllocationResult
}

// read reads the consumers of the claims, and the other claims of these pods. A call of
// kubelet leaves out only claims that kubelet knows to be prepared. So read skips the other
// claims that are not prepared. all is true for a call that kubelet did not make
// ([Driver.decideAnew]): then read reads every other claim.
func (d *Driver) read(ctx context.Context, claims []allocated, all bool) batch {
	b := batch{claims: claims}
	pods := newPodReader(d.o.Pods)
	for i := range claims {
		pods.readConsumers(ctx, claims[i].object, &claims[i].Claim)
	}
	b.otherClaims, b.err = d.readOtherClaims(ctx, pods, claims, all)
	b.err = decision.Because(decision.ReasonPods, b.err)
	if slices.ContainsFunc(claims, func(a allocated) bool { return a.NeedsAllocatableMemory() }) {
		b.allocatableMemory, b.allocatableMemoryErr = d.o.Node.AllocatableMemory(ctx)
	}
	if slices.ContainsFunc(claims, func(a allocated) bool { return a.NeedsMachine() }) {
		b.machine = d.o.Machine()
	}
	return b
}

// allocation returns the claim with this driver's results, without its pods.
func (d *Driver) allocation(claim *resourceapi.ResourceClaim) (allocated, error) {
	results, err := ownResults(claim)
	return allocated{decision.Read(claim, results, d.o.Settings), claim, results}, err
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
			return nil, fmt.Errorf("request %q asks for admin access, which would pin a container to CPUs that other claims hold; "+
				"this driver has none to give", r.Request)
		}
		own = append(own, r)
	}
	return own, nil
}

// podReader reads each pod of a batch once: the claims of one call mostly have one pod.
type podReader struct {
	pods Pods
	read map[types.NamespacedName]podRead
}

type podRead struct {
	pod decision.Pod
	err error
}

func newPodReader(pods Pods) podReader {
	return podReader{pods: pods, read: make(map[types.NamespacedName]podRead)}
}

func (r podReader) pod(ctx context.Context, name types.NamespacedName) (decision.Pod, error) {
	one, known := r.read[name]
	if !known {
		one.pod, one.err = r.pods.Pod(ctx, name.Namespace, name.Name)
		r.read[name] = one
	}
	return one.pod, one.err
}

// readConsumers reads the consumers of a claim.
func (r podReader) readConsumers(ctx context.Context, object *resourceapi.ResourceClaim, claim *decision.Claim) {
	for _, consumer := range object.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			kind := schema.GroupResource{Group: consumer.APIGroup, Resource: consumer.Resource}
			claim.NotPods = append(claim.NotPods, fmt.Sprintf("%s %s", kind, consumer.Name))
			continue
		}
		pod, err := r.pod(ctx, types.NamespacedName{Namespace: object.Namespace, Name: consumer.Name})
		switch {
		case apierrors.IsNotFound(err):
			// The pod was deleted by force. Its reservation goes later.
		case err != nil:
			claim.PodsErr = fmt.Errorf("read pod %s/%s, which the claim is reserved for: %w", object.Namespace, consumer.Name, err)
			return
		case pod.UID != string(consumer.UID):
			// The reservation is of a former pod. A new pod of the same name
			// has a reservation of its own.
		default:
			claim.Pods = append(claim.Pods, pod)
		}
	}
}

// readOtherClaims returns the other claims of the pods that use the claims of a call,
// because values depend on all claims of a pod. Claims that are gone or not
// allocated are left out.
func (d *Driver) readOtherClaims(ctx context.Context, pods podReader, claims []allocated, all bool) ([]decision.Claim, error) {
	names := otherNames(claims)
	if len(names) > 0 && !all {
		var err error
		if names, err = d.onlyPrepared(names); err != nil {
			return nil, err
		}
	}
	var others []decision.Claim
	for _, name := range names {
		object, err := d.o.Claims.Claim(ctx, name.Namespace, name.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read claim %s, which a pod has as well: %w", name, err)
		}
		// A claim that cannot be prepared has no values.
		if a, err := d.allocation(object); err == nil && len(a.results) > 0 {
			pods.readConsumers(ctx, object, &a.Claim)
			others = append(others, a.Claim)
		}
	}
	return others, nil
}

// otherNames returns the names of the other claims of these claims' pods.
func otherNames(claims []allocated) []types.NamespacedName {
	known := make(map[types.NamespacedName]bool)
	for _, a := range claims {
		known[types.NamespacedName{Namespace: a.Namespace, Name: a.Name}] = true
	}
	var out []types.NamespacedName
	for _, a := range claims {
		for _, p := range a.Pods {
			for _, c := range p.Containers {
				for _, ref := range c.Claims {
					name := types.NamespacedName{Namespace: a.Namespace, Name: ref.Claim}
					if !known[name] {
						known[name] = true
						out = append(out, name)
					}
				}
			}
		}
	}
	return out
}

// onlyPrepared returns the names that are names of prepared claims.
func (d *Driver) onlyPrepared(names []types.NamespacedName) ([]types.NamespacedName, error) {
	records, err := d.Prepared()
	prepared := make(map[types.NamespacedName]bool)
	for _, r := range records {
		prepared[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}] = true
	}
	var out []types.NamespacedName
	for _, name := range names {
		if prepared[name] {
			out = append(out, name)
		}
	}
	return out, err
}

// nodeInput returns the part of a decision's input that this node knows.
func (d *Driver) nodeInput() (decision.Node, error) {
	node := decision.Node{SlicePool: d.o.SlicePool, BootID: d.o.BootID, Inventory: d.o.Inventory, NoMemoryHigh: d.o.NoMemoryHigh}
	var err error
	// I5: no claim is prepared without an actuator that applies its decision.
	if node.Actuator, err = d.o.Actuator.Announcement(); err != nil {
		return node, decision.Because(decision.ReasonActuator, err)
	}
	if d.o.Guard && node.Actuator.Guard != "" {
		node.Guard, node.GuardTimeout = node.Actuator.Guard, int((d.o.GuardWait + contract.GuardMargin).Seconds())
	}
	if d.o.MemoryCapacity == nil || !slices.Contains(node.Actuator.Features, contract.FeatureOOMScore) {
		return node, nil
	}
	node.MemoryCapacity, err = d.o.MemoryCapacity()
	if err == nil && node.MemoryCapacity <= 0 {
		err = fmt.Errorf("it is %d bytes", node.MemoryCapacity)
	}
	if err != nil {
		return node, fmt.Errorf("the OOM score depends on the node's memory: %w", err)
	}
	return node, nil
}
