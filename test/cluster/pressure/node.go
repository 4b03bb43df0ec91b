// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const swapFile = "/var/swap"

// EnableSwap gives the node size bytes of swap space on its disk; disable removes it. Pods get no swap before a restart
// of the kubelet with a swap behaviour that allows it.
func (b *Bench) EnableSwap(ctx context.Context, size int) (disable func(context.Context) error, err error) {
	script := fmt.Sprintf("fallocate -l %d %[2]s && chmod 600 %[2]s && mkswap %[2]s && swapon %[2]s", size, swapFile)
	if _, err := b.Cluster.NodeExec(ctx, b.Node, script); err != nil {
		return nil, fmt.Errorf("swap: %w", err)
	}
	return func(ctx context.Context) error {
		// The kernel ends swapoff if the memory of the last pods is not free yet.
		return eventually(ctx, "swap off", func(ctx context.Context) error {
			_, err := b.Cluster.NodeExec(ctx, b.Node, fmt.Sprintf("swapoff %[1]s && rm %[1]s", swapFile))
			return err
		})
	}, nil
}

// cgroup returns the cgroup directory of the pod's only container, for either cgroup driver.
func (b *Bench) cgroup(ctx context.Context, pod string) (dir string, err error) {
	err = eventually(ctx, "cgroup of "+pod, func(ctx context.Context) error {
		p, err := b.pod(ctx, pod)
		if err != nil {
			return err
		}
		id := ""
		for _, c := range p.Status.ContainerStatuses {
			_, id, _ = strings.Cut(c.ContainerID, "://")
		}
		if id == "" {
			return errors.New("its container has no id yet")
		}
		out, err := b.Cluster.NodeExec(ctx, b.Node, "find /sys/fs/cgroup/kubepods* -type d -name '*"+id+"*'")
		if err != nil {
			return err
		}
		found := strings.Fields(out)
		if len(found) != 1 {
			return fmt.Errorf("want one directory with %s in its name, found %q", id, out)
		}
		dir = found[0]
		return nil
	})
	return dir, err
}

// clock returns how far the node's wall clock, which stamps log lines, is ahead of the node's uptime, in seconds.
func (b *Bench) clock(ctx context.Context) (float64, error) {
	out, err := b.Cluster.NodeExec(ctx, b.Node, `sed -n 's/^btime //p' /proc/stat`)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

// numaMemory returns the NUMA node's meminfo, in bytes by name.
func (b *Bench) numaMemory(ctx context.Context) (map[string]int64, error) {
	out, err := b.Cluster.NodeExec(ctx, b.Node, fmt.Sprintf("cat /sys/devices/system/node/node%d/meminfo", b.NUMA))
	if err != nil {
		return nil, err
	}
	return parseNUMAMemory(out)
}

// parseNUMAMemory reads lines like "Node 1 MemFree:  1024 kB".
func parseNUMAMemory(text string) (map[string]int64, error) {
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[4] != "kB" {
			continue // counts of hugepages
		}
		n, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("meminfo line %q: %w", line, err)
		}
		values[strings.TrimSuffix(fields[2], ":")] = n << 10
	}
	if values["MemTotal"] == 0 {
		return nil, errors.New("meminfo without MemTotal")
	}
	return values, nil
}
