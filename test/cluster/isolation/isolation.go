// SPDX-License-Identifier: Apache-2.0

// Package isolation measures, on a node of a running cluster with the driver on it, what the kinds of exclusive CPUs are
// worth and what they cost: how late a thread wakes up while others burn CPUs (Latencies), and how much longer a pod with a
// claim takes to be ready beside many containers than a pod without one does (Starts).
//
// Command isolation draws its results. The flow: latency.go and start.go are the two runs, node.go reads the node.
package isolation

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// Bench is where the runs take place.
type Bench struct {
	Cluster *cluster.Cluster
	Client  kubernetes.Interface
	Node    string
	NUMA    int // NUMA node of the claims
	CPUs    int // of a claim
	Log     func(format string, args ...any)
}

// Kinds of CPUs a container may have.
const (
	None      = "none"      // no claim: those of everybody
	Pool      = "pool"      // a claim; containers without one are moved away
	Partition = "partition" // a claim that is a cpuset partition
	Isolated  = "isolated"  // one that is out of load balancing as well
)

// Kinds in the order in which they are shown.
func Kinds() []string { return []string{None, Pool, Partition, Isolated} }

// container is one of a kind.
func (b *Bench) container(kind string, args ...string) objects.Container {
	c := objects.Container{Name: "main", Args: args}
	isolation := map[string]string{Pool: "none", Partition: "partition", Isolated: "isolated"}[kind]
	if isolation != "" {
		c.Claim = &objects.Claim{
			NUMA: b.NUMA, Amounts: objects.Amounts{"cpu": *resource.NewQuantity(int64(b.CPUs), resource.DecimalSI)},
			Parameters: `"cpu":{"isolation":"` + isolation + `"}`,
		}
	}
	return c
}

func (b *Bench) objects() objects.Objects { return objects.Objects{Client: b.Client, Node: b.Node} }
