// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// busyNode returns a node with containers, five to a pod, whose cgroups are plain files: the
// system calls are those on a real node. claimed containers have a claim each, of CPUs, memory
// and hugepages, the others none. All claims have the same CPUs: only the frontend compares claims.
func busyNode(b *testing.B, containers int, claimed bool) *runtime {
	b.Helper()
	r := newRuntime(b, b.TempDir())
	for i := range containers {
		pod := testnode.UID(1000 + i/5)
		var env []string
		if claimed {
			env = r.node.Prepare(pod, testnode.UID(5000+i), contract.Decision{
				CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0"),
				Memory:    &contract.Memory{Min: 1 << 30, High: contract.Max, Max: 1 << 30},
				Hugepages: map[string]contract.Limit{"2Mi": 64 << 20}})
		}
		r.run(fmt.Sprintf("c%03d", i), pod, env...)
	}
	r.node.Change(func(s *contract.NodeState) {
		for uid, pod := range s.Pods {
			pod.Cgroup = contract.Files{
				"memory.min": "1073741824", "hugetlb.2MB.max": "67108864", "hugetlb.2MB.rsvd.max": "67108864",
			}
			s.Pods[uid] = pod
		}
		if claimed {
			s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}, "burstable": {"memory.min": "4096"}}
		}
	})
	require.NoError(b, r.plugin.Apply(b.Context()))
	r.onPlainFiles(b)
	return r
}

// onPlainFiles starts the actuator again over a copy of the cgroups in plain files. The dry run for partitions finds its files
// and succeeds, as on a node: without an answer each creation with a claim would try again.
func (r *runtime) onPlainFiles(b *testing.B) {
	b.Helper()
	dir := b.TempDir()
	r.node.CopyTo(dir)
	probe := filepath.Join(dir, "kubepods", "dra.cpumem.probe")
	for file, content := range map[string]string{
		"cgroup.subtree_control": "", "partition/cpuset.cpus.effective": "0-15\n",
		"partition/" + contract.FileExclusive: "", "partition/" + contract.FilePartition: "",
	} {
		require.NoError(b, os.MkdirAll(filepath.Dir(filepath.Join(probe, file)), 0o700))
		require.NoError(b, os.WriteFile(filepath.Join(probe, file), []byte(content), 0o600))
	}
	mount, err := cgroups.Open(dir)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, mount.Close()) })
	r.mount = mount
	r.connect()
}

func counts() []int { return []int{0, 100, 500} }

// BenchmarkCreateContainer measures the answer to the creation of a container without a claim, and with claims of exclusive CPUs,
// without the runtime's connection. Each container is a new one, and its claim files were not read before: the actuator has applied the
// node state with the claims, as it has on a node between Prepare and the creation.
func BenchmarkCreateContainer(b *testing.B) {
	for _, claimed := range []int{0, 1, 2} {
		for _, containers := range counts() {
			b.Run(fmt.Sprintf("claims=%d/containers=%d", claimed, containers), func(b *testing.B) {
				r := busyNode(b, containers, false)
				var env []string
				files := make(map[string][]byte)
				for i := range claimed {
					d, uid := contract.Decision{CPUs: contracttest.CPUs([]string{"4-7", "8-11"}[i])}, testnode.UID(9000+i)
					env = append(env, r.node.Prepare(podA, uid, d)...)
					data, err := os.ReadFile(filepath.Join(r.node.CDI, contract.ClaimFile(uid)))
					require.NoError(b, err)
					files[contract.ClaimFile(uid)] = data
				}
				first, err := r.create("first", podA, env...)
				require.NoError(b, err)
				require.NoError(b, r.remove(first))
				r.onPlainFiles(b)
				b.ReportAllocs()
				times := contracttest.NewTimes()
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					created := proto.CloneOf(first.api)
					created.Id = fmt.Sprintf("new%d", i)
					created.Linux.CgroupsPath = first.pod.Linux.CgroupParent + "/" + created.Id
					for name, data := range files {
						r.node.WriteFile(name, data)
					}
					b.StartTimer()
					times.Measure(func() {
						_, _, err := r.session.CreateContainer(b.Context(), first.pod, created)
						require.NoError(b, err)
					})
					b.StopTimer()
					require.NoError(b, r.session.RemoveContainer(b.Context(), first.pod, created))
					b.StartTimer()
				}
				times.Report(b)
			})
		}
	}
}

// BenchmarkControl measures what the host takes for one read of each of 500 open files. The creation of a container with a claim
// makes as many reads beside 500 containers. As in [BenchmarkCreateContainer], a file is written before the reads.
func BenchmarkControl(b *testing.B) {
	b.Run("500 reads", func(b *testing.B) {
		dir, buffer := b.TempDir(), make([]byte, 1<<10)
		var files []int
		for i := range 500 {
			f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, f.Close()) })
			_, err = f.WriteString("4-7\n")
			require.NoError(b, err)
			files = append(files, int(f.Fd()))
		}
		times := contracttest.NewTimes()
		for b.Loop() {
			b.StopTimer()
			require.NoError(b, atomicfile.Write(dir, "claim", make([]byte, 4<<10), 0o600))
			b.StartTimer()
			times.Measure(func() {
				for _, f := range files {
					if n, err := unix.Pread(f, buffer, 0); err != nil || n != 4 {
						b.Fatal(n, err)
					}
				}
			})
		}
		times.Report(b)
	})
}

// BenchmarkApply measures the comparison of everything with the kernel, without the write of the announcement: with nothing to
// repair, beside containers without claims and with a claim each, and with a pool that
// changes, which is a write into each container without a claim.
func BenchmarkApply(b *testing.B) {
	for _, kind := range []string{"pool", "claims", "move"} {
		for _, containers := range counts() {
			b.Run(fmt.Sprintf("%s/containers=%d", kind, containers), func(b *testing.B) {
				r := busyNode(b, containers, kind == "claims")
				require.NoError(b, r.plugin.Apply(b.Context()))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if kind == "move" {
						b.StopTimer()
						r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs([]string{"0-3", "8-15"}[i%2]) })
						b.StartTimer()
					}
					require.NoError(b, r.plugin.Apply(b.Context()))
				}
				require.Zero(b, r.metric("cpumem_actuator_repaired_total"))
			})
		}
	}
}

// BenchmarkSynchronize measures the answer to the runtime's list of containers, none of which has a claim. The list is the one that the
// actuator knows, and the write of the announcement is left out.
func BenchmarkSynchronize(b *testing.B) {
	for _, containers := range counts() {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			r := busyNode(b, containers, false)
			var list []*api.Container
			var sandboxes []*api.PodSandbox
			seen := make(map[string]bool)
			for _, c := range r.containers {
				list = append(list, c.api)
				if !seen[c.pod.Id] {
					seen[c.pod.Id] = true
					sandboxes = append(sandboxes, c.pod)
				}
			}
			b.ReportAllocs()
			times := contracttest.NewTimes()
			for b.Loop() {
				times.Measure(func() {
					_, err := r.session.Synchronize(b.Context(), sandboxes, list)
					require.NoError(b, err)
				})
			}
			times.Report(b)
		})
	}
}
