// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// AllocatedRequest is an allocated request of a claim.
type AllocatedRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Request   string `json:"request"`
	// Pods are the names of the pods that may use the claim.
	Pods []string `json:"pods"`
	Node string   `json:"node"`
	Zone string   `json:"zone"`
	// Amounts are what the scheduler granted, in CPUs and bytes.
	Amounts map[string]int64 `json:"amounts"`
	// Prepared reports whether the claim's status has the decision.
	Prepared bool             `json:"prepared"`
	Decision claimstatus.Data `json:"decision,omitzero"`
	// CountedByScheduler reports whether the scheduler counts the amounts against the
	// node's allocatable amounts (nodeAllocatable).
	CountedByScheduler bool `json:"countedByScheduler,omitempty"`
	// Isolation is what keeps other programs off the CPUs, empty without CPUs.
	Isolation string `json:"isolation,omitempty"`
	// Weakened are the reasons why the container has less than the claim promises.
	Weakened []string `json:"weakened,omitempty"`
}

// isolationPool is the isolation of CPUs that are only left out of the shared pool.
const isolationPool = "shared pool only"

// AllocatedRequests returns the allocated requests of the claims for zones, by namespace and name.
func AllocatedRequests(o Objects, claims []*resourceapi.ResourceClaim) []AllocatedRequest {
	out := []AllocatedRequest{}
	counted := make(map[device]bool)
	for _, n := range Usage(o) {
		for _, z := range n.Zones {
			counted[device{n.Name, z.Name}] = len(z.Device.NodeAllocatableResources) > 0
		}
	}
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == kubelet.DriverName {
				one := requestOf(c, r)
				one.CountedByScheduler = counted[device{r.Pool, r.Device}]
				out = append(out, one)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b AllocatedRequest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func requestOf(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) AllocatedRequest {
	out := AllocatedRequest{
		Namespace: c.Namespace, Name: c.Name, Request: r.Request, Pods: []string{}, Node: r.Pool, Zone: r.Device,
		Amounts: make(map[string]int64),
	}
	for name, q := range r.ConsumedCapacity {
		if !q.IsZero() {
			out.Amounts[string(name)] = q.Value()
		}
	}
	for _, consumer := range c.Status.ReservedFor {
		if consumer.Resource == "pods" {
			out.Pods = append(out.Pods, consumer.Name)
		}
	}
	status := statusOf(c, r)
	if status == nil {
		return out
	}
	out.Decision = Decided(c, r)
	out.Prepared = meta.FindStatusCondition(status.Conditions, claimstatus.ConditionReady) != nil
	if d := out.Decision; !d.CPUs.IsEmpty() {
		out.Isolation = map[string]string{
			contract.PartitionRoot: parameters.IsolationPartition, contract.PartitionIsolated: parameters.IsolationIsolated,
		}[d.Partition]
		out.Isolation = cmp.Or(out.Isolation, isolationPool)
	}
	for _, condition := range status.Conditions {
		if condition.Status != metav1.ConditionTrue {
			out.Weakened = append(out.Weakened, contract.Excerpt(condition.Reason+": "+condition.Message, maxMessage))
		}
	}
	return out
}

// Bounds, in bytes, of a message and of a name in a claim's status: other clients may
// write there.
const (
	maxMessage = 500
	maxName    = 63
)

// RequestTable writes a line for each request.
func RequestTable(w io.Writer, requests []AllocatedRequest) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "CLAIM\tREQUEST\tNODE\tZONE\tCPU\tCPUS\tISOLATION\tMEMORY\tHUGEPAGES\tPODS")
	for _, c := range requests {
		fmt.Fprintf(t, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Namespace, c.Name, c.Request, c.Node, c.Zone,
			c.amountOf(string(zones.CapacityCPU)), orNone(c.Decision.CPUs.String()), orNone(c.Isolation),
			c.amountOf(string(zones.CapacityMemory)), c.hugepages(), orNone(strings.Join(c.Pods, ",")))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range requests {
		for _, reason := range c.Weakened {
			if _, err := fmt.Fprintf(w, "%s/%s %s: %s\n", c.Namespace, c.Name, c.Request, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c AllocatedRequest) amountOf(name string) string {
	if n, has := c.Amounts[name]; has {
		return amount(name, n)
	}
	return none
}

func (c AllocatedRequest) hugepages() string {
	var parts []string
	for _, name := range slices.SortedFunc(maps.Keys(c.Amounts), byKind) {
		if bytes, is := zones.HugepageSize(resourceapi.QualifiedName(name)); is {
			parts = append(parts, contract.FormatPageSize(bytes)+"="+size.Format(c.Amounts[name]))
		}
	}
	return orNone(strings.Join(parts, ","))
}

// Details writes all that is known about an allocated request, a line for each value.
func (c AllocatedRequest) Details(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintf(t, "claim %s/%s, request %s: zone %s of node %s\n", c.Namespace, c.Name, c.Request, c.Zone, c.Node)
	for _, name := range slices.SortedFunc(maps.Keys(c.Amounts), byKind) {
		fmt.Fprintf(t, "  %s\t%s\n", name, amount(name, c.Amounts[name]))
	}
	d := c.Decision
	if !d.CPUs.IsEmpty() {
		fmt.Fprintf(t, "  cpuset.cpus\t%s\n  isolation\t%s\n", d.CPUs, c.Isolation)
	}
	if !d.Mems.IsEmpty() {
		fmt.Fprintf(t, "  cpuset.mems\t%s\n", d.Mems)
	}
	if m := d.Memory; m != nil {
		fmt.Fprintf(t, "  memory.min\t%s\n  memory.low\t%s\n  memory.high\t%s\n  memory.max\t%s\n",
			size.Limit(m.Min), size.Limit(m.Low), size.Limit(m.High), size.Limit(m.Max))
	}
	for _, page := range slices.Sorted(maps.Keys(d.Hugepages)) {
		fmt.Fprintf(t, "  hugetlb.%s.max\t%s\n", cgroupPageSize(page), size.Limit(d.Hugepages[page]))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Parameters)) {
		fmt.Fprintf(t, "  %s\t%s\n", contract.Excerpt(name, maxName), contract.Excerpt(d.Parameters[name], maxName))
	}
	fmt.Fprintf(t, "  pods\t%s\n", orNone(strings.Join(c.Pods, ", ")))
	if !c.Prepared {
		fmt.Fprintf(t, "  no status\tnot prepared: see the pod's events, or the frontend's log on that node; "+
			"before Kubernetes 1.36 no claim has a status\n")
	}
	for _, reason := range c.Weakened {
		fmt.Fprintf(t, "  weakened\t%s\n", reason)
	}
	return t.Flush()
}

// cgroupPageSize returns the page size as in the name of the cgroup file. Text that is no page size stays: other clients may
// write a claim's status.
func cgroupPageSize(page string) string {
	if _, err := contract.ParsePageSize(page); err != nil {
		return contract.Excerpt(page, maxName)
	}
	return contract.CgroupPageSize(page)
}
