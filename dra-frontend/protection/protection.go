// SPDX-License-Identifier: Apache-2.0

// Package protection compares the memory protection that claims were given with
// what their pods' cgroups and the ancestors of these have. The kernel grants a
// cgroup no more protection than each of its ancestors has, whoever owns their
// values: so a claim's own memory.min or memory.low says little. It stands
// beside the path of a claim: the daemon calls it, and package claimstatus
// shows the result. It only reads.
package protection

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// Reasons of findings.
const (
	ReasonProtected   = "Protected"
	ReasonUnprotected = "AncestorUnprotected"
	ReasonOverwritten = "Overwritten"
	ReasonNotStarted  = "NotStarted"
	ReasonUnknown     = "CgroupsUnknown"
)

// Finding is what is said of one result of a claim.
type Finding struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
	// Where is the cgroup file that the finding is about: findings with the
	// same status, reason and place are the same one, though its numbers follow
	// other claims as they come and go.
	Where string
}

// Node is what is looked at.
type Node struct {
	// Cgroups is the cgroup mount of the host.
	Cgroups fs.FS
	// Kubepods is the cgroup of all pods in it, empty for not known.
	Kubepods string
	// Owner of memory protection, as in the configuration.
	Owner string
	// Overwritten is what the actuator says was written over its values.
	Overwritten map[string]contract.Files
	// Pending tells whether the actuator has yet to apply the claims' state. It
	// is asked only when that matters.
	Pending func() bool
	// PageSize is the base page size: the kernel counts in pages.
	PageSize int64
}

// Check returns the findings about all results that were given protection.
func Check(n Node, claims []contract.ClaimRecord) (map[contract.Key]Finding, error) {
	if !slices.ContainsFunc(claims, func(c contract.ClaimRecord) bool {
		return slices.ContainsFunc(c.Results, func(r contract.ResultRecord) bool { return len(kinds(r.Decision)) > 0 })
	}) {
		return nil, nil
	}
	// What is needed is the same whoever owns the values. Of the CPUs nothing
	// is asked: one that no claim can hold keeps them from mattering.
	need, err := nodestate.Compute(nodestate.Base{CPUs: cpuset.New(noCPU), Protect: true}, claims)
	if err != nil {
		return nil, err
	}
	c := check{Node: n, need: need, tree: tree{root: n.Cgroups, seen: make(map[string]reading)}}
	findings := make(map[contract.Key]Finding)
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
	return findings, nil
}

// noCPU is above the ids that lists of the contract may have.
const noCPU = 1 << 20

// kinds returns the files by which a decision protects.
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

// rank orders findings: a claim is as well protected as the worst of its pods.
func rank(f Finding) int {
	return slices.Index([]metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue}, f.Status)
}

type check struct {
	Node
	need contract.NodeState
	tree tree
}

// cgroup is one on the way from a pod to kubepods.
type cgroup struct {
	// name is the cgroup's in the announcement.
	name, dir string
	need      contract.Files
}

// way returns the cgroups of a pod, the pod's own first.
func (c check) way(p contract.PodRecord) []cgroup {
	way := []cgroup{{p.UID, PodDir(c.Kubepods, p.QOS, p.UID), c.need.Pods[p.UID].Cgroup}}
	if p.QOS != contract.LevelKubepods {
		way = append(way, cgroup{p.QOS, LevelDir(c.Kubepods, p.QOS), c.need.Ancestors[p.QOS]})
	}
	return append(way, cgroup{contract.LevelKubepods, c.Kubepods, c.need.Ancestors[contract.LevelKubepods]})
}

// pod looks at the way of one pod for one kind of protection.
func (c check) pod(p contract.PodRecord, kind string) Finding {
	if c.Kubepods == "" {
		return Finding{Status: metav1.ConditionUnknown, Reason: ReasonUnknown, Message: "nri-actuator has not said yet which cgroup the pods are in"}
	}
	way := c.way(p)
	for _, g := range way {
		if value, overwritten := c.Overwritten[g.name][kind]; overwritten {
			return Finding{metav1.ConditionFalse, ReasonOverwritten, fmt.Sprintf("another program wrote %.30q to %s of the cgroup %s, and nri-actuator put it right: %s",
				value, kind, g.dir, WhoWrites), path.Join(g.dir, kind)}
		}
	}
	// From above: a pod that has not started is short of its own value only.
	for i, g := range slices.Backward(way) {
		if f := c.look(g, kind, i == 0); f.Status != metav1.ConditionTrue {
			return f
		}
	}
	return Finding{Status: metav1.ConditionTrue, Reason: ReasonProtected, Message: "the cgroups of the pod and above it have the protection that the claims below them need"}
}

// WhoWrites is what to do about a second writer.
const WhoWrites = "find what writes there and stop it; kubelet does with its feature gate MemoryQoS (featureGates: {MemoryQoS: false})"

// look looks at one cgroup; own is that of the pod itself.
func (c check) look(g cgroup, kind string, own bool) Finding {
	need, _ := strconv.ParseInt(g.need[kind], 10, 64) // absent is none
	need -= need % c.PageSize                         // as the kernel does
	has, err := c.tree.read(g.dir, kind)
	f := Finding{Where: path.Join(g.dir, kind)}
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil && has >= need:
		f.Status = metav1.ConditionTrue
	case own && (absent || err == nil && c.Owner == config.OwnerDriver):
		f.Status, f.Reason = metav1.ConditionUnknown, ReasonNotStarted
		f.Message = "the pod's cgroup gets its protection when the first container is created"
	case err != nil:
		f.Status, f.Reason = metav1.ConditionUnknown, ReasonUnknown
		f.Message = fmt.Sprintf("the cgroup %s cannot be read, sysfsRoot must show the host's: %v", g.dir, err)
	case c.Owner == config.OwnerDriver && c.Pending():
		f.Status, f.Reason, f.Message = metav1.ConditionUnknown, ReasonNotStarted, "nri-actuator has not applied the claim yet"
	default:
		f.Status, f.Reason = metav1.ConditionFalse, ReasonUnprotected
		f.Message = fmt.Sprintf("%s of the cgroup %s is %d, which bounds the protection of all below it, and the claims need %d: %s", kind, g.dir, has, need, c.advice())
	}
	return f
}

func (c check) advice() string {
	switch c.Owner {
	case config.OwnerDriver:
		return "look at the log of nri-actuator on this node"
	case config.OwnerKubelet:
		return "kubelet protects what it knows of, so set its memoryReservationPolicy to TieredReservation, and give the pod memory requests or have claims counted among them (nodeAllocatable)"
	default:
		return "nobody writes it with memoryQoS.owner " + strconv.Quote(c.Owner)
	}
}
