// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

// Options describe the cluster to make. Start from Defaults.
type Options struct {
	Nodes   int          // 0: a control plane alone
	Machine qemu.Machine // the nodes' hardware

	Machines map[string]qemu.Machine // hardware of the nodes that differ, by name

	Kernel  string            // the nodes' kernel, KernelStable, KernelBackports or KernelNewest
	Kernels map[string]string // kernels of the nodes that differ, by name

	Systemd []string // nodes with systemd as init and cgroup driver; all other nodes have busybox and cgroupfs

	// InstructionClock is for measurements: see [qemu.Node]. A node's clock falls behind the host's while the node works.
	InstructionClock bool

	Accel      string          // QEMU's -accel
	KernelArgs string          // more words for the nodes' kernel
	Gates      map[string]bool // feature gates, for the control plane and the kubelets
	Kubelet    map[string]any  // more fields of KubeletConfiguration; they win
	Containerd string          // more configuration of containerd, TOML, merged table by table; it wins
	Images     []string        // image archives that are in every node from the start
	FreeMiB    int             // room on a node's disk

	RuntimeConfig string // more API versions for the API server's --runtime-config, comma separated

	Flags map[string]map[string]string // flags of the control plane's programs, by program; they replace the cluster's own

	Subnet int           // second byte of the cluster's network 10.x.0.0/16; 0: Up takes a free one
	Ready  time.Duration // how long a node may take until Ready before it is restarted, once

	Source string    `json:"-"` // this module's directory; empty: found from the working directory upwards
	Log    io.Writer `json:"-"` // progress lines
}

// Defaults is one node with the default machine.
func Defaults() Options {
	return Options{
		Nodes: 1, Machine: qemu.Default(), Kernel: KernelStable, Accel: "tcg,thread=single,tb-size=512",
		FreeMiB: 1024, Ready: 3 * time.Minute, Log: os.Stderr,
	}
}

const (
	maxNodes    = 16
	firstSubnet = 89 // where Up begins to look for a free subnet
)

func (o Options) validate() error {
	switch {
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("%d nodes: give 0 to %d (and start from Defaults)", o.Nodes, maxNodes)
	case o.Subnet < 0 || o.Subnet > 255:
		return fmt.Errorf("subnet %d: it is the second byte of 10.x.0.0/16, give 1 to 255, or 0 for a free one", o.Subnet)
	case o.Ready <= 0:
		return fmt.Errorf("ready time %s: must be above 0", o.Ready)
	}
	for _, image := range o.Images {
		if _, err := os.Stat(image); err != nil {
			return fmt.Errorf("image archive: %w", err)
		}
	}
	for name, m := range o.Machines {
		if !slices.Contains(o.nodeNames(), name) {
			return fmt.Errorf("a machine for %q: there is no such node, there are %v", name, o.nodeNames())
		}
		if err := m.Validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range o.Flags {
		if !slices.Contains(controlPlane, name) {
			return fmt.Errorf("flags for %q: there is no such program, there are %v", name, controlPlane)
		}
	}
	for name := range o.Kernels {
		if !slices.Contains(o.nodeNames(), name) {
			return fmt.Errorf("a kernel for %q: there is no such node, there are %v", name, o.nodeNames())
		}
	}
	for _, kernel := range append(slices.Collect(maps.Values(o.Kernels)), o.Kernel) {
		if !slices.Contains(kernelNames, kernel) {
			return fmt.Errorf("kernel %q: give one of %v", kernel, kernelNames)
		}
	}
	for _, name := range o.Systemd {
		if !slices.Contains(o.nodeNames(), name) {
			return fmt.Errorf("systemd on %q: there is no such node, there are %v", name, o.nodeNames())
		}
	}
	return o.Machine.Validate()
}

func (o Options) nodeNames() []string {
	names := make([]string, o.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node%d", i)
	}
	return names
}

func (o Options) machine(node string) qemu.Machine {
	if m, ok := o.Machines[node]; ok {
		return m
	}
	return o.Machine
}

func (o Options) kernel(node string) string {
	if k, ok := o.Kernels[node]; ok {
		return k
	}
	return o.Kernel
}

// kernels returns the kernels that the nodes boot, sorted, each once.
func (o Options) kernels() []string {
	var used []string
	for _, node := range o.nodeNames() {
		used = append(used, o.kernel(node))
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// The cgroup drivers of nodes.
const (
	CgroupDriverFS      = "cgroupfs"
	CgroupDriverSystemd = "systemd"
)

func (o Options) cgroupDriver(node string) string {
	if slices.Contains(o.Systemd, node) {
		return CgroupDriverSystemd
	}
	return CgroupDriverFS
}

// FromEnvironment sets what a second cluster on this machine needs from the variables that command cluster reads: the network
// (CPUMEM_CLUSTER_SUBNET) and qemu's accelerator (CPUMEM_CLUSTER_ACCEL).
func (o *Options) FromEnvironment() error {
	if accel, ok := os.LookupEnv("CPUMEM_CLUSTER_ACCEL"); ok {
		o.Accel = accel
	}
	if subnet, ok := os.LookupEnv("CPUMEM_CLUSTER_SUBNET"); ok {
		n, err := strconv.Atoi(subnet)
		if err != nil {
			return fmt.Errorf("CPUMEM_CLUSTER_SUBNET: %w", err)
		}
		o.Subnet = n
	}
	return nil
}

// ImageValues returns the chart's values for images under test: images.sh builds them, and the nodes have them already.
func ImageValues(tag string) []string {
	return []string{
		"frontend.image.repository=dra-cpumem/dra-frontend", "actuator.image.repository=dra-cpumem/nri-actuator",
		"frontend.image.tag=" + tag, "actuator.image.tag=" + tag,
		"frontend.image.pullPolicy=Never", "actuator.image.pullPolicy=Never",
	}
}

// DefaultDir is the default directory of a cluster: $CPUMEM_CLUSTER_DIR, or _output/cluster of the repository.
func DefaultDir() (string, error) {
	if dir := os.Getenv("CPUMEM_CLUSTER_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	source, err := findSource()
	if err != nil {
		return "", err
	}
	return filepath.Join(source, "..", "..", "_output", "cluster"), nil
}

// findSource looks for this module's directory from the working directory upwards and returns it.
func findSource() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "test", "cluster")} {
			if _, err := os.Stat(filepath.Join(candidate, "programs", "go.mod")); err == nil {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no test/cluster/programs from %s upwards: run inside the repository", wd)
		}
	}
}
