// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// settled waits until the node is as it was when b.free was read, and no cgroup of a removed pod is left. Otherwise a run
// would measure what the pod before left behind: a partition's CPUs are back when its container ends, long before kubelet
// releases the claim, and a claim of CPUs that are held is tried again only after 15 s.
func (b *Bench) settled(ctx context.Context) error {
	return objects.Eventually(ctx, "CPUs given back to everybody and cgroups removed", 300*time.Millisecond,
		func(ctx context.Context) error {
			pods, err := b.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + b.Node})
			if err != nil {
				return err
			}
			cgroups, sets, err := b.cpus(ctx)
			if err != nil {
				return err // a cgroup may have gone while it was read
			}
			if cgroups != len(pods.Items) {
				return fmt.Errorf("%d pods on the node and %d cgroups of pods", len(pods.Items), cgroups)
			}
			if sets != b.free {
				return fmt.Errorf("prepared claims and effective CPUs of cgroups are %q, want %q", sets, b.free)
			}
			return nil
		})
}

// cpus returns how many cgroups of pods there are. sets has the files of prepared claims and the effective cpusets of the pods' cgroups,
// each once.
func (b *Bench) cpus(ctx context.Context) (cgroups int, sets string, err error) {
	out, err := b.Cluster.NodeExec(ctx, b.Node,
		"find /sys/fs/cgroup/kubepods* -maxdepth 2 -type d -name '*pod[0-9a-f]*' | wc -l; "+
			"ls -d /var/run/cdi/dra.cpumem-claim_* /var/run/cdi/pci.example.com-* 2>/dev/null; "+
			"cat $(find /sys/fs/cgroup/kubepods* -name cpuset.cpus.effective) | sort -u")
	if err != nil {
		return 0, "", err
	}
	count, sets, _ := strings.Cut(out, "\n")
	cgroups, err = strconv.Atoi(strings.TrimSpace(count))
	return cgroups, strings.TrimSpace(sets), err
}

// clock returns the node's clock: seconds since the node's start, in hundredths.
func (b *Bench) clock(ctx context.Context) (seconds float64, err error) {
	out, err := b.Cluster.NodeExec(ctx, b.Node, "cat /proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(out, " ")
	return strconv.ParseFloat(first, 64)
}

// spent is what both daemons on a node took since they started, in seconds.
type spent struct {
	// calls is how long kubelet and the runtime waited: the sum of the times of the daemons' calls.
	calls float64
	// cpu is the CPU time of the daemons, for the calls and for all other work.
	cpu float64
}

// minus returns what was spent after the other moment.
func (s spent) minus(o spent) spent { return spent{s.calls - o.calls, s.cpu - o.cpu} }

// spent returns what the driver's daemons have spent. It is 0 without the driver.
func (b *Bench) spent(ctx context.Context) (all spent, err error) {
	pods, err := b.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + b.Node, LabelSelector: "app.kubernetes.io/component in (frontend, actuator)",
	})
	if err != nil {
		return all, err
	}
	for _, p := range pods.Items {
		port := strconv.Itoa(int(p.Spec.Containers[0].Ports[0].ContainerPort))
		data, err := b.Client.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, port, "metrics", nil).DoRaw(ctx)
		if err != nil {
			return all, fmt.Errorf("metrics of pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		one, err := spentOf(string(data))
		if err != nil {
			return all, fmt.Errorf("metrics of pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		all.calls += one.calls
		all.cpu += one.cpu
	}
	return all, nil
}

// spentOf reads what a daemon has spent from the daemon's metrics.
func spentOf(metrics string) (s spent, err error) {
	for line := range strings.Lines(metrics) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		sum := &s.calls
		switch name {
		case "cpumem_frontend_prepare_seconds_sum", "cpumem_actuator_call_seconds_sum":
		case "process_cpu_seconds_total":
			sum = &s.cpu
		default:
			continue
		}
		// A label's value may have spaces.
		seconds, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			return s, fmt.Errorf("line %q: %w", line, err)
		}
		*sum += seconds
	}
	return s, nil
}

// balance is what the kernel reports about load balancing.
type balance struct {
	isolated string      // CPUs of isolated partitions, as the root cgroup says
	domains  map[int]int // scheduling domains of each CPU
}

func (b *Bench) balance(ctx context.Context) (balance, error) {
	out, err := b.Cluster.NodeExec(ctx, b.Node, "cat /sys/fs/cgroup/cpuset.cpus.isolated 2>/dev/null || true")
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

// parseDomains counts the lines "domainN ..." below each line "cpuN ..." of /proc/schedstat, by CPU.
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

// parseLast decodes the probe's last line of the action. A line with an error is returned as an error.
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
