// SPDX-License-Identifier: Apache-2.0

// Package qemu turns the machine that a test wants (sockets, NUMA nodes, hugepages) into QEMU's arguments. It only
// makes text: package cluster starts the process and owns the paths.
package qemu

import (
	"fmt"
	"strconv"
	"strings"
)

// Machine is the hardware of one node. CPUs are numbered thread by thread, core by core, socket by socket; NUMA nodes
// take consecutive CPUs.
type Machine struct {
	Sockets         int
	Dies            int // per socket, each with a last-level cache of its own; 0 is one
	Cores           int // per socket, split evenly over its dies
	Threads         int // per core
	NUMAPerSocket   int
	MemoryOnlyNodes int // NUMA nodes without CPUs, numbered last
	MemoryMiB       int // of the whole machine, split evenly over all NUMA nodes
	Hugepages       int // 2 MiB pages set aside at boot on every NUMA node
}

// Default is the acceptance cases' T3: 2 sockets of 2 cores of 2 threads, a NUMA node for each socket.
func Default() Machine {
	return Machine{Sockets: 2, Cores: 2, Threads: 2, NUMAPerSocket: 1, MemoryMiB: 4096, Hugepages: 128}
}

// Wide is like T4 of the acceptance cases: two NUMA nodes on each of two sockets, and one NUMA node without CPUs.
// Emulation bears no more than its 16 CPUs. A group of NUMA nodes (a socket) has several last-level caches.
func Wide() Machine {
	return Machine{Sockets: 2, Dies: 2, Cores: 4, Threads: 2, NUMAPerSocket: 2, MemoryOnlyNodes: 1, MemoryMiB: 3840, Hugepages: 64}
}

// CPUs is the number of logical CPUs.
func (m Machine) CPUs() int { return m.Sockets * m.Cores * m.Threads }

// Nodes is the number of NUMA nodes, with and without CPUs.
func (m Machine) Nodes() int { return m.Sockets*m.NUMAPerSocket + m.MemoryOnlyNodes }

func (m Machine) dies() int { return max(m.Dies, 1) }

// nodeMiB is one NUMA node's memory in MiB, in whole 2 MiB pages.
func (m Machine) nodeMiB() int { return m.MemoryMiB / m.Nodes() / 2 * 2 }

// Validate returns an error, with the numbers, for a machine that cannot be built.
func (m Machine) Validate() error {
	switch {
	case m.Sockets < 1 || m.Cores < 1 || m.Threads < 1 || m.NUMAPerSocket < 1:
		return fmt.Errorf("machine %+v: sockets, cores, threads and NUMA nodes per socket must be at least 1", m)
	case m.MemoryOnlyNodes < 0 || m.Hugepages < 0 || m.Dies < 0:
		return fmt.Errorf("machine %+v: memory-only nodes, hugepages and dies must not be negative", m)
	case m.Cores%m.dies() != 0:
		return fmt.Errorf("machine %+v: %d cores of a socket cannot be split evenly over %d dies", m, m.Cores, m.dies())
	case m.Cores%m.NUMAPerSocket != 0:
		return fmt.Errorf("machine %+v: %d cores of a socket cannot be split evenly over %d NUMA nodes",
			m, m.Cores, m.NUMAPerSocket)
	case m.nodeMiB() < 256 || m.Nodes()*m.nodeMiB() < 1024:
		return fmt.Errorf("machine %+v: %d MiB over %d NUMA nodes is too little, give 256 MiB each and 1024 MiB in all",
			m, m.MemoryMiB, m.Nodes())
	case m.Hugepages*2 > m.nodeMiB()*3/4:
		return fmt.Errorf("machine %+v: %d hugepages take %d of the %d MiB of a NUMA node, give at most three quarters",
			m, m.Hugepages, m.Hugepages*2, m.nodeMiB())
	}
	return nil
}

// Args returns the part of QEMU's arguments that makes the machine's CPUs and memory.
func (m Machine) Args() []string {
	args := []string{
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", m.CPUs(), m.Sockets, m.dies(), m.Cores/m.dies(), m.Threads),
		"-m", strconv.Itoa(m.Nodes()*m.nodeMiB()) + "M",
	}
	withCPUs := m.Sockets * m.NUMAPerSocket
	per := m.CPUs() / withCPUs
	for n := range m.Nodes() {
		node := fmt.Sprintf("node,nodeid=%d,memdev=mem%d", n, n)
		if n < withCPUs {
			node += fmt.Sprintf(",cpus=%d-%d", n*per, n*per+per-1)
		}
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=mem%d,size=%dM", n, m.nodeMiB()), "-numa", node)
	}
	for a := range m.Nodes() {
		for b := a + 1; b < m.Nodes(); b++ {
			args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", a, b, m.distance(a, b)))
		}
	}
	return args
}

func (m Machine) distance(a, b int) int {
	withCPUs := m.Sockets * m.NUMAPerSocket
	switch {
	case a >= withCPUs || b >= withCPUs:
		return 30
	case a/m.NUMAPerSocket == b/m.NUMAPerSocket:
		return 12
	}
	return 20
}

// KernelArgs returns the part of the kernel's command line that sets hugepages aside.
func (m Machine) KernelArgs() string {
	if m.Hugepages == 0 {
		return ""
	}
	per := make([]string, m.Nodes())
	for n := range per {
		per[n] = fmt.Sprintf("%d:%d", n, m.Hugepages)
	}
	return "hugepagesz=2M hugepages=" + strings.Join(per, ",")
}

// Node is all else that QEMU needs for one node.
type Node struct {
	Index int    // makes the network address unique
	Accel string // QEMU's -accel value
	// InstructionClock makes the machine's clock count the instructions of its emulated CPUs, one nanosecond each. By this clock a
	// CPU is equally fast, whatever else the host does. While all CPUs are idle the clock goes with the host's. The clock adds up
	// the instructions of all CPUs, because QEMU emulates them in turn in one thread.
	InstructionClock bool
	Tap              string // network interface, exists already
	Kernel           string
	Initrd           string
	Disk             string // raw ext4 root
	Share            string // directory the node sees read-only at /share
	Console          string // file
	Monitor          string // socket
	Append           string // kernel command line
}

// Args returns QEMU's whole command line after the program's name.
func Args(m Machine, n Node) []string {
	return append(append(base(m, n),
		"-monitor", "unix:"+n.Monitor+",server,nowait",
		"-serial", "file:"+n.Console,
		"-drive", "if=none,id=root,format=raw,cache=unsafe,aio=threads,file="+n.Disk, "-device", "virtio-blk-pci,drive=root",
		"-netdev", "tap,id=net,script=no,downscript=no,ifname="+n.Tap,
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net,mac=52:54:00:00:01:%02x", n.Index),
		"-fsdev", "local,id=share,security_model=none,readonly=on,path="+n.Share,
		"-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
		"-device", "virtio-rng-pci",
	), m.pciRoots()...)
}

// firstRoot is the bus number of the first root. The numbers between two roots are for the buses below the first.
const firstRoot, rootStep = 0x40, 0x10

// pciRoots returns a PCI root of each NUMA node with CPUs, with a device that no driver of the kernel takes (edu, 1234:11e8).
func (m Machine) pciRoots() (args []string) {
	for n := range m.Sockets * m.NUMAPerSocket {
		args = append(args,
			"-device", fmt.Sprintf("pxb,id=root%d,bus=pci.0,bus_nr=%d,numa_node=%d", n, firstRoot+n*rootStep, n),
			"-device", fmt.Sprintf("edu,bus=root%d", n))
	}
	return args
}

// Diskless returns QEMU's command line for a machine without disk and network, whose console is QEMU's output.
func Diskless(m Machine, n Node) []string { return append(base(m, n), "-serial", "stdio") }

// base is the part that all machines have.
func base(m Machine, n Node) []string {
	cpu := "host"
	if strings.HasPrefix(n.Accel, "tcg") {
		cpu = "max,vendor=GenuineIntel" // on an AMD host "max" alone has no SMT siblings
	}
	args := []string{"-accel", n.Accel, "-cpu", cpu}
	if n.InstructionClock {
		// With sleep=on idle CPUs sleep as long as on the host. With off the clock would jump to the next timer. Older manuals of
		// QEMU have the two the wrong way round.
		args = append(args, "-icount", "shift=0,sleep=on")
	}
	args = append(args, m.Args()...)
	return append(args,
		// Memory below 4 GiB ends at 2 GiB, so that a NUMA node's memory is in one piece and a page of 1 GiB fits.
		"-machine", "pc,max-ram-below-4g=2G",
		"-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", n.Kernel, "-initrd", n.Initrd, "-append", n.Append)
}
