// SPDX-License-Identifier: Apache-2.0

// Package pressure measures what a claim's memory values are worth when memory is short, on a node of a running cluster
// with the driver: pages that stay although a neighbour wants them (Reclaim), and limits that hit only the container
// that goes over them (Limits).
//
// Command pressure draws the results, the end-to-end cases check them. The flow: reclaim.go and limits.go are the two
// runs, pods.go makes their pods, node.go prepares and reads the node, samples.go watches cgroups.
package pressure

import (
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// Bench is where the runs take place.
type Bench struct {
	Cluster *cluster.Cluster
	Client  kubernetes.Interface
	Node    string
	NUMA    int    // NUMA node that is put under pressure
	Class   string // DeviceClass of its memory; empty is the driver's own
	Log     func(format string, args ...any)
}

// Point is a value at a time, in seconds from the run's first sample.
type Point struct{ Seconds, MiB float64 }

// Line is one container's value over time.
type Line struct {
	Name   string
	Points []Point
}

// At returns the line's last value at or before a time, 0 if there is none.
func (l Line) At(seconds float64) float64 {
	value := 0.0
	for _, p := range l.Points {
		if p.Seconds > seconds {
			break
		}
		value = p.MiB
	}
	return value
}

// Mark is a moment of a run with a name.
type Mark struct {
	Name    string
	Seconds float64
}

const mib = 1 << 20

func (b *Bench) logf(format string, args ...any) {
	if b.Log != nil {
		b.Log(format, args...)
	}
}
