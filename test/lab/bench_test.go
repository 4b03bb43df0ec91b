// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// BenchmarkPrepare measures kubelet's calls over the frontend's socket: for one pod, and for as many pods as a node takes, all at
// once. The files are in memory, as below /var/run on most nodes, or on a disk.
func BenchmarkPrepare(b *testing.B) {
	for _, row := range []struct {
		name   string
		pods   int
		onDisk bool
	}{
		{"one pod/memory", 1, false},
		{"one pod/disk", 1, true},
		{"110 pods/memory", 110, false},
		{"110 pods/disk", 110, true},
	} {
		b.Run(row.name, func(b *testing.B) {
			count := row.pods
			n := lab.NewNode(b, topologytest.T4(), lab.Options{Programs: programs, OnDisk: row.onDisk})
			require.Equal(b, row.onDisk, !lab.InMemory(b, n.CDI), "memory is a tmpfs at /dev/shm, and a disk is where TMPDIR is")
			// The first claim of a node takes one more write, of the file that names the CDI directory.
			first := podWith(n, "first", lab.Request{Zone: "numa-0", Capacity: cpu("1")})
			require.True(b, n.Allocate(first))
			require.NoError(b, n.Prepare(first))
			b.ReportAllocs()
			times := contracttest.NewTimes()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				var pods []*lab.Pod
				for k := range count {
					p := podWith(n, fmt.Sprintf("p%d-%d", i, k), lab.Request{Zone: fmt.Sprintf("numa-%d", k%4), Capacity: cpu("1")})
					pods = append(pods, p)
					require.True(b, n.Allocate(p))
				}
				b.StartTimer()
				times.Measure(func() { require.NoError(b, n.PrepareAll(pods)) })
				b.StopTimer()
				for _, p := range pods {
					require.NoError(b, n.Remove(p))
				}
				n.Applied() // the next call comes when the actuator has done its part
				b.StartTimer()
			}
			times.Report(b)
		})
	}
}

// BenchmarkControl measures what the disk takes for two small files, one after the other. The Prepare of a claim writes as many files
// into the CDI directory.
func BenchmarkControl(b *testing.B) {
	b.Run("two durable files", func(b *testing.B) {
		dir, data := b.TempDir(), make([]byte, 4<<10)
		require.False(b, lab.InMemory(b, dir), "a disk is where TMPDIR is")
		times := contracttest.NewTimes()
		for b.Loop() {
			times.Measure(func() {
				for _, name := range []string{"claim", "node"} {
					require.NoError(b, atomicfile.Write(dir, name, data, 0o600))
				}
			})
		}
		times.Report(b)
	})
}

// BenchmarkRecovery measures a start of the frontend's parts in this process beside prepared claims of templates, until
// it takes more claims.
func BenchmarkRecovery(b *testing.B) {
	for _, count := range []int{0, 500} {
		b.Run(fmt.Sprintf("claims=%d", count), func(b *testing.B) {
			n := lab.NewNode(b, topologytest.T4(), lab.Options{Programs: programs})
			var pods []*lab.Pod
			for i := range count {
				name := fmt.Sprintf("p%d", i)
				claim := n.TemplateClaim(name, name, lab.Request{
					Name: "r", Zone: fmt.Sprintf("numa-%d", i%4), Capacity: map[string]string{"memory": "16Mi"},
				})
				p := n.Pod(name, lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
				require.True(b, n.Allocate(p))
				pods = append(pods, p)
			}
			require.NoError(b, n.PrepareAll(pods))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				n.StopFrontend()
				b.StartTimer()
				n.StartFrontend()
				n.Ready()
			}
			require.Len(b, n.Records(), count)
		})
	}
}

// BenchmarkRuntimeRefresh measures what the runtime does after each change of the CDI directory: its CDI library
// reads all files again, and no container gets a device meanwhile.
func BenchmarkRuntimeRefresh(b *testing.B) {
	for _, claims := range []int{0, 110, 500} {
		b.Run(fmt.Sprintf("claims=%d", claims), func(b *testing.B) {
			n := lab.NewNode(b, topologytest.T4(), lab.Options{Programs: programs})
			var pods []*lab.Pod
			for i := range claims {
				p := podWith(n, fmt.Sprintf("p%d", i), lab.Request{
					Zone: fmt.Sprintf("numa-%d", i%4), Capacity: map[string]string{"memory": "16Mi"},
				})
				require.True(b, n.Allocate(p))
				pods = append(pods, p)
			}
			require.NoError(b, n.PrepareAll(pods))
			cache, err := cdi.NewCache(cdi.WithSpecDirs(n.CDI), cdi.WithAutoRefresh(false))
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, cache.Refresh())
			}
			require.Equal(b, claims+2, len(cache.ListDevices()), "and the node state and the announcement")
		})
	}
}
