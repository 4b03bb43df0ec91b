// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// Server is what the checks of a cluster look at.
type Server struct {
	// Version is the API server's, such as v1.36.1.
	Version string
	// WithoutAPI reports whether the API server does not serve resource.k8s.io/v1.
	WithoutAPI bool
	Objects    cluster.Objects
}

// Cluster checks a cluster.
func Cluster(s Server) []Check {
	kubernetes := s.version()
	if kubernetes.State == Fault {
		return []Check{kubernetes} // the API server has no objects to check
	}
	checks := []Check{kubernetes, s.class()}
	usage := cluster.Usage(s.Objects)
	if len(usage) == 0 {
		c := Check{Name: "zones", State: Unknown, Found: "no node publishes zones: the driver is not installed"}
		if s.hasClass() {
			c.State, c.Found, c.Mend = Fault, "no node publishes zones", "look at the frontends' pods and logs"
		}
		return append(checks, c)
	}
	checks = append(checks, gateOf(usage), s.nodes(usage))
	checks = append(checks, taints(usage)...)
	return append(checks, s.claims()...)
}

// consumableCapacity is the first release with DRAConsumableCapacity, and byDefault the
// first with the gate on by default, and with a status of claims that drivers may write.
var (
	consumableCapacity = version.MustParseGeneric("1.34")
	byDefault          = version.MustParseGeneric("1.36")
)

const gate = "DRAConsumableCapacity"

func (s Server) version() Check {
	c := Check{Name: "Kubernetes", Found: s.Version}
	_, err := version.ParseGeneric(s.Version)
	switch {
	case s.TooOld():
		c.State, c.Mend = Fault, "Kubernetes 1.34 or later"
	case s.WithoutAPI:
		c.State, c.Found = Fault, c.Found+", without resource.k8s.io/v1"
		c.Mend = "switch resource.k8s.io/v1 on with the API server's --runtime-config"
	case err != nil:
		c.State = Unknown
	case s.before(byDefault):
		c.State, c.Mend = Warning, "the feature gate "+gate+" is off by default here: switch it on for API server, scheduler, "+
			"controller manager and kubelet"
	default:
		c.State = OK
	}
	return c
}

// TooOld reports whether the API server is older than the API that the driver needs. A
// version in an unknown form is not too old.
func (s Server) TooOld() bool { return s.before(consumableCapacity) }

func (s Server) before(release *version.Version) bool {
	v, err := version.ParseGeneric(s.Version)
	return err == nil && v.LessThan(release)
}

func (s Server) class() Check {
	c := Check{Name: "DeviceClass", State: OK, Found: kubelet.DriverName}
	if !s.hasClass() {
		c.State, c.Found = Warning, "there is no DeviceClass "+kubelet.DriverName
		c.Mend = "deviceClass.create: true in the chart's values, or a class of your own"
	}
	return c
}

func (s Server) hasClass() bool {
	return slices.ContainsFunc(s.Objects.Classes, func(class *resourceapi.DeviceClass) bool { return class.Name == kubelet.DriverName })
}

// gateOf checks that the API server keeps the fields of consumable capacity: without the
// feature gate it drops them.
func gateOf(usage []cluster.Node) Check {
	c := Check{Name: "feature gate " + gate + " of the API server", State: Unknown, Found: "no zone shows it"}
	for _, n := range usage {
		for _, z := range n.Zones {
			if c.State == Unknown {
				c.State, c.Found = OK, "on"
			}
			if z.Device.AllowMultipleAllocations == nil || !*z.Device.AllowMultipleAllocations {
				c.State, c.Found = Fault, "off: the zones were published without it"
				c.Mend = "switch it on for API server, scheduler, controller manager and kubelet, and restart the frontends"
			}
		}
	}
	return c
}

// maxNamed is how many names a check lists.
const maxNamed = 5

// nodes checks that each ready node publishes zones.
func (s Server) nodes(usage []cluster.Node) Check {
	zones := 0
	var broken, without []string
	for _, n := range usage {
		zones += len(n.Zones)
		if n.Problem != "" {
			broken = append(broken, n.Name+" ("+n.Problem+")")
		}
	}
	for _, n := range s.Objects.Nodes {
		if ready(n) && !slices.ContainsFunc(usage, func(u cluster.Node) bool { return u.Name == n.Name }) {
			without = append(without, n.Name)
		}
	}
	c := Check{Name: "zones", State: OK, Found: fmt.Sprintf("%d zones of %d nodes", zones, len(usage))}
	switch {
	case len(broken) > 0:
		c.State, c.Found = Fault, "claims cannot go to "+contract.Few(broken, maxNamed)
		c.Mend = "look at the log of the frontend on these nodes"
	case len(without) > 0:
		c.State, c.Found = Warning, c.Found+", none of "+contract.Few(without, maxNamed)
		c.Mend = "if these nodes shall take claims: look for the frontend's pod there"
	}
	return c
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// taints lists the taints that keep claims off zones: those of frontends and of
// DeviceTaintRules.
func taints(usage []cluster.Node) (checks []Check) {
	nodes := make(map[string][]string)
	var order []string
	for _, n := range usage {
		for _, z := range n.Zones {
			for _, t := range z.Device.Taints {
				if t.Effect == resourceapi.DeviceTaintEffectNone {
					continue // only informs
				}
				taint := cluster.Taint(t)
				if nodes[taint] == nil {
					order = append(order, taint)
				}
				if !slices.Contains(nodes[taint], n.Name) {
					nodes[taint] = append(nodes[taint], n.Name)
				}
			}
		}
	}
	for _, taint := range order {
		checks = append(checks, Check{
			Name: "taints of zones", State: Fault, Found: taint + " on " + contract.Few(nodes[taint], maxNamed),
			Mend: "a taint dra.cpumem/...: kubectl describe node has the reason in an event, docs/how-to/operations.md has what to do; " +
				"any other taint: kubectl get devicetaintrules",
		})
	}
	return checks
}

// claims lists the allocated claims that have less than they promise.
func (s Server) claims() (checks []Check) {
	claims := make(map[string]bool)
	seen := false
	for _, c := range cluster.AllocatedRequests(s.Objects, s.Objects.Claims) {
		claims[c.Namespace+"/"+c.Name] = true
		seen = seen || c.Prepared
		for _, reason := range c.Weakened {
			checks = append(checks, Check{
				Name: "claim " + c.Namespace + "/" + c.Name, State: Warning, Found: reason,
				Mend: "cpumem why claim/" + c.Name + " -n " + c.Namespace,
			})
		}
	}
	if len(checks) > 0 {
		return checks
	}
	c := Check{Name: "claims", State: OK, Found: fmt.Sprintf("%d allocated", len(claims))}
	if len(claims) > 0 && !seen && s.before(byDefault) {
		c.State, c.Found = Unknown, c.Found+": the status of claims is written from Kubernetes 1.36 on"
	}
	return []Check{c}
}
