// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// Pod is the part of a pod that a claim's values depend on.
type Pod struct {
	Name string
	contract.PodRecord
	// RuntimeClass is the name of the pod's runtime class, empty for none.
	RuntimeClass string
	// UserNamespace reports whether the pod has a user namespace of its own.
	UserNamespace bool
	// MemoryLimit is the memory limit of the whole pod in bytes, 0 for none.
	MemoryLimit int64
	// Resources are the requests and limits of the whole pod, nil for none.
	Resources *oomscore.Resources
	// Containers are in the pod's order, init containers first.
	Containers []Container
}

// Container is one container of a pod.
type Container struct {
	Name string
	// Runs reports whether the container runs at the same time as the main
	// containers. Main containers and sidecars do, other init containers do
	// not.
	Runs bool
	// Init reports whether it is an init container, as sidecars are.
	Init bool
	// MemoryLimit is the memory limit of the container's spec in bytes, 0 for
	// none.
	MemoryLimit int64
	// Resources are the requests and limits of the container's spec.
	Resources oomscore.Resources
	// Hugepages are the limits of the container's spec in bytes, by page size.
	Hugepages map[string]int64
	// MountPaths are the paths of its volume mounts.
	MountPaths []string
	// Claims are the claims that the container uses.
	Claims []ClaimReference
}

// ClaimReference is a container's use of a claim, by object name and request
// name. An empty request name stands for all requests of the claim.
type ClaimReference struct {
	Claim   string
	Request string
}

// uses reports whether the container uses the request of the claim. The result
// of a prioritised list is named "request/subrequest"; a container names the
// request.
func (c Container) uses(claim, request string) bool {
	base, _, _ := strings.Cut(request, "/")
	for _, ref := range c.Claims {
		if ref.Claim == claim && (ref.Request == "" || ref.Request == base) {
			return true
		}
	}
	return false
}

// users are the consumers of a claim, and all other input for the values of
// their containers.
type users struct {
	namespace, claim, uid string
	pods                  []Pod
	// others are consumers that are not pods, as "podgroups.scheduling.k8s.io
	// name".
	others []string
	// asked are the results with memory or hugepages of all claims of the call.
	asked []claimed
	// cpus are the results with CPUs of all claims of the call.
	cpus []cpuUse
	// allocatable is the node's allocatable memory in bytes, read for claims
	// that need it.
	allocatable    int64
	allocatableErr error
}

func (d *Driver) users(ctx context.Context, claim *resourceapi.ResourceClaim) (users, error) {
	u := users{namespace: claim.Namespace, claim: claim.Name, uid: string(claim.UID)}
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			kind := schema.GroupResource{Group: consumer.APIGroup, Resource: consumer.Resource}
			u.others = append(u.others, fmt.Sprintf("%s %s", kind, consumer.Name))
			continue
		}
		pod, err := d.pods.Pod(ctx, claim.Namespace, consumer.Name)
		if apierrors.IsNotFound(err) {
			// The pod was deleted by force. Its reservation goes later.
			continue
		}
		if err != nil {
			return u, fmt.Errorf("read pod %s/%s, which the claim is reserved for: %w", claim.Namespace, consumer.Name, err)
		}
		if pod.UID != string(consumer.UID) {
			// The reservation is of a former pod. A new pod of the same name
			// has a reservation of its own.
			continue
		}
		u.pods = append(u.pods, pod)
	}
	return u, nil
}

// none returns why there is no pod to prepare the claim for.
func (u users) none() error {
	if len(u.others) > 0 {
		return fmt.Errorf("claim %s/%s is reserved for %s and for no pod: what a container gets depends on its pod, "+
			"and the claim does not name the pods of a group; give the pods claims or a claim template of their own",
			u.namespace, u.claim, u.firstOther())
	}
	return fmt.Errorf("claim %s/%s is not reserved for any pod that exists", u.namespace, u.claim)
}

// firstOther names one consumer that is not a pod, and counts the rest.
func (u users) firstOther() string {
	if more := len(u.others) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", u.others[0], more)
	}
	return u.others[0]
}

func (u users) records() []contract.PodRecord {
	records := make([]contract.PodRecord, len(u.pods))
	for i, p := range u.pods {
		records[i] = p.PodRecord
	}
	return records
}

// exclusive refuses memory or hugepages that several containers would use at
// the same time: each container would get the whole amount.
func (u users) exclusive(request string) error {
	if _, running := containers(u.pods, u.claim, request); len(running) > 1 {
		return fmt.Errorf("memory and hugepages cannot be shared, and %d containers that run at the same time use it (%s): "+
			"give each container a claim or a request of its own", len(running), few(running))
	}
	return nil
}

// few names some of the names and counts the rest: a message must not grow with
// a pod's spec.
func few(names []string) string {
	const most = 6
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// containers counts the containers that use the request of the claim, and names
// those that run at the same time.
func containers(pods []Pod, claim, request string) (used int, running []string) {
	for _, p := range pods {
		sidecar := false
		for _, c := range p.Containers {
			if !c.uses(claim, request) {
				continue
			}
			used++
			// An init container runs beside a sidecar that comes before it, and
			// may run beside any container of another pod.
			if c.Runs || sidecar || len(pods) > 1 {
				running = append(running, p.Name+"/"+c.Name)
			}
			sidecar = sidecar || c.Runs
		}
	}
	return used, running
}
