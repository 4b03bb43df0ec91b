// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

// newUp has a flag for each option. The environment can set a flag's default: CPUMEM_CLUSTER_NODES for --nodes and so on.
func newUp(at where) *cobra.Command {
	o := cluster.Defaults()
	var gates, kubelet, containerd string
	var wide, backports []string
	cmd := &cobra.Command{
		Use: "up", Short: "Build what is missing and start the cluster; returns when every node is Ready", Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			if o.Gates, err = parseGates(gates); err != nil {
				return err
			}
			o.Machines = map[string]qemu.Machine{}
			for _, node := range wide {
				o.Machines[node] = qemu.Wide()
			}
			o.Kernels = map[string]string{}
			for _, node := range backports {
				o.Kernels[node] = cluster.KernelBackports
			}
			if kubelet != "" {
				data, err := os.ReadFile(kubelet)
				if err != nil {
					return err
				}
				if err := json.Unmarshal(data, &o.Kubelet); err != nil {
					return fmt.Errorf("%s: want a JSON object of KubeletConfiguration fields: %w", kubelet, err)
				}
			}
			if containerd != "" {
				data, err := os.ReadFile(containerd)
				if err != nil {
					return err
				}
				o.Containerd = string(data)
			}
			for i, image := range o.Images {
				if o.Images[i], err = filepath.Abs(image); err != nil {
					return err
				}
			}
			return cluster.New(dir, o).Up(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	f.IntVar(&o.Machine.Sockets, "sockets", o.Machine.Sockets, "sockets of a node")
	f.IntVar(&o.Machine.Dies, "dies", o.Machine.Dies, "dies of a socket, each with its last-level cache; 0 is one")
	f.IntVar(&o.Machine.Cores, "cores", o.Machine.Cores, "cores of a socket")
	f.IntVar(&o.Machine.Threads, "threads", o.Machine.Threads, "threads of a core")
	f.IntVar(&o.Machine.NUMAPerSocket, "numa-per-socket", o.Machine.NUMAPerSocket, "NUMA nodes of a socket")
	f.IntVar(&o.Machine.MemoryOnlyNodes, "memory-only-nodes", o.Machine.MemoryOnlyNodes, "further NUMA nodes without CPUs")
	f.IntVar(&o.Machine.MemoryMiB, "memory", o.Machine.MemoryMiB, "memory of a node in MiB, split over its NUMA nodes")
	f.IntVar(&o.Machine.Hugepages, "hugepages", o.Machine.Hugepages, "2 MiB hugepages on each NUMA node")
	f.StringSliceVar(&wide, "wide", nil, "`nodes` that are large machines instead: 16 CPUs, 5 NUMA nodes, several last-level caches")
	f.StringVar(&o.Kernel, "kernel", o.Kernel, "`which` kernel of Debian the nodes boot: stable, backports or newest")
	f.StringSliceVar(&backports, "backports", nil, "`nodes` that boot the kernel of Debian's backports whatever --kernel says")
	f.StringSliceVar(&o.Systemd, "systemd", nil, "`nodes` whose init and cgroup driver is systemd instead of busybox and cgroupfs")
	f.StringVar(&o.Accel, "accel", o.Accel, "QEMU's accelerator; `kvm` where it works")
	f.BoolVar(&o.InstructionClock, "instruction-clock", false, "for measurements: the nodes' clocks count instructions; not with kvm")
	f.StringVar(&o.KernelArgs, "kernel-args", o.KernelArgs, "more words for the nodes' kernel")
	f.StringVar(&gates, "feature-gates", "", "gates of control plane and kubelet: A=true,B=false")
	f.StringVar(&o.RuntimeConfig, "runtime-config", o.RuntimeConfig, "more API versions: group/version=true,...")
	f.StringVar(&kubelet, "kubelet-config", "", "JSON `file` with more fields of KubeletConfiguration")
	f.StringVar(&containerd, "containerd-config", "", "TOML `file` with more configuration of containerd")
	f.StringArrayVar(&o.Images, "image", nil, "image archive (docker or OCI) to have in every node; repeatable")
	f.IntVar(&o.FreeMiB, "free", o.FreeMiB, "free room on a node's disk in MiB")
	f.IntVar(&o.Subnet, "subnet", o.Subnet, "second byte of the cluster's network 10.x.0.0/16; 0 takes a free one")
	f.DurationVar(&o.Ready, "ready", o.Ready, "how long a node may take until Ready before it is restarted, once")
	return cmd
}

func fromEnvironment(cmd *cobra.Command) error {
	var errs []error
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		key := "CPUMEM_CLUSTER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := os.LookupEnv(key); ok && !f.Changed {
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
			}
		}
	})
	return errors.Join(errs...)
}

func parseGates(s string) (map[string]bool, error) {
	gates := map[string]bool{}
	for _, pair := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("feature gate %q: want Name=true or Name=false", pair)
		}
		gates[name] = on
	}
	return gates, nil
}
