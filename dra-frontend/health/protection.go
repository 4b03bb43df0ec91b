// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// Reasons of findings about protection.
const (
	ReasonProtected   = "Protected"
	ReasonUnprotected = "AncestorUnprotected"
	ReasonOverwritten = "Overwritten"
	ReasonNotStarted  = "NotStarted"
	ReasonUnknown     = "CgroupsUnknown"
)

// Protection is the state of the memory protection of one result.
type Protection struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
	// Where is the cgroup file that the finding is about, empty if it is about no
	// single file. Findings with the same status, reason and file are the same
	// finding: the numbers in the message also follow other claims.
	Where string
}

// Cgroups is the input of CheckProtection beside the claims.
type Cgroups struct {
	// Root is the cgroup mount of the host.
	Root fs.FS
	// Kubepods is the directory of the cgroup of all pods, empty if not known.
	Kubepods string
	// Owner of memory protection, as in the configuration; empty if not known.
	Owner string
	// Overwritten has the actuator's announcement of values that another program
	// wrote.
	Overwritten map[string]contract.Files
	// Pending reports whether the actuator has yet to apply the node state.
	Pending bool
	// Before has the findings of the last check. A finding stays while missing
	// values are pending: each new claim raises the values that ancestors need,
	// and lowers the protection of other claims only until they are written.
	Before map[contract.Key]Protection
	// PageSize is the base page size: the kernel counts in pages.
	PageSize int64
}

// CheckProtection compares the memory protection of decisions with the values of
// the pods' cgroups and of their ancestors. The kernel grants a cgroup no more
// protection than each of its ancestors has, so a pod's own memory.min or
// memory.low proves little. There is a finding for each result with protection.
// CheckProtection only reads.
func CheckProtection(n Cgroups, claims []contract.ClaimRecord) (map[contract.Key]Protection, error) {
	if !slices.ContainsFunc(claims, func(c contract.ClaimRecord) bool {
		return slices.ContainsFunc(c.Results, func(r contract.ResultRecord) bool { return len(kinds(r.Decision)) > 0 })
	}) {
		return nil, nil
	}
	// The needed values do not depend on their owner. CPUs do not matter here:
	// Compute gets a CPU that no claim can hold.
	need, err := nodestate.Compute(nodestate.Base{CPUs: contract.CPUs(noCPU), Protect: true}, claims)
	if err != nil {
		return nil, err
	}
	c := check{Cgroups: n, need: need, tree: tree{root: n.Root, seen: make(map[string]reading)}}
	findings := make(map[contract.Key]Protection)
	for _, claim := range claims {
		for i, result := range claim.Results {
			for _, kind := range kinds(result.Decision) {
				for _, pod := range claim.Pods {
					key := contract.Key{ClaimUID: claim.UID, Index: i}
					f := c.pod(pod, kind)
					if known, found := findings[key]; !found || rank(f) < rank(known) {
						findings[key] = f
					}
				}
			}
		}
	}
	for key, f := range findings {
		if before, known := n.Before[key]; known && n.Pending && f.Reason == ReasonNotStarted {
			findings[key] = before
		}
	}
	return findings, nil
}

// notStarted is the message of all findings with ReasonNotStarted. A claim's status keeps the message of the first finding
// while only the message changes, so one message must hold for all of them.
const notStarted = "the protection is not there yet: the pod's first container has not been created, or nri-actuator has not " +
	"applied the claim"

// noCPU is above the CPU ids that the contract's lists may have.
const noCPU = 1 << 20

// kinds returns the cgroup files by which a decision protects memory.
func kinds(d contract.Decision) []string {
	var files []string
	if m := d.Memory; m != nil && m.Min > 0 {
		files = append(files, "memory.min")
	}
	if m := d.Memory; m != nil && m.Low > 0 {
		files = append(files, "memory.low")
	}
	return files
}

// rank orders findings, worst first: a result's finding is its worst pod's.
func rank(f Protection) int {
	return slices.Index([]metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue}, f.Status)
}

type check struct {
	Cgroups
	need contract.NodeState
	tree tree
}

// cgroup is a pod's cgroup or one of its ancestors.
type cgroup struct {
	// name is the cgroup's name in the announcement.
	name, dir string
	need      contract.Files
	// foreign reports whether the cgroup is above kubepods: neither the driver
	// nor kubelet writes there.
	foreign bool
}

// way returns a pod's cgroup and its ancestors, the pod's first. The mount
// itself is left out: the root cgroup limits no protection.
func (c check) way(p contract.PodRecord) []cgroup {
	way := []cgroup{{name: p.UID, dir: PodDir(c.Kubepods, p.QOS, p.UID), need: c.need.Pods[p.UID].Cgroup}}
	if p.QOS != contract.LevelKubepods {
		way = append(way, cgroup{name: p.QOS, dir: LevelDir(c.Kubepods, p.QOS), need: c.need.Ancestors[p.QOS]})
	}
	all := c.need.Ancestors[contract.LevelKubepods]
	way = append(way, cgroup{name: contract.LevelKubepods, dir: c.Kubepods, need: all})
	for dir := path.Dir(c.Kubepods); dir != "."; dir = path.Dir(dir) {
		way = append(way, cgroup{dir: dir, need: all, foreign: true})
	}
	return way
}

// pod returns the finding of one pod for one kind of protection: memory.min or
// memory.low.
func (c check) pod(p contract.PodRecord, kind string) Protection {
	if c.Kubepods == "" {
		return Protection{
			Status: metav1.ConditionUnknown, Reason: ReasonUnknown,
			Message: "nri-actuator has not said yet which cgroup the pods are in",
		}
	}
	way := c.way(p)
	for _, g := range way {
		if value, overwritten := c.Overwritten[g.name][kind]; overwritten && !g.foreign {
			return Protection{metav1.ConditionFalse, ReasonOverwritten,
				fmt.Sprintf("another program wrote %.30q to %s of the cgroup %s, and nri-actuator put it right: %s",
					value, kind, g.dir, WhoWrites),
				path.Join(g.dir, kind)}
		}
	}
	// From the top down: a pod that has not started lacks only its own value.
	for i, g := range slices.Backward(way) {
		if f := c.look(g, kind, i == 0); f.Status != metav1.ConditionTrue {
			return f
		}
	}
	return Protection{
		Status: metav1.ConditionTrue, Reason: ReasonProtected,
		Message: "the cgroups of the pod and above it have the protection that the claims below them need",
	}
}

// WhoWrites is the advice about a second writer.
const WhoWrites = "find the program that writes there and stop it; " +
	"kubelet writes there every minute while its feature gate MemoryQoS is on (featureGates: {MemoryQoS: false} turns it off), " +
	"and kubelet 1.37 or later with the gate off writes there once at each start: this write needs no action"

// look returns the finding of one cgroup; own is true for the pod's cgroup.
func (c check) look(g cgroup, kind string, own bool) Protection {
	need, _ := strconv.ParseInt(g.need[kind], 10, 64) // an absent value is 0
	need -= need % c.PageSize                         // the kernel counts pages
	has, err := c.tree.read(g.dir, kind)
	f := Protection{Where: path.Join(g.dir, kind)}
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil && has >= need:
		f.Status = metav1.ConditionTrue
	case own && (absent || err == nil && c.Owner == config.OwnerDriver):
		f = Protection{Status: metav1.ConditionUnknown, Reason: ReasonNotStarted, Message: notStarted}
	case err != nil:
		f.Status, f.Reason = metav1.ConditionUnknown, ReasonUnknown
		f.Message = fmt.Sprintf("the cgroup %s cannot be read, sysfsRoot must show the host's sysfs: %v", g.dir, err)
	case c.Owner == config.OwnerDriver && !g.foreign && c.Pending:
		f = Protection{Status: metav1.ConditionUnknown, Reason: ReasonNotStarted, Message: notStarted}
	default:
		f.Status, f.Reason = metav1.ConditionFalse, ReasonUnprotected
		f.Message = fmt.Sprintf("%s of the cgroup %s is %d, which bounds the protection of all below it, and the claims need %d",
			kind, g.dir, has, need)
		if advice := c.advice(g); advice != "" {
			f.Message += ": " + advice
		}
	}
	return f
}

func (c check) advice(g cgroup) string {
	switch {
	case g.foreign:
		return "neither nri-actuator nor kubelet writes there (kubelet's cgroupRoot and above): " +
			"the program that made this cgroup has to raise it or set it to max, with systemctl set-property if it is a slice"
	case c.Owner == config.OwnerDriver:
		return "look at the log of nri-actuator on this node"
	case c.Owner == config.OwnerKubelet:
		return "kubelet protects only memory that it knows as requested: set kubelet's memoryReservationPolicy to " +
			"TieredReservation, and give the pod memory requests, or have claims counted as requests (nodeAllocatable)"
	case c.Owner != "":
		return "no program writes it with memoryQoS.owner " + strconv.Quote(c.Owner)
	}
	return ""
}
