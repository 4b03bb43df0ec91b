// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// A partition that ends while a cgroup above it lacks its CPUs loses them
// (Linux 6.12). So the CPUs stay above while it is a partition, whatever
// happens to its claim.
func TestPartitionsKeepTheirCPUsAbove(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, r *runtime, c *container){
		"released, and another claim is created before the state is applied": func(t *testing.T, r *runtime, _ *container) {
			r.node.Unprepare(podA, claimA, "4-7")
			env := r.node.Prepare(podB, testnode.UID(78), contract.Decision{CPUs: contracttest.CPUs("0-1")})
			_, err := r.create("q", podB, env...)
			require.NoError(t, err)
		},
		"released": func(t *testing.T, r *runtime, _ *container) {
			r.node.Unprepare(podA, claimA, "4-7")
			require.NoError(t, r.plugin.Apply(t.Context()))
		},
		"removed before its cgroup is gone": func(t *testing.T, r *runtime, c *container) {
			require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
			r.node.Unprepare(podA, claimA, "4-7")
			require.NoError(t, r.plugin.Apply(t.Context()))
		},
		"released, and it cannot be read": func(t *testing.T, r *runtime, c *container) {
			back := r.node.Fail(c.dir, contract.FilePartition, syscall.EIO)
			r.node.Unprepare(podA, claimA, "4-7")
			require.Error(t, r.plugin.Apply(t.Context()))
			back()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, started := range []bool{true, false} {
				r := newRuntime(t, t.TempDir())
				env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
				c, err := r.create("c", podA, env...)
				require.NoError(t, err)
				if started {
					require.NoError(t, r.start(c))
				} else {
					// The runtime has made the cgroup and has not started the
					// program.
					r.node.AddCgroup(c.dir)
					r.writeSpec(c)
				}
				require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
				happens(t, r, c)
				if r.node.File(c.dir, contract.FilePartition) == "root" {
					require.Equal(t, []string{"4-7", "4-7", "4-7"}, r.exclusive(podA))
				}
			}
		})
	}
}

// A CPU that moves between QoS levels is taken from the former level before the
// other one gets it, in either order in the tree: the kernel refuses siblings
// that name the same CPU.
func TestExclusiveCPUsChangeHands(t *testing.T) {
	const burstable, besteffort = "kubepods/burstable", "kubepods/besteffort"
	for _, way := range [][2]string{{burstable, besteffort}, {besteffort, burstable}} {
		t.Run(way[0]+" to "+way[1], func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			r.run("other", podB)
			level := func(dir string) string { return strings.TrimPrefix(dir, "kubepods/") }
			give := func(from, to string) {
				r.node.Change(func(s *contract.NodeState) {
					s.PartitionCPUs = map[string]contract.CPUSet{
						"": contracttest.CPUs("4-7"), level(way[0]): contracttest.CPUs(from), level(way[1]): contracttest.CPUs(to),
					}
				})
				require.NoError(t, r.plugin.Apply(t.Context()))
				require.Equal(t, from, r.node.File(way[0], contract.FileExclusive))
				require.Equal(t, to, r.node.File(way[1], contract.FileExclusive))
			}
			give("4-6", "7")
			var written []string
			for _, dir := range way {
				r.node.Intercept(dir, contract.FileExclusive, func(write bool, do func() error) error {
					if write {
						written = append(written, dir)
					}
					return do()
				})
			}
			give("4", "5-7")
			require.Equal(t, way[:], written)
			require.Zero(t, r.metric("cpumem_actuator_repaired_total"), "nobody else's doing")
		})
	}
}

// The next actuator also finds a pod without containers that kubelet has not
// removed.
func TestExclusiveCPUsFoundAgain(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("other", podB)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	require.NoError(t, r.remove(c))
	r.connect()
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
}

// A claim file that cannot be read takes nothing from a running container, even
// if its decision is not known (I4).
func TestPartitionWithoutAReadableClaim(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	require.NoError(t, atomicfile.Write(r.node.CDI, contract.ClaimFile(claimA), []byte("{"), 0o600))
	r.connect()
	holds := func() {
		t.Helper()
		require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
		require.Equal(t, "4-7", r.cpus(c))
		require.Equal(t, []string{"4-7", "4-7", "4-7"}, r.exclusive(podA))
	}
	holds()
	require.Error(t, r.update(c))
	require.NoError(t, r.session.PostUpdateContainer(t.Context(), c.pod, c.api))
	holds()
	_, err := r.create("other", podB, r.node.Prepare(podB, testnode.UID(78), contract.Decision{CPUs: contracttest.CPUs("0-1")})...)
	require.NoError(t, err)
	holds()
}

// A partition that lost some of its CPUs gets them back.
func TestPartitionCut(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	r.node.SetFile(c.dir, contract.FileExclusive, "4-5")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.node.File(c.dir, contract.FileExclusive))
}

// Another pod whose CPUs cannot be taken back, and a mark that cannot be used,
// keep no container from being created.
func TestOtherPodsDoNoHarm(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	require.NoError(t, r.remove(r.run("c", podA, env...)))
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.Fail(r.podDir(podA), contract.FileExclusive, syscall.EIO)
	forged := "user.dra.cpumem.former.memory.min"
	r.node.SetAttribute("kubepods", forged, "much")
	d := r.run("d", podB, r.node.Prepare(podB, claimB, partitioned("8-9", contract.PartitionRoot))...)
	require.Equal(t, "8-9", r.cpus(d))
	require.Equal(t, "root", r.node.File(d.dir, contract.FilePartition))
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "its former value cannot be given back")
}

// A partition whose CPUs another pod has is not created: the kernel would grant
// it to no container, and the CPUs could be lost.
func TestPartitionWaitsForItsCPUs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("other", podB)
	for _, dir := range []string{"kubepods", "kubepods/burstable", r.podDir(podB)} {
		r.node.SetFile(dir, contract.FileExclusive, "4")
	}
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	_, err := r.create("c", podA, env...)
	require.ErrorContains(t, err, "the container waits until another pod gives these CPUs back")
	r.node.SetFile(r.podDir(podB), contract.FileExclusive, "")
	c := r.run("c", podA, env...)
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
}

// Attributes that a container's program sets on its own cgroup keep no node
// state from being applied.
func TestAttributesOfAContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podB)
	forged := "user.dra.cpumem.former.memory.min"
	r.node.SetAttribute(c.dir, forged, "much")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, r.node.State.Generation, r.announced.Generation)
}
