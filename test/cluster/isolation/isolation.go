// SPDX-License-Identifier: Apache-2.0

// Package isolation measures kinds of exclusive CPUs on a node of a running cluster. Latencies shows what they are worth: how
// late a thread wakes up while other threads burn CPUs. Starts shows what they cost: how long pods with and without them take
// to start beside more and more containers.
//
// Commands isolation and peers write and draw the results. The flow: latency.go and start.go are the two runs, node.go reads the node.
package isolation

import (
	corev1 "k8s.io/api/core/v1"
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
	Kernel  string // the node's, as in the cluster's options
	NUMA    int    // NUMA node of the claims
	CPUs    int    // of a claim
	PeerPod []byte // YAML of the peer's pod and claims
	Log     func(format string, args ...any)

	// free is what cpus returned before the first pod with a claim.
	free string
}

// Kinds of CPUs a container may have.
const (
	None      = "none"      // no claim: the shared pool's CPUs
	Pool      = "pool"      // a claim; the shared pool leaves its CPUs out
	Partition = "partition" // a claim that is a cpuset partition
	Isolated  = "isolated"  // an isolated partition: also without load balancing
	// Quiet is a partition, where the kernel makes them, without interrupts of devices, unbound work queues, a CPU limit and
	// sleep states.
	Quiet = "quiet"
	// Static is no claim: kubelet's static policy gives CPUs to a pod of the class Guaranteed.
	Static = "static"
	// Peer is another driver's claim.
	Peer = "peer"
	// Device is a claim of the second driver, of a PCI device: the container gets a variable of its environment, and the
	// shared pool's CPUs. It costs what Kubernetes takes for any claim.
	Device = "device"
)

// Kinds returns the kinds that a kernel has, in the order in which they are shown.
func Kinds(kernel string) []string {
	switch kernel {
	case cluster.KernelStable:
		return []string{None, Pool, Quiet}
	case cluster.KernelBackports:
		return []string{None, Pool, Partition, Quiet}
	}
	return []string{None, Pool, Partition, Isolated, Quiet}
}

// alone reports whether the kernel keeps all other programs off the CPUs of a container of the kind.
func alone(kind, kernel string) bool {
	return kind == Partition || kind == Isolated || kind == Quiet && kernel != cluster.KernelStable
}

// parameters returns the claim's parameters of a kind, "" for one without a claim.
func parameters(kind, kernel string) string {
	quiet := "none"
	if alone(Quiet, kernel) {
		quiet = "partition"
	}
	return map[string]string{
		Pool: `"cpu":{"isolation":"none"}`, Partition: `"cpu":{"isolation":"partition"}`, Isolated: `"cpu":{"isolation":"isolated"}`,
		Quiet: `"cpu":{"isolation":"` + quiet + `","interrupts":"none","housekeeping":"none","quota":"none","wakeupLatency":0}`,
	}[kind]
}

// container returns a container with the CPUs of a kind.
func (b *Bench) container(kind string, args ...string) objects.Container {
	c := objects.Container{Name: "main", Args: args}
	if kind == Static {
		c.Limits = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(int64(b.CPUs), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
	}
	if kind == Device {
		c.Claim = &objects.Claim{NUMA: b.NUMA, Class: "nic.example.com"}
	}
	if p := parameters(kind, b.Kernel); p != "" {
		c.Claim = &objects.Claim{
			NUMA: b.NUMA, Amounts: objects.Amounts{"cpu": *resource.NewQuantity(int64(b.CPUs), resource.DecimalSI)},
			Parameters: p,
		}
	}
	return c
}

func (b *Bench) objects() objects.Objects { return objects.Objects{Client: b.Client, Node: b.Node} }
