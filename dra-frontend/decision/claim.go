// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Claim is a claim and its consumers.
type Claim struct {
	Namespace, Name, UID string
	// OwnedByPod reports whether Kubernetes made the claim for one pod, from a
	// template or for an extended resource.
	OwnedByPod bool
	// Results are this driver's allocation results that can be read, in order.
	Results []Result
	// ResultErr is why a result could not be read, nil if all were.
	ResultErr error
	// Pods are the pods that the claim is reserved for.
	Pods []Pod
	// NotPods are the consumers that are not pods, as
	// "podgroups.scheduling.k8s.io name".
	NotPods []string
	// PodsErr is why Pods is not complete, nil if it is.
	PodsErr error
	// FormerCPUs are the CPUs of each result of the former decision on the same
	// allocation, nil for none.
	FormerCPUs []contract.CPUSet
}

// Result is one allocation result with the amounts from the scheduler and the
// settings from the parameters.
type Result struct {
	// ResultRecord has the allocation. It has no decision.
	contract.ResultRecord
	// Index is the number of the result among the claim's results of this
	// driver.
	Index    int
	Amounts  zones.Amounts
	Settings parameters.Settings
	// Memory is the zero value for a result without memory.
	Memory memoryqos.Result
}

// wrap adds the request and the device to an error.
func (r Result) wrap(err error) error {
	return fmt.Errorf("request %q on device %q: %w", r.Request, r.Device, err)
}

// unlimited reports whether the parameters set no memory limit.
func (r Result) unlimited() bool { return r.Memory.Limit == contract.Max }

// NeedsMachine reports whether the check of what the claim asks of the machine needs the
// machine's facts.
func (c Claim) NeedsMachine() bool {
	return slices.ContainsFunc(c.Results, func(r Result) bool { return quiet.NeedsFacts(r.Settings.Quiet.Record()) })
}

// NeedsAllocatableMemory reports whether a value of the claim may depend on the
// node's allocatable memory.
func (c Claim) NeedsAllocatableMemory() bool {
	return slices.ContainsFunc(c.Results, func(r Result) bool { return r.unlimited() && r.Settings.Memory.Factor != nil })
}

// configurations returns the configurations of an allocated claim: those of its classes
// from the allocation, its own from the spec, which cannot change. In the allocation the
// scheduler of Kubernetes 1.37 removes the names of the requests if a configuration is for
// all of them, and parameters for a request must win over parameters for all requests.
func configurations(claim *resourceapi.ResourceClaim) []resourceapi.DeviceAllocationConfiguration {
	all := slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Config), func(c resourceapi.DeviceAllocationConfiguration) bool {
		return c.Source != resourceapi.AllocationConfigSourceClass
	})
	for _, c := range claim.Spec.Devices.Config {
		all = append(all, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration,
		})
	}
	return all
}

// Read reads a claim's allocation and parameters; defaults are the settings of a
// claim without parameters. The claim has no consumers yet. ResultErr is the error of the
// first result that cannot be read.
func Read(claim *resourceapi.ResourceClaim, results []resourceapi.DeviceRequestAllocationResult, defaults parameters.Settings) Claim {
	c := Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID), OwnedByPod: ownedByPod(claim)}
	for i, result := range results {
		r := Result{ResultRecord: allocation(result), Index: i}
		var err error
		if r.Amounts, err = zones.AmountsOf(result, defaults.Memory.PageSize); err == nil {
			r.Settings, err = defaults.Resolve(result.Request, resourceclaim.ConfigForResult(configurations(claim), result))
		}
		if err == nil && r.Amounts.Memory > 0 {
			r.Memory, err = r.Settings.Memory.Result(r.Amounts.Memory)
		}
		if err == nil {
			c.Results = append(c.Results, r)
		} else if c.ResultErr == nil {
			c.ResultErr = r.wrap(err)
		}
	}
	return c
}

// ownedByPod reports whether Kubernetes made the claim for one pod, from a template or for an extended resource. A claim
// that a user made may have a pod as its owner as well, and more pods may name it.
func ownedByPod(claim *resourceapi.ResourceClaim) bool {
	owner, annotations := metav1.GetControllerOf(claim), claim.Annotations
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1" &&
		(annotations[resourceapi.PodResourceClaimAnnotation] != "" || annotations[resourceapi.ExtendedResourceClaimAnnotation] != "")
}

// isOf reports whether the pod has the claim.
func (c Claim) isOf(p Pod) bool {
	return slices.ContainsFunc(c.Pods, func(o Pod) bool { return o.UID == p.UID })
}

// allocation returns the record of an allocation result, without a decision.
func allocation(r resourceapi.DeviceRequestAllocationResult) contract.ResultRecord {
	record := contract.ResultRecord{
		Request: r.Request, Pool: r.Pool, Device: r.Device,
		Consumed: make(map[string]string, len(r.ConsumedCapacity)),
	}
	if r.ShareID != nil {
		record.ShareID = string(*r.ShareID)
	}
	for name, q := range r.ConsumedCapacity {
		record.Consumed[string(name)] = q.String()
	}
	return record
}

// Late returns the pods among the claim's consumers that its record lacks.
func Late(claim *resourceapi.ResourceClaim, record contract.ClaimRecord) []resourceapi.ResourceClaimConsumerReference {
	return slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(c resourceapi.ResourceClaimConsumerReference) bool {
		known := func(p contract.PodRecord) bool { return p.UID == string(c.UID) }
		return c.APIGroup != "" || c.Resource != "pods" || slices.ContainsFunc(record.Pods, known)
	})
}

// SameAllocation reports whether the record is of these results.
func SameAllocation(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) bool {
	return slices.EqualFunc(record.Results, results, func(was contract.ResultRecord, result resourceapi.DeviceRequestAllocationResult) bool {
		is := allocation(result)
		return was.Request == is.Request && was.Pool == is.Pool && was.Device == is.Device &&
			was.ShareID == is.ShareID && maps.Equal(was.Consumed, is.Consumed)
	})
}

func (c Claim) formerCPUs(index int) contract.CPUSet {
	if index < len(c.FormerCPUs) {
		return c.FormerCPUs[index]
	}
	return contract.CPUSet{}
}

// podRecords returns the records of the pods of a claim that is decided now.
func (c Claim) podRecords() []contract.PodRecord {
	var lifting []string
	for _, r := range c.Results {
		if r.liftsQuota() {
			lifting = append(lifting, r.Request)
		}
	}
	return c.PodRecords(lifting)
}

// PodRecords returns the records of the pods. The containers with the lifting requests have no quota: the CPU limit of a pod
// counts if it has such a container.
func (c Claim) PodRecords(lifting []string) []contract.PodRecord {
	records := make([]contract.PodRecord, len(c.Pods))
	for i, p := range c.Pods {
		lifts := slices.ContainsFunc(p.Containers, func(container Container) bool {
			return slices.ContainsFunc(lifting, func(request string) bool { return container.uses(c.Name, request) })
		})
		if records[i] = p.PodRecord; !lifts {
			records[i].CPULimit = nil
		}
	}
	return records
}

// liftsQuota reports whether the containers with the result have no CPU quota.
func (r Result) liftsQuota() bool { return r.Amounts.CPUs > 0 && r.Settings.Quiet.Quota == config.None }

// joinable reports whether more pods may use the claim: it is not from a template,
// and has neither memory nor hugepages.
func (c Claim) joinable() bool {
	return !c.OwnedByPod && !slices.ContainsFunc(c.Results, func(r Result) bool { return r.Amounts.HasMemory() })
}

// noPods returns why there is no pod to decide the claim for, nil if there is
// one.
func (c Claim) noPods() error {
	switch {
	case c.PodsErr != nil:
		return c.PodsErr
	case len(c.Pods) > 0:
		return nil
	case len(c.NotPods) > 0:
		return fmt.Errorf("claim %s/%s is reserved for %s and for no pod: what a container gets depends on its pod, "+
			"and the claim does not name the pods of a group; give the pods claims or a claim template of their own",
			c.Namespace, c.Name, contract.Few(c.NotPods, 1))
	}
	return fmt.Errorf("claim %s/%s is not reserved for any pod that exists", c.Namespace, c.Name)
}

// refuseSharing refuses memory or hugepages that several pods have, or that several containers would use at
// the same time: each would get the whole amount. A pod without a container that uses them counts as well, because the
// cgroup of each pod of the claim gets the claim's protection.
func (c Claim) refuseSharing(request string) error {
	if len(c.Pods) > 1 {
		var names []string
		for _, p := range c.Pods {
			names = append(names, p.Name)
		}
		return fmt.Errorf("memory and hugepages cannot be shared, and the claim is reserved for %d pods (%s): "+
			"give each pod a claim of its own, or wait until the other pods have ended", len(names), contract.Few(names, maxNamed))
	}
	if _, running := containers(c.Pods, c.Name, request); len(running) > 1 {
		return fmt.Errorf("memory and hugepages cannot be shared, and %d containers that run at the same time use it (%s): "+
			"give each container a claim or a request of its own", len(running), contract.Few(running, maxNamed))
	}
	return nil
}

// MaxFollowed bounds the prepared claims of a node that were not made from a template. The frontend watches each such claim,
// and a watch takes 80 KiB of the frontend's memory.
const MaxFollowed = 500

// MaxResults bounds the results of the prepared claims of a node: each takes memory of both daemons.
const MaxResults = 4096

// maxPairs bounds the work of a decision, during which no other claim of the node is prepared or released: each container of
// the claim's pods is compared with each result of the call.
const maxPairs = 1 << 14

// checkPairs refuses a claim if its pods have too many containers for the results of the call.
func (c call) checkPairs(claim Claim) error {
	containers := 0
	for _, p := range claim.Pods {
		containers += len(p.Containers)
	}
	if containers*len(c.results) <= maxPairs {
		return nil
	}
	return fmt.Errorf("its pods have %d containers, and their claims %d devices: the product may be at most %d, "+
		"use fewer containers or fewer devices", containers, len(c.results), maxPairs)
}

// checkResults refuses a claim whose results are too many beside those of prepared. prepared does not have the claim itself.
func (c Claim) checkResults(prepared []contract.ClaimRecord) error {
	have := 0
	for _, p := range prepared {
		have += len(p.Results)
	}
	if have+len(c.Results) <= MaxResults {
		return nil
	}
	return fmt.Errorf("the claims of this node have %d devices, this claim has %d, and a node may have %d: "+
		"ask for more in one request instead of many small ones, or delete pods with claims on this node", have, len(c.Results), MaxResults)
}

// checkFollowed refuses a claim that the frontend would have to watch beside MaxFollowed watched claims. prepared does not
// have the claim itself.
func (c Claim) checkFollowed(prepared []contract.ClaimRecord) error {
	if c.OwnedByPod {
		return nil
	}
	followed := 0
	for _, p := range prepared {
		if !p.OwnedByPod {
			followed++
		}
	}
	if followed < MaxFollowed {
		return nil
	}
	return fmt.Errorf("this node has %d claims that were not made from a template, and may have %d: "+
		"use resourceClaimTemplateName for claims of one pod, or delete pods with such claims on this node", followed, MaxFollowed)
}
