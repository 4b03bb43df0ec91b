// SPDX-License-Identifier: Apache-2.0

package oomscore_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

const gi = 1 << 30

// of returns requests and limits: thousandths of CPUs, bytes of memory.
func of(cpuRequest, cpuLimit, memoryRequest, memoryLimit int64) oomscore.Resources {
	return oomscore.Resources{
		CPU:    oomscore.Amount{Request: cpuRequest, Limit: cpuLimit},
		Memory: oomscore.Amount{Request: memoryRequest, Limit: memoryLimit},
	}
}

func primary(r oomscore.Resources) oomscore.Container {
	return oomscore.Container{Resources: r, BesideMain: true}
}
func setup(r oomscore.Resources) oomscore.Container {
	return oomscore.Container{Resources: r, Init: true}
}
func sidecar(r oomscore.Resources) oomscore.Container {
	return oomscore.Container{Resources: r, Init: true, BesideMain: true}
}

// A81: kubelet's values on a node of 16 GiB, calculated by hand. A test in
// test/placement compares with kubelet's own code.
func TestScore(t *testing.T) {
	for name, c := range map[string]struct {
		pod  oomscore.Pod
		want []int
	}{
		"nothing":                 {oomscore.Pod{Containers: []oomscore.Container{primary(of(0, 0, 0, 0))}}, []int{1000}},
		"CPUs only":               {oomscore.Pod{Containers: []oomscore.Container{primary(of(2000, 2000, 0, 0))}}, []int{999}},
		"a quarter of the memory": {oomscore.Pod{Containers: []oomscore.Container{primary(of(0, 0, 4*gi, 4*gi))}}, []int{750}},
		"less than a thousandth":  {oomscore.Pod{Containers: []oomscore.Container{primary(of(0, 0, gi/1024, 0))}}, []int{999}},
		"rounded up": { // 62.5 thousandths
			pod:  oomscore.Pod{Containers: []oomscore.Container{primary(of(0, 0, gi, 0))}},
			want: []int{938},
		},
		"all memory":                    {oomscore.Pod{Containers: []oomscore.Container{primary(of(0, 0, 16*gi, 0))}}, []int{3}},
		"more than any machine has":     {oomscore.Pod{Containers: []oomscore.Container{primary(of(0, 0, math.MaxInt64, 0))}}, []int{3}},
		"CPUs and memory, both limited": {oomscore.Pod{Containers: []oomscore.Container{primary(of(2000, 2000, gi, gi))}}, []int{-997}},
		"limit of memory above":         {oomscore.Pod{Containers: []oomscore.Container{primary(of(2000, 2000, 4*gi, 8*gi))}}, []int{750}},
		"no limit of memory":            {oomscore.Pod{Containers: []oomscore.Container{primary(of(2000, 2000, 4*gi, 0))}}, []int{750}},
		"limit of CPUs above":           {oomscore.Pod{Containers: []oomscore.Container{primary(of(1000, 2000, 4*gi, 4*gi))}}, []int{750}},
		"one container without anything": {
			pod:  oomscore.Pod{Containers: []oomscore.Container{primary(of(2000, 2000, 4*gi, 4*gi)), primary(of(0, 0, 0, 0))}},
			want: []int{750, 999},
		},
		"an init container without": {oomscore.Pod{Containers: []oomscore.Container{
			setup(of(0, 0, 0, 0)), primary(of(2000, 2000, 4*gi, 4*gi))}}, []int{999, 750}},
		"all guaranteed": {oomscore.Pod{Containers: []oomscore.Container{
			setup(of(1, 1, 1, 1)), sidecar(of(1, 1, 1, 1)), primary(of(2000, 2000, gi, gi))}}, []int{-997, -997, -997}},
		"a sidecar serves the least of the main containers": {oomscore.Pod{Containers: []oomscore.Container{
			sidecar(of(0, 0, gi/1024, 0)), primary(of(0, 0, 8*gi, 0)), primary(of(0, 0, 4*gi, 0))}}, []int{750, 500, 750}},
		"a sidecar with more than these": {
			pod:  oomscore.Pod{Containers: []oomscore.Container{sidecar(of(0, 0, 8*gi, 0)), primary(of(0, 0, 4*gi, 0))}},
			want: []int{500, 750},
		},
		"requests of the whole pod": { // 4 GiB more for each container
			pod: oomscore.Pod{
				Resources:  &oomscore.Resources{Memory: oomscore.Amount{Request: 12 * gi}},
				Containers: []oomscore.Container{primary(of(0, 0, 4*gi, 0)), primary(of(0, 0, 0, 0))},
			},
			want: []int{500, 750},
		},
		"the whole pod requests no more": {
			pod: oomscore.Pod{
				Resources:  &oomscore.Resources{Memory: oomscore.Amount{Request: 4 * gi}},
				Containers: []oomscore.Container{setup(of(0, 0, 4*gi, 0)), sidecar(of(0, 0, 0, 0)), primary(of(0, 0, 4*gi, 0))},
			},
			want: []int{750, 750, 750},
		},
		"the whole pod is guaranteed": {
			pod: oomscore.Pod{
				Resources: &oomscore.Resources{
					CPU:    oomscore.Amount{Request: 1, Limit: 1},
					Memory: oomscore.Amount{Request: 1, Limit: 1},
				},
				Containers: []oomscore.Container{primary(of(0, 0, 0, 0))},
			},
			want: []int{-997},
		},
		"the whole pod is best effort": {
			pod:  oomscore.Pod{Resources: &oomscore.Resources{}, Containers: []oomscore.Container{primary(of(0, 0, gi, 0))}},
			want: []int{1000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for i := range c.pod.Containers {
				got = append(got, c.pod.Score(i, 16*gi))
			}
			require.Equal(t, c.want, got)
		})
	}
}
