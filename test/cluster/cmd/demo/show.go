// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// demo is the running cluster and the report about it.
type demo struct {
	*cluster.Cluster
	client kubernetes.Interface
	report *report
}

// tale is what the parts of the story hand to later parts.
type tale struct {
	neighbours []*corev1.Pod
	template   *resourceapi.ResourceClaimTemplate
	pod        *corev1.Pod
	claim      *resourceapi.ResourceClaim
	decision   decision
	// mine and rest are the claim's CPUs and all other CPUs.
	mine, rest cpuset.CPUSet
}

var allCPUs = cpuset.New(0, 1, 2, 3, 4, 5, 6, 7)

// show runs the parts of the story in order until one returns an error.
func (d *demo) show(ctx context.Context) error {
	var t tale
	for _, part := range []func(context.Context, *tale) error{
		d.offer, d.before, d.allocation, d.files, d.inside, d.above, d.beside, d.after,
	} {
		if err := part(ctx, &t); err != nil {
			return err
		}
	}
	return nil
}

func amounts[K ~string](capacity map[K]resource.Quantity) map[string]string {
	out := make(map[string]string, len(capacity))
	for name, q := range capacity {
		out[string(name)] = q.String()
	}
	return out
}

func (d *demo) offer(ctx context.Context, _ *tale) error {
	var list *resourceapi.ResourceSliceList
	// The frontend is ready before the API server has its slices.
	err := objects.Eventually(ctx, "slices of "+node, time.Second, func(ctx context.Context) (err error) {
		list, err = d.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
			FieldSelector: "spec.driver=dra.cpumem,spec.nodeName=" + node,
		})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("none")
		}
		return err
	})
	if err != nil {
		return err
	}
	d.report.heading("What the node offers (kubectl get resourceslices -o yaml)")
	offered := map[string][]string{}
	cpus := int64(0)
	for _, slice := range list.Items {
		for _, dev := range slice.Spec.Devices {
			values := map[resourceapi.QualifiedName]resource.Quantity{}
			for name, c := range dev.Capacity {
				values[name] = c.Value
			}
			have := amounts(values)
			offered[dev.Name] = slices.Sorted(maps.Keys(have))
			cpu := dev.Capacity["cpu"].Value
			cpus += cpu.Value()
			d.report.line("device %s:", dev.Name)
			for _, name := range offered[dev.Name] {
				d.report.line("  %-14s %s", name, have[name])
			}
		}
	}
	each := []string{"cpu", "hugepages_2Mi", "memory"}
	d.report.promise("one device for each of the 2 NUMA nodes, with cpu, memory and hugepages",
		map[string][]string{"numa-0": each, "numa-1": each}, offered)
	d.report.promise("7 of the 8 CPUs can be claimed: one always stays for everybody else", int64(7), cpus)
	return nil
}

func (d *demo) before(ctx context.Context, t *tale) error {
	for _, name := range []string{"plain-1", "plain-2"} {
		pod, err := d.run(ctx, neighbour(name))
		if err != nil {
			return err
		}
		t.neighbours = append(t.neighbours, pod)
	}
	d.report.heading("Two pods without a claim")
	return d.neighbours(ctx, t, "they run on all CPUs", allCPUs)
}

// neighbours waits until the pods without a claim run on the CPUs want, prints
// where they run, and checks it.
func (d *demo) neighbours(ctx context.Context, t *tale, text string, want cpuset.CPUSet) error {
	var files, wants []string
	for _, pod := range t.neighbours {
		files, wants = append(files, containerDir(pod)+"/cpuset.cpus.effective"), append(wants, want.String())
	}
	var got []string
	// The shared pool grows a moment after the pod is gone.
	err := d.eventually(ctx, "waiting until "+text, func() error {
		contents, err := d.read(ctx, files...)
		if err != nil {
			return err
		}
		got = nil
		for _, f := range files {
			got = append(got, contents[f])
		}
		if !slices.Equal(got, wants) {
			return fmt.Errorf("they run on %v", got)
		}
		return nil
	})
	if len(got) == 0 {
		return err
	}
	for i, pod := range t.neighbours {
		d.report.line("%s: cpuset.cpus.effective %s", pod.Name, got[i])
	}
	d.report.promise(text, wants, got)
	return nil
}

func (d *demo) allocation(ctx context.Context, t *tale) (err error) {
	if t.template, t.pod, err = d.apply(ctx); err != nil {
		return err
	}
	if t.claim, err = d.claimOf(ctx, t.pod); err != nil {
		return err
	}
	d.report.heading("The claim of %s, as the scheduler allocated it", example)
	if t.claim.Status.Allocation == nil || len(t.claim.Status.Allocation.Devices.Results) != 1 {
		return fmt.Errorf("claim %s: want one allocation result, got %+v", t.claim.Name, t.claim.Status.Allocation)
	}
	result := t.claim.Status.Allocation.Devices.Results[0]
	d.report.line("device %s of %s, consumed:", result.Device, result.Pool)
	consumed := amounts(result.ConsumedCapacity)
	for _, name := range slices.Sorted(maps.Keys(consumed)) {
		d.report.line("  %-14s %s", name, consumed[name])
	}
	d.report.promise("one device gives everything that was asked for", asked(t.template), consumed)
	return nil
}

func (d *demo) files(ctx context.Context, t *tale) error {
	d.report.heading("What dra-frontend decided: files in %s", cdiDir)
	names, err := d.cdiFiles(ctx)
	if err != nil {
		return err
	}
	d.report.block(strings.Join(names, "\n"))
	claim, err := d.spec(ctx, claimFile(t))
	if err != nil {
		return err
	}
	name, value, err := claim.env()
	if err != nil {
		return err
	}
	d.report.line("the decision, which the runtime puts into the container as %s:", name)
	d.report.block(pretty(value))
	state, text, err := d.nodeState(ctx)
	if err != nil {
		return err
	}
	d.report.line("the node state, from %s:", nodeFile)
	d.report.block(pretty(text))

	if err := json.Unmarshal([]byte(value), &t.decision); err != nil {
		return err
	}
	if t.mine, err = cpuset.Parse(t.decision.CPUs); err != nil {
		return err
	}
	t.rest = allCPUs.Difference(t.mine)
	zone := strings.TrimPrefix(t.claim.Status.Allocation.Devices.Results[0].Device, "numa-")
	list := "/sys/devices/system/node/node" + zone + "/cpulist"
	contents, err := d.read(ctx, list)
	if err != nil {
		return err
	}
	local, err := cpuset.Parse(contents[list])
	if err != nil {
		return err
	}
	d.report.promise("2 CPUs and the memory of NUMA node "+zone+", the one that was allocated",
		[]any{2, true, zone}, []any{t.mine.Size(), t.mine.IsSubsetOf(local), t.decision.Mems})
	pool, err := state.pool()
	if err != nil {
		return err
	}
	d.report.promise("the shared pool is all other CPUs, and the claim is tied to its pod",
		[]any{t.rest.String(), []string{string(t.claim.UID)}},
		[]any{pool.String(), state.Pods[string(t.pod.UID)].Claims})
	return nil
}

func claimFile(t *tale) string { return "dra.cpumem-claim_" + string(t.claim.UID) + ".json" }

func (d *demo) inside(ctx context.Context, t *tale) error {
	lines, err := d.output(ctx, t.pod, "hugepages")
	if err != nil {
		return err
	}
	view, huge := lines["view"], lines["hugepages"]
	d.report.heading("What the container sees")
	for _, file := range []string{
		"cpuset.cpus", "cpuset.mems", "memory.min", "memory.low", "memory.high", "memory.max", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max",
	} {
		d.report.line("%-22s %s", file, size(view.Cgroup[file]))
	}
	var pages []string
	for _, n := range slices.Sorted(maps.Keys(lines["touch"].PagesPerNode)) {
		pages = append(pages, fmt.Sprintf("%d on node %s", lines["touch"].PagesPerNode[n], n))
	}
	d.report.line("a program that touches 64Mi, pages in numa_maps: %s", strings.Join(pages, ", "))
	d.report.line("the same asks for 33 hugepages and gets %d (%s)", huge.Got, huge.Stopped)

	d.report.promise("from its first instruction it runs on the claim's CPUs and nowhere else", t.decision.CPUs, lines["mask"].CPUs)
	d.report.promise("every page it touches is of its NUMA node",
		map[string]int{t.decision.Mems: 64 << 20 / 4096}, lines["touch"].PagesPerNode)
	const m = "536870912"
	d.report.promise("memory: protected up to the claim (min) and limited to it (max)",
		[]string{m, "0", "max", m},
		[]string{view.Cgroup["memory.min"], view.Cgroup["memory.low"], view.Cgroup["memory.high"], view.Cgroup["memory.max"]})
	d.report.promise("64Mi of hugepages are 32 pages, and not one more",
		[]any{32, "67108864"}, []any{huge.Got, view.Cgroup["hugetlb.2MB.max"]})
	return nil
}

func (d *demo) above(ctx context.Context, t *tale) error {
	d.report.heading("The cgroups above it, without which its protection is worth nothing")
	huge := podDir(t.pod) + "/hugetlb.2MB.max"
	files := []string{podDir(t.pod) + "/memory.min", levelDir(t.pod) + "/memory.min", kubepods + "/memory.min", huge}
	contents, err := d.read(ctx, files...)
	if err != nil {
		return err
	}
	var got []string
	for _, f := range files {
		d.report.line("%s %s", strings.TrimPrefix(f, "/sys/fs/cgroup/"), size(contents[f]))
		got = append(got, contents[f])
	}
	d.report.promise("pod, QoS level and kubepods protect what the claim protects; the pod may have the hugepages",
		[]string{"536870912", "536870912", "536870912", "67108864"}, got)
	return nil
}

func (d *demo) beside(ctx context.Context, t *tale) error {
	d.report.heading("The pods without a claim, now")
	return d.neighbours(ctx, t, "they were moved off CPUs "+t.mine.String()+" while they ran", t.rest)
}

func (d *demo) after(ctx context.Context, t *tale) error {
	if err := d.remove(ctx, t.pod.Name); err != nil {
		return err
	}
	d.report.heading("After the pod was deleted")
	if err := d.neighbours(ctx, t, "the others have all CPUs back, without a restart", allCPUs); err != nil {
		return err
	}
	var files []string
	var held state
	err := d.eventually(ctx, "waiting until the claim is released", func() (err error) {
		if files, err = d.cdiFiles(ctx); err != nil {
			return err
		}
		if held, _, err = d.nodeState(ctx); err != nil {
			return err
		}
		if len(held.Pods) != 0 || slices.Contains(files, claimFile(t)) {
			return fmt.Errorf("files %v, node state %+v", files, held)
		}
		return nil
	})
	if len(files) == 0 {
		return err
	}
	d.report.block(strings.Join(files, "\n"))
	d.report.promise("the claim's file is gone and the node state names no pod",
		[]any{false, 0, allCPUs.String()}, []any{slices.Contains(files, claimFile(t)), len(held.Pods), held.Shared.CPUs})
	ancestors := []string{levelDir(t.pod) + "/memory.min", kubepods + "/memory.min"}
	var contents map[string]string
	err = d.eventually(ctx, "waiting for the cgroups above", func() (err error) {
		if contents, err = d.read(ctx, ancestors...); err != nil {
			return err
		}
		for f, v := range contents {
			if v != "0" {
				return fmt.Errorf("%s is %s", f, v)
			}
		}
		return nil
	})
	if contents == nil {
		return err
	}
	var got []string
	for _, f := range ancestors {
		d.report.line("%s %s", strings.TrimPrefix(f, "/sys/fs/cgroup/"), contents[f])
		got = append(got, contents[f])
	}
	d.report.promise("QoS level and kubepods are back at zero", []string{"0", "0"}, got)
	return nil
}
