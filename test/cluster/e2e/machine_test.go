// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

// sysfs writes a value to files below /sys/devices/system on the node, and the
// former values back at the end of the test.
func (s suite) sysfs(t *testing.T, value string, files ...string) {
	t.Helper()
	for _, f := range files {
		f = "/sys/devices/system/" + f
		before := s.file(t, f)
		write := func(v string) string { return "echo " + v + " >" + f }
		t.Cleanup(func() {
			if _, err := s.NodeExec(context.Background(), s.node, write(before)); err != nil {
				t.Errorf("put %s back: %v", f, err)
			}
		})
		s.sysfsAgain(t, value, f)
	}
}

// sysfsAgain writes another value to a file to which sysfs has written in the same test.
func (s suite) sysfsAgain(t *testing.T, value, file string) {
	t.Helper()
	_, err := s.NodeExec(t.Context(), s.node, "echo "+value+" >/sys/devices/system/"+strings.TrimPrefix(file, "/sys/devices/system/"))
	require.NoError(t, err)
}

func online(cpu int) string { return fmt.Sprintf("cpu/cpu%d/online", cpu) }

// changes are differences of capacities, by device and capacity.
type changes map[string]map[string]int64

// republished waits until the node's slice is written again, requires that this is
// the only write since before, and returns the slice and its changes.
func (s suite) republished(t *testing.T, before resourceapi.ResourceSlice) (resourceapi.ResourceSlice, changes) {
	t.Helper()
	var after resourceapi.ResourceSlice
	eventually(t, "new slice", func(context.Context) error {
		if after = s.slice(t); after.Generation == before.Generation {
			return fmt.Errorf("still generation %d", after.Generation)
		}
		return nil
	})
	require.Equal(t, before.UID, after.UID, "the slice is updated, not replaced")
	require.Equal(t, before.Generation+1, after.Generation, "one change of the machine, one of the slice")
	require.Len(t, after.Spec.Devices, len(before.Spec.Devices))
	diff := changes{}
	was, is := amounts(before), amounts(after)
	for device := range was {
		require.ElementsMatch(t, slices.Collect(maps.Keys(was[device])), slices.Collect(maps.Keys(is[device])), device)
		for name, n := range is[device] {
			if d := n - was[device][name]; d != 0 && diff[device] == nil {
				diff[device] = map[string]int64{name: d}
			} else if d != 0 {
				diff[device][name] = d
			}
		}
	}
	return after, diff
}

// healthy waits until pod, claim and metric report the claim's device as healthy,
// or with the reason and the problem if these are not empty. The pod has the claim's name.
func (s suite) healthy(t *testing.T, name, reason, problem string) {
	t.Helper()
	status, ready := corev1.ResourceHealthStatusHealthy, metav1.ConditionTrue
	if reason != "" {
		status, ready = corev1.ResourceHealthStatusUnhealthy, metav1.ConditionFalse
	}
	eventually(t, "health of the device of claim "+name, func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions)
		if err != nil {
			return err
		}
		got := p.Status.ContainerStatuses[0].AllocatedResourcesStatus
		if len(got) != 1 || len(got[0].Resources) != 1 {
			return fmt.Errorf("pod says %+v, want one resource", got)
		}
		state, message := got[0].Resources[0].Health, ptr.Deref(got[0].Resources[0].Message, "")
		if state != status || !strings.Contains(message, problem) {
			return fmt.Errorf("pod says %s with %q, want %s with %q", state, message, status, problem)
		}
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(ctx, name, getOptions)
		if err != nil {
			return err
		}
		if d := c.Status.Devices; len(d) != 1 || len(d[0].Conditions) == 0 || d[0].Conditions[0].Type != "Ready" ||
			d[0].Conditions[0].Status != ready || !strings.Contains(d[0].Conditions[0].Message, problem) {
			return fmt.Errorf("claim says %+v, want Ready %s with %q", d, ready, problem)
		}
		reasons, want := health.Reasons(), "0"
		if reason != "" {
			reasons, want = []string{reason}, "1"
		}
		for _, r := range reasons {
			if got := s.metric(t, "frontend", fmt.Sprintf("cpumem_frontend_unhealthy_devices{reason=%q}", r)); got != want {
				return fmt.Errorf("metric says %s unhealthy devices for the reason %s, want %s", got, r, want)
			}
		}
		return nil
	})
}

// metric returns the value of a metric of the node's daemon. The name includes the labels.
func (s suite) metric(t *testing.T, component, name string) string {
	t.Helper()
	text := s.metrics(t, component)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no metric %s in %s", name, text)
	return ""
}

// metrics returns the metrics of the node's daemon.
func (s suite) metrics(t *testing.T, component string) string {
	t.Helper()
	p := s.daemon(t, component)
	port := fmt.Sprint(p.Spec.Containers[0].Ports[0].ContainerPort)
	data, err := s.client.CoreV1().Pods(namespace).ProxyGet("http", p.Name, port, "metrics", nil).DoRaw(t.Context())
	require.NoError(t, err)
	return string(data)
}

// A06: free and claimed CPUs go offline and come back; hugepages are taken away and
// come back. Each change of CPUs is published once, and running claims stay.
func TestA06_MachineChanges(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	claim := s.claim(t, "a06", "numa-3", capacity{"cpu": "2"})
	s.claim(t, "a06-later", "numa-3", capacity{"cpu": "1"})
	p := s.run(t, pod("a06", []string{"mask", "sleep"}, "a06"))
	held := cpus(t, s.lines(t, "a06", "mask")["mask"].CPUs)
	free := cpus(t, "12-15").Difference(held)
	first := s.slice(t)
	state := s.nodeState(t)
	file := "/var/run/cdi/dra.cpumem-claim_" + string(claim.UID) + ".json"
	record := s.file(t, file)
	kept := func() {
		t.Helper()
		require.Equal(t, record, s.file(t, file), "the claim's file")
		require.Equal(t, held.String(), s.cgroup(t, p, "main", "cpuset.cpus"))
	}

	gone := free.List()[1]
	s.sysfs(t, "0", online(gone))
	after, diff := s.republished(t, first)
	require.Equal(t, changes{"numa-3": {"cpu": -1}}, diff)
	kept()
	require.Equal(t, held.String(), s.cgroup(t, p, "main", "cpuset.cpus.effective"))
	require.Equal(t, cpus(t, state.Shared.CPUs).Difference(cpuset.New(gone)).String(), s.nodeState(t).Shared.CPUs)
	s.run(t, pod("a06-later", []string{"mask", "sleep"}, "a06-later"))
	require.Equal(t, fmt.Sprint(free.List()[0]), s.lines(t, "a06-later", "mask")["mask"].CPUs, "claims go on with what is left")
	s.remove(t, "a06-later")

	lost := held.List()[1]
	s.sysfs(t, "0", online(lost))
	after, diff = s.republished(t, after)
	require.Equal(t, changes{"numa-3": {"cpu": -1}}, diff)
	kept()
	require.Equal(t, fmt.Sprint(held.List()[0]), s.cgroup(t, p, "main", "cpuset.cpus.effective"), "it runs on what is left of its CPUs")

	s.healthy(t, "a06", health.ReasonCPUs, fmt.Sprintf("CPUs %d of a claim's CPUs %s are offline", lost, held))

	s.sysfsAgain(t, "1", online(lost))
	after, diff = s.republished(t, after)
	require.Equal(t, changes{"numa-3": {"cpu": 1}}, diff)
	s.sysfsAgain(t, "1", online(gone))
	after, diff = s.republished(t, after)
	require.Equal(t, changes{"numa-3": {"cpu": 1}}, diff)
	require.Equal(t, first.Spec.Devices, after.Spec.Devices)
	kept()
	require.Equal(t, held.String(), s.cgroup(t, p, "main", "cpuset.cpus.effective"))
	require.Equal(t, state.Shared, s.nodeState(t).Shared)

	s.healthy(t, "a06", "", "")

	// The kernel takes a while to make pages, and the amount grows page by page:
	// only the loss of pages is one change.
	const pages = "node/node1/hugepages/hugepages-2048kB/nr_hugepages"
	s.sysfs(t, "58", pages)
	_, diff = s.republished(t, after)
	require.Equal(t, changes{"numa-1": {"hugepages_2Mi": -6 * 2 << 20, "memory": 6 * 2 << 20}}, diff)
	s.sysfsAgain(t, "64", pages)
	eventually(t, "pages back", func(context.Context) error {
		if got := amounts(s.slice(t))["numa-1"]["hugepages_2Mi"]; got != 64*2<<20 {
			return fmt.Errorf("hugepages_2Mi is %d", got)
		}
		return nil
	})
	require.Equal(t, first.Spec.Devices, s.slice(t).Spec.Devices)
	kept()
}

// A06, I1: the only CPU of a claim in the pool goes offline. The kernel lets the container run
// on the CPUs of the cgroup above, and the actuator moves it to the shared pool, off the CPU of another
// claim. The container has its CPU again when the CPU comes back.
func TestA06_NoCPULeft(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	s.claim(t, "a06-none", "numa-3", capacity{"cpu": "1"})
	s.claim(t, "a06-beside", "numa-3", capacity{"cpu": "1"})
	p := s.run(t, pod("a06-none", []string{"mask", "sleep"}, "a06-none"))
	s.run(t, pod("a06-beside", []string{"mask", "sleep"}, "a06-beside"))
	held, beside := s.lines(t, "a06-none", "mask")["mask"].CPUs, cpus(t, s.lines(t, "a06-beside", "mask")["mask"].CPUs)
	dir, cpu := s.cgroupDir(t, p, "main"), cpus(t, held).List()[0]

	s.sysfs(t, "0", online(cpu))
	s.healthy(t, "a06-none", health.ReasonCPUs, fmt.Sprintf("CPUs %d of a claim's CPUs %d are offline", cpu, cpu))
	s.becomes(t, s.nodeState(t).Shared.CPUs, dir, "cpuset.cpus")
	effective := cpus(t, s.file(t, dir+"/cpuset.cpus.effective"))
	require.True(t, effective.Intersection(beside).IsEmpty(), "%s has CPUs of another claim, %s", effective, beside)

	s.sysfsAgain(t, "1", online(cpu))
	s.becomes(t, held, dir, "cpuset.cpus")
	s.becomes(t, held, dir, "cpuset.cpus.effective")
	s.healthy(t, "a06-none", "", "")
}

// A72: kubepods loses a CPU while the driver runs. The CPU is not published, and a
// claim of all published CPUs of its zone starts. The claim's partition takes CPUs
// from the same cgroup files and does not change the slice.
func TestA72_RestrictedKubepods(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	file := s.levelDir("") + "/cpuset.cpus"
	write := func(ctx context.Context, cpus string) error {
		_, err := s.NodeExec(ctx, s.node, "echo "+cpus+" >"+file)
		return err
	}
	all := map[string]int64{"numa-0": 3, "numa-1": 4, "numa-2": 4, "numa-3": 4, "numa-4": 0}
	less := maps.Clone(all)
	less["numa-3"] = 3
	s.publishes(t, all)
	// With names, because the kernel refuses an empty list while processes are below.
	whole := s.file(t, "/sys/devices/system/cpu/online")
	t.Cleanup(func() {
		if err := write(context.Background(), whole); err != nil {
			t.Errorf("put %s back: %v", file, err)
		}
	})
	require.NoError(t, write(t.Context(), "0-14"))
	s.publishes(t, less)
	require.Equal(t, "0-14", s.nodeState(t).Shared.CPUs)

	s.claim(t, "a72", "numa-3", capacity{"cpu": "3", "memory": "32Mi"})
	p := s.run(t, pod("a72", []string{"mask", "sleep"}, "a72"))
	require.Equal(t, "12-14", s.cgroup(t, p, "main", "cpuset.cpus.effective"))
	require.NoError(t, write(t.Context(), whole))
	s.publishes(t, all)
	require.Equal(t, "12-14", s.cgroup(t, p, "main", "cpuset.cpus.effective"))
}

// A72: another program's partition keeps its CPU while claims come and go. The CPU is not
// published, and the tool names the partition.
func TestA72_PartitionElsewhere(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	// A child of the root would need CPUs that no sibling names in cpuset.cpus.
	const above, other = "/sys/fs/cgroup/other", "/sys/fs/cgroup/other/partition"
	exec := func(ctx context.Context, command string) string {
		out, err := s.NodeExec(ctx, s.node, command)
		if err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
		return strings.TrimSpace(out)
	}
	all := map[string]int64{"numa-0": 3, "numa-1": 4, "numa-2": 4, "numa-3": 4, "numa-4": 0}
	less := maps.Clone(all)
	less["numa-3"] = 3
	s.shareTool(t)
	s.publishes(t, all)
	t.Cleanup(func() { exec(context.Background(), "[ ! -d "+above+" ] || rmdir "+other+" "+above) })
	exec(t.Context(), "mkdir "+above+" && echo +cpuset >"+above+"/cgroup.subtree_control && mkdir "+other+
		" && echo 15 >"+above+"/cpuset.cpus.exclusive && echo 15 >"+other+"/cpuset.cpus.exclusive && echo root >"+other+"/cpuset.cpus.partition")
	require.Equal(t, "root", s.file(t, other+"/cpuset.cpus.partition"))
	s.publishes(t, less)
	require.Contains(t, exec(t.Context(), "/share/cpumem inspect"),
		`the cgroup "other/partition" is a cpuset partition (root) of another program`)

	s.claim(t, "a72-beside", "numa-3", capacity{"cpu": "3", "memory": "32Mi"})
	p := s.run(t, pod("a72-beside", []string{"mask", "sleep"}, "a72-beside"))
	require.Equal(t, "12-14", s.cgroup(t, p, "main", "cpuset.cpus.effective"))
	s.remove(t, "a72-beside")
	require.Equal(t, "root", s.file(t, other+"/cpuset.cpus.partition"))
	require.Equal(t, "15", s.file(t, other+"/cpuset.cpus.effective"))
	exec(t.Context(), "rmdir "+other+" "+above)
	s.publishes(t, all)
}

// A71: the CPUs of isolcpus (-kernel-args) are not published, and a claim of all
// published CPUs of a zone starts.
func TestA71_Isolcpus(t *testing.T) {
	longOnly(t)
	for _, name := range theSuite.NodeNames() {
		s := theSuite.on(name)
		if !s.booted(t, "isolcpus=") {
			t.Skip("the nodes were booted without isolcpus: KERNEL_ARGS='isolcpus=1' LONG=1 make e2e RUN=A71")
		}
		left, isolated := map[string]int64{}, cpus(t, s.file(t, "/sys/devices/system/cpu/isolated"))
		require.False(t, isolated.IsEmpty(), "the kernel has isolated no CPU")
		for _, cpu := range isolated.List() {
			zone := s.file(t, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/node*/cpulist", cpu))
			for _, d := range s.slice(t).Spec.Devices {
				if s.file(t, fmt.Sprintf("/sys/devices/system/node/node%d/cpulist",
					*d.Attributes["resource.kubernetes.io/numaNode"].IntValue)) == zone {
					left[d.Name]++
				}
			}
			require.NotContains(t, cpus(t, s.nodeState(t).Shared.CPUs).List(), cpu, "shared pool of %s", name)
		}
		for _, d := range s.slice(t).Spec.Devices {
			require.Equal(t, left[d.Name], ptr.Deref(d.Attributes["dra.cpumem/numIsolatedCPUs"].IntValue, 0), "%s %s", name, d.Name)
		}
		all := amounts(s.slice(t))["numa-1"]["cpu"]
		s.claim(t, "a71-"+name, "numa-1", capacity{"cpu": fmt.Sprint(all), "memory": "32Mi"})
		p := s.run(t, pod("a71-"+name, []string{"mask", "sleep"}, "a71-"+name))
		got := cpus(t, s.cgroup(t, p, "main", "cpuset.cpus.effective"))
		require.Equal(t, int(all), got.Size())
		require.Empty(t, got.Intersection(isolated).List())
	}
}
