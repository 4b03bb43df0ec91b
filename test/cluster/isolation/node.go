// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// settled waits until no claim is prepared and no cgroup of a pod lacks a CPU any more, so that what one claim leaves behind
// is not measured with the next one: a partition's CPUs are back when its container ends, long before kubelet releases the
// claim, and a claim of CPUs that are still held is tried again after 15 s only. There must be no claim.
func (b *Bench) settled(ctx context.Context) error {
	return objects.Eventually(ctx, "CPUs given back to everybody", 300*time.Millisecond, func(ctx context.Context) error {
		out, err := b.Cluster.NodeExec(ctx, b.Node,
			"ls -d /var/run/cdi/dra.cpumem-claim_* 2>/dev/null; cat /sys/devices/system/cpu/online; cat $(find /sys/fs/cgroup/kubepods* -name cpuset.cpus.effective) | sort -u")
		if err != nil {
			return err // of a container that ends now, for example
		}
		if sets := strings.Fields(out); len(sets) != 2 || sets[0] != sets[1] {
			return fmt.Errorf("want no claim and all to have CPUs %s, found %v", sets[:min(1, len(sets))], sets[min(1, len(sets)):])
		}
		return nil
	})
}

// balance is what the kernel balances load over.
type balance struct {
	isolated string      // CPUs of isolated partitions, as the root cgroup says
	domains  map[int]int // scheduling domains of each CPU
}

func (b *Bench) balance(ctx context.Context) (balance, error) {
	out, err := b.Cluster.NodeExec(ctx, b.Node, "cat /sys/fs/cgroup/cpuset.cpus.isolated")
	if err != nil {
		return balance{}, err
	}
	text, err := b.Cluster.NodeExec(ctx, b.Node, "cat /proc/schedstat")
	if err != nil {
		return balance{}, err
	}
	domains, err := parseDomains(text)
	return balance{isolated: strings.TrimSpace(out), domains: domains}, err
}

// parseDomains counts the lines "domainN ..." below each line "cpuN ..." of /proc/schedstat.
func parseDomains(text string) (map[int]int, error) {
	domains, cpu := map[int]int{}, -1
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number, ok := strings.CutPrefix(word, "cpu"); ok {
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("schedstat: line %q: want cpu and a number", strings.TrimSpace(line))
			}
			cpu = n
			domains[cpu] = 0
		} else if strings.HasPrefix(word, "domain") {
			if cpu < 0 {
				return nil, fmt.Errorf("schedstat: line %q before the first CPU", strings.TrimSpace(line))
			}
			domains[cpu]++
		}
	}
	if cpu < 0 {
		return nil, fmt.Errorf("schedstat: no CPU in %q", text)
	}
	return domains, nil
}

// parseLast reads the probe's last line of the action.
func parseLast(output, action string, into any) error {
	found := ""
	for line := range strings.Lines(output) {
		var said struct{ Action, Error string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			if strings.TrimSpace(line) == "" {
				continue
			}
			return fmt.Errorf("output %q: %w", line, err)
		}
		if said.Error != "" {
			return fmt.Errorf("%s: %s", said.Action, said.Error)
		}
		if said.Action == action {
			found = line
		}
	}
	if found == "" {
		return fmt.Errorf("no line of %s in %q", action, output)
	}
	return json.Unmarshal([]byte(found), into)
}
