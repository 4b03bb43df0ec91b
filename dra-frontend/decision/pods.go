// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"slices"
	"strings"

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
	// BesideMain reports whether the container runs at the same time as the main
	// containers. Main containers and sidecars do, other init containers do
	// not.
	BesideMain bool
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

// containers counts the containers that use the request of the claim, and names
// the containers that run at the same time.
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
			if c.BesideMain || sidecar || len(pods) > 1 {
				running = append(running, p.Name+"/"+c.Name)
			}
			sidecar = sidecar || c.BesideMain
		}
	}
	return used, running
}

// cpuLimit returns the lowest CPU limit, in thousandths, of the containers that use the
// request, and of their pods; 0 for none.
func (c Claim) cpuLimit(request string) int64 {
	var limits []int64
	for _, p := range c.Pods {
		for _, container := range p.Containers {
			if !container.uses(c.Name, request) {
				continue
			}
			limits = append(limits, container.Resources.CPU.Limit)
			if p.Resources != nil {
				limits = append(limits, p.Resources.CPU.Limit)
			}
		}
	}
	limits = slices.DeleteFunc(limits, func(limit int64) bool { return limit <= 0 })
	if len(limits) == 0 {
		return 0
	}
	return slices.Min(limits)
}

// maxNamed is how many containers a message names.
const maxNamed = 6
