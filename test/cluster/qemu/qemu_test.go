// SPDX-License-Identifier: Apache-2.0

package qemu_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

func TestMachineArgs(t *testing.T) {
	cases := map[string]struct {
		machine    qemu.Machine
		want       string
		kernelArgs string
	}{
		"the default machine": {
			machine: qemu.Default(),
			want: "-smp 8,sockets=2,dies=1,cores=2,threads=2 -m 4096M " +
				"-object memory-backend-ram,id=mem0,size=2048M -numa node,nodeid=0,memdev=mem0,cpus=0-3 " +
				"-object memory-backend-ram,id=mem1,size=2048M -numa node,nodeid=1,memdev=mem1,cpus=4-7 " +
				"-numa dist,src=0,dst=1,val=20",
			kernelArgs: "hugepagesz=2M hugepages=0:128,1:128",
		},
		"one socket, two NUMA nodes and one without CPUs": {
			machine: qemu.Machine{Sockets: 1, Cores: 2, Threads: 1, NUMAPerSocket: 2, MemoryOnlyNodes: 1, MemoryMiB: 3073},
			want: "-smp 2,sockets=1,dies=1,cores=2,threads=1 -m 3072M " +
				"-object memory-backend-ram,id=mem0,size=1024M -numa node,nodeid=0,memdev=mem0,cpus=0-0 " +
				"-object memory-backend-ram,id=mem1,size=1024M -numa node,nodeid=1,memdev=mem1,cpus=1-1 " +
				"-object memory-backend-ram,id=mem2,size=1024M -numa node,nodeid=2,memdev=mem2 " +
				"-numa dist,src=0,dst=1,val=12 -numa dist,src=0,dst=2,val=30 -numa dist,src=1,dst=2,val=30",
		},
		"two dies on each socket": {
			machine: qemu.Machine{Sockets: 2, Dies: 2, Cores: 4, Threads: 2, NUMAPerSocket: 1, MemoryMiB: 1024},
			want: "-smp 16,sockets=2,dies=2,cores=2,threads=2 -m 1024M " +
				"-object memory-backend-ram,id=mem0,size=512M -numa node,nodeid=0,memdev=mem0,cpus=0-7 " +
				"-object memory-backend-ram,id=mem1,size=512M -numa node,nodeid=1,memdev=mem1,cpus=8-15 " +
				"-numa dist,src=0,dst=1,val=20",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.machine.Validate())
			require.Equal(t, c.want, strings.Join(c.machine.Args(), " "))
			require.Equal(t, c.kernelArgs, c.machine.KernelArgs())
		})
	}
}

func TestMachineValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*qemu.Machine)
		say    string
	}{
		"no socket":          {func(m *qemu.Machine) { m.Sockets = 0 }, "at least 1"},
		"negative hugepages": {func(m *qemu.Machine) { m.Hugepages = -1 }, "negative"},
		"uneven NUMA nodes":  {func(m *qemu.Machine) { m.NUMAPerSocket = 3 }, "2 cores of a socket cannot be split evenly over 3"},
		"uneven dies":        {func(m *qemu.Machine) { m.Dies = 3 }, "2 cores of a socket cannot be split evenly over 3 dies"},
		"negative dies":      {func(m *qemu.Machine) { m.Dies = -1 }, "must not be negative"},
		"too little memory":  {func(m *qemu.Machine) { m.MemoryMiB = 500 }, "500 MiB over 2 NUMA nodes is too little"},
		"all hugepages":      {func(m *qemu.Machine) { m.Hugepages = 1000 }, "1000 hugepages take 2000 of the 2048 MiB"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := qemu.Default()
			c.change(&m)
			require.ErrorContains(t, m.Validate(), c.say)
		})
	}
}

// For every machine that Validate accepts, every CPU is in exactly one NUMA node, and the NUMA nodes' memory adds up to
// the machine's.
func TestMachineArgsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.IntRange(0, 4)
		m := qemu.Machine{
			Sockets: small.Draw(t, "sockets"), Dies: small.Draw(t, "dies"),
			Cores: small.Draw(t, "cores"), Threads: small.Draw(t, "threads"),
			NUMAPerSocket: small.Draw(t, "numa"), MemoryOnlyNodes: small.Draw(t, "memory-only"),
			MemoryMiB: rapid.IntRange(0, 1<<16).Draw(t, "memory"), Hugepages: rapid.IntRange(0, 2000).Draw(t, "hugepages"),
		}
		if m.Sockets*m.Cores*m.Threads*m.NUMAPerSocket == 0 {
			require.Error(t, m.Validate())
			return
		}
		if m.Validate() != nil {
			return
		}
		var cpus []int
		memory, total := 0, 0
		args := m.Args()
		for i, a := range args {
			if _, list, ok := strings.Cut(a, "cpus="); ok {
				var first, last int
				_, err := fmt.Sscanf(list, "%d-%d", &first, &last)
				require.NoError(t, err)
				for c := first; c <= last; c++ {
					cpus = append(cpus, c)
				}
			}
			if _, size, ok := strings.Cut(a, ",size="); ok {
				memory += number(t, size)
			}
			if a == "-m" {
				total = number(t, args[i+1])
			}
		}
		slices.Sort(cpus)
		want := make([]int, m.CPUs())
		for i := range want {
			want[i] = i
		}
		require.Equal(t, want, cpus)
		require.Equal(t, total, memory)
		require.LessOrEqual(t, total, m.MemoryMiB)
	})
}

func number(t require.TestingT, s string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "M"))
	require.NoError(t, err)
	return n
}

func TestArgs(t *testing.T) {
	node := qemu.Node{Index: 3, Accel: "tcg,thread=single", Tap: "tap3", Kernel: "/k", Initrd: "/i", Disk: "/d", Share: "/s",
		Console: "/c", Monitor: "/m", Append: "quiet node.name=node3"}
	args := strings.Join(qemu.Args(qemu.Default(), node), " ")
	for _, want := range []string{
		"-accel tcg,thread=single -cpu max,vendor=GenuineIntel ", "mac=52:54:00:00:01:03", "ifname=tap3", "file=/d ",
		"-append quiet node.name=node3 ", "path=/s ", "-serial file:/c ", "unix:/m,server",
		"-device pxb,id=root1,bus=pci.0,bus_nr=80,numa_node=1 -device edu,bus=root1",
	} {
		require.Contains(t, args, want)
	}
	require.NotContains(t, args, "-icount")
	node.InstructionClock = true
	require.Contains(t, strings.Join(qemu.Args(qemu.Default(), node), " "), " -icount shift=0,sleep=on ")
	node.InstructionClock, node.Accel = false, "kvm"
	require.Contains(t, strings.Join(qemu.Args(qemu.Default(), node), " "), "-accel kvm -cpu host ")
}
