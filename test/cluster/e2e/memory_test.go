// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// drivers runs a case at the same time on a node of each cgroup driver. run gets
// name with the node's name appended, for the case's objects.
func drivers(t *testing.T, name string, run func(t *testing.T, s suite, name string)) {
	for _, n := range []string{node, wide} {
		s := theSuite.on(n)
		t.Run(s.CgroupDriver(n), func(t *testing.T) {
			t.Parallel()
			run(t, s, name+"-"+n)
		})
	}
}

// systemd reports whether systemd makes the cgroups of the suite's node.
func (s suite) systemd() bool { return s.CgroupDriver(s.node) == cluster.CgroupDriverSystemd }

// setMin gives a level another memory.min, as kubelet does.
func (s suite) setMin(t *testing.T, dir, value string) {
	command := "echo " + value + " >" + dir + "/memory.min"
	if s.systemd() {
		command = "systemctl set-property --runtime " + path.Base(dir) + " MemoryMin=" + value
	}
	if _, err := s.NodeExec(context.Background(), s.node, command); err != nil {
		t.Errorf("memory.min of %s: %v", dir, err)
	}
}

// reload makes systemd, if the node has it, write its own values into all cgroups.
func (s suite) reload(t *testing.T) {
	t.Helper()
	if s.systemd() {
		_, err := s.NodeExec(t.Context(), s.node, "systemctl daemon-reload")
		require.NoError(t, err)
	}
}

// unit returns what systemd knows about the protection of a slice unit, for a failure.
func (s suite) unit(dir string) string {
	if !s.systemd() {
		return ""
	}
	out, err := s.NodeExec(context.Background(), s.node,
		"systemctl show -p MemoryMin,DropInPaths "+path.Base(dir)+"; grep MemoryMin /run/systemd/transient/*/*")
	return fmt.Sprint(out, err)
}

// becomes waits until a cgroup's file has the content.
func (s suite) becomes(t *testing.T, want, dir, file string) {
	t.Helper()
	eventually(t, dir+"/"+file, func(context.Context) error {
		if got := s.file(t, dir+"/"+file); got != want {
			return fmt.Errorf("it is %s, want %s", got, want)
		}
		return nil
	})
}

// protection waits until the protection condition of the claim's one device has the
// status and the reason.
func (s suite) protection(t *testing.T, claim string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, "protection of claim "+claim, func(ctx context.Context) error {
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(ctx, claim, getOptions)
		if err != nil {
			return err
		}
		if len(c.Status.Devices) != 1 {
			return fmt.Errorf("devices %+v", c.Status.Devices)
		}
		condition := meta.FindStatusCondition(c.Status.Devices[0].Conditions, "MemoryProtectionEffective")
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("condition %+v, want %s, %s", condition, status, reason)
		}
		return nil
	})
}

// A30, A31, A40, A46: a claim of 4 CPUs and 512Mi of one NUMA node. The container
// sees them, and every cgroup above it has their values, whatever systemd writes.
// When the claim is gone, the former values are back.
func TestA40_CPUsAndMemoryOfOneNode(t *testing.T) {
	drivers(t, "a40", func(t *testing.T, s suite, name string) {
		const m = "536870912"
		all := map[string]string{node: "0-7", wide: "0-15"}[s.node]
		rest := cpus(t, all).Difference(cpus(t, "4-7")).String()
		pool, partition, isolation := rest, "", ""
		if s.partitions(t) {
			// The pool keeps the claim's CPUs: the kernel takes them out of all
			// other cgroups.
			pool, partition, isolation = all, `"partition":"root",`, `"cpu.isolation":"partition",`
		}
		kubepods, level := s.levelDir(""), s.levelDir("besteffort")
		t.Cleanup(func() { s.setMin(t, kubepods, "0") })
		s.setMin(t, kubepods, "8192")
		pooled := s.run(t, pod(name+"-pooled", []string{"mask", "sleep"}))
		s.claim(t, name, "numa-1", capacity{"cpu": "4", "memory": "512Mi"})
		p := s.run(t, pod(name, []string{"mask", "view", "touch", "64Mi", "sleep"}, name))
		out := s.lines(t, name, "touch")
		require.Equal(t, "4-7", out["mask"].CPUs, "from the first instruction on")
		require.Equal(t, "1", out["view"].Mems)
		require.Equal(t, map[string]int{"1": 64 << 20 / 4096}, out["touch"].PagesPerNode, "every page is of the claimed node")
		require.Equal(t, pool, s.nodeState(t).Shared.CPUs)

		stands := func(when string) {
			t.Helper()
			for file, want := range map[string]string{
				"cpuset.cpus": "4-7", "cpuset.cpus.effective": "4-7", "cpuset.mems": "1",
				"memory.max": m, "memory.min": m, "memory.low": "0", "memory.high": "max",
			} {
				require.Equal(t, want, s.cgroup(t, p, "main", file), "container %s, %s", file, when)
			}
			require.Equal(t, m, s.cgroup(t, p, "", "memory.min"), "pod, %s", when)
			require.Equal(t, m, s.file(t, level+"/memory.min"), "QoS level, %s", when)
			if got := s.file(t, kubepods+"/memory.min"); got != m {
				require.Equal(t, m, got, "kubepods, %s: %s", when, s.unit(kubepods))
			}
			require.Equal(t, pool, s.cgroup(t, pooled, "main", "cpuset.cpus"), "pool, %s", when)
			require.Equal(t, rest, s.cgroup(t, pooled, "main", "cpuset.cpus.effective"), "pool, %s", when)
		}
		stands("at first")
		s.protection(t, name, metav1.ConditionTrue, "Protected")
		s.reload(t)
		stands("after systemd has written its values")
		s.shows(t, name, `{"request":"zone","cpus":"4-7",`+partition+
			`"mems":"1","memory":{"min":536870912,"low":0,"high":"max","max":536870912},"parameters":{`+isolation+
			`"cpu.placement":"packed","cpu.wholeCores":"false","cpu.wholeL3":"false","memory.protection":"auto"}}`)

		s.remove(t, name)
		s.released(t, all)
		s.becomes(t, "8192", kubepods, "memory.min")
		s.becomes(t, "0", level, "memory.min")
		s.becomes(t, all, s.cgroupDir(t, pooled, "main"), "cpuset.cpus")
		s.reload(t)
		require.Equal(t, "8192", s.file(t, kubepods+"/memory.min"))
		require.Equal(t, "0", s.file(t, level+"/memory.min"))
		require.Equal(t, all, s.cgroup(t, pooled, "main", "cpuset.cpus"))
	})
}

// A41: a claim on a Burstable pod with a limit. memory.high is half-way from the
// claim to the limit.
func TestA41_LimitAndThrottling(t *testing.T) {
	drivers(t, "a41", func(t *testing.T, s suite, name string) {
		s.claim(t, name, "", capacity{"memory": "64Mi"}, parameters(`"memory":{"throttlingFactor":0.5}`))
		p := pod(name, []string{"sleep"}, name)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
		p = s.run(t, p)
		const claimed, half, limit = "67108864", "100663296", "134217728"
		for file, want := range map[string]string{"memory.max": limit, "memory.high": half, "memory.low": claimed, "memory.min": "0"} {
			require.Equal(t, want, s.cgroup(t, p, "main", file), "container %s", file)
		}
		require.Equal(t, claimed, s.cgroup(t, p, "", "memory.low"), "pod")
		require.Equal(t, limit, s.cgroup(t, p, "", "memory.max"), "pod, by kubelet")
		require.Equal(t, claimed, s.file(t, s.levelDir("burstable")+"/memory.low"), "QoS level")
		require.Equal(t, claimed, s.file(t, s.levelDir("")+"/memory.low"), "kubepods")
		s.protection(t, name, metav1.ConditionTrue, "Protected")
	})
}

// A42: a container can map as many hugepages as it has claimed, and not one more.
func TestA42_Hugepages(t *testing.T) {
	drivers(t, "a42", func(t *testing.T, s suite, name string) {
		s.claim(t, name, "", capacity{"hugepages_2Mi": "64Mi"})
		p := s.run(t, pod(name, []string{"mask", "hugepages", "2Mi", "33", "sleep"}, name))
		got := s.lines(t, name, "hugepages")["hugepages"]
		require.Equal(t, 32, got.Got, "pages; stopped by %q", got.Stopped)
		for _, file := range []string{"hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"} {
			require.Equal(t, "67108864", s.cgroup(t, p, "main", file))
			require.Equal(t, "67108864", s.cgroup(t, p, "", file), "pod")
		}
		s.reload(t)
		require.Equal(t, "67108864", s.cgroup(t, p, "", "hugetlb.2MB.max"), "pod, after systemd has written its values")
		require.Equal(t, s.nodeState(t).Shared.CPUs, cpus(t, s.lines(t, name, "mask")["mask"].CPUs).String(),
			"no CPUs claimed: it runs on the shared pool")

		// A pod without a claim has what kubelet gives it: no hugepages.
		plain := s.run(t, pod(name+"-plain", []string{"hugepages", "2Mi", "1", "sleep"}))
		require.Zero(t, s.lines(t, name+"-plain", "hugepages")["hugepages"].Got)
		require.Equal(t, "0", s.cgroup(t, plain, "", "hugetlb.2MB.max"), "sizes not claimed stay as kubelet set them")
	})
}

// A42, A78: a DeviceClass lifts the hugepage limits, or leaves them to kubelet, which
// allows no hugepages to a pod without a request for them. A claim cannot lift the limits.
func TestA42_HugepageLimits(t *testing.T) {
	longOnly(t)
	drivers(t, "a42-limits", func(t *testing.T, s suite, name string) {
		want := map[string]struct {
			file string
			got  int
		}{"unlimited": {"max", 5}, "unchanged": {"0", 0}}
		for limits := range want {
			name := name + "-" + limits
			s.class(t, name, parameters(`"hugepages":{"limits":"`+limits+`"}`))
			s.claimOf(t, name, name, "", capacity{"hugepages_2Mi": "8Mi"})
			s.create(t, pod(name, []string{"hugepages", "2Mi", "5", "sleep"}, name))
		}
		for limits, want := range want {
			name := name + "-" + limits
			p := s.running(t, name)
			require.Equal(t, want.got, s.lines(t, name, "hugepages")["hugepages"].Got, limits)
			require.Equal(t, want.file, s.cgroup(t, p, "", "hugetlb.2MB.max"), limits)
			require.Equal(t, want.file, s.cgroup(t, p, "", "hugetlb.2MB.rsvd.max"), limits)
		}
		greedy := name + "-greedy"
		s.claim(t, greedy, "", capacity{"hugepages_2Mi": "2Mi"}, parameters(`"hugepages":{"limits":"unlimited"}`))
		s.create(t, pod(greedy, []string{"sleep"}, greedy))
		s.refused(t, greedy, "hugepages.limits", "DeviceClass")
	})
}

// kubelet restarts the node's kubelet with other fields in its configuration, until
// the end of the test.
func (s suite) kubelet(t *testing.T, fields map[string]any) {
	t.Helper()
	before := s.file(t, kubeletConfig)
	restart := func(config string) error {
		_, err := s.NodeExec(context.Background(), s.node, "cat >"+kubeletConfig+" <<'END'\n"+config+"\nEND\nservice restart kubelet")
		return err
	}
	var config map[string]any
	require.NoError(t, json.Unmarshal([]byte(before), &config))
	for k, v := range fields {
		if old, ok := config[k].(map[string]any); ok {
			maps.Copy(old, v.(map[string]any))
			continue
		}
		config[k] = v
	}
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, restart(string(data)))
	t.Cleanup(func() {
		if err := restart(before); err != nil {
			t.Errorf("kubelet's configuration: %v", err)
		}
	})
}

// A44: kubelet writes zeros over the driver's values. The driver repairs them, and
// claim, metrics and events report it.
func TestA44_SecondWriter(t *testing.T) {
	longOnly(t)
	drivers(t, "a44", func(t *testing.T, s suite, name string) {
		s.claim(t, name, "numa-0", capacity{"memory": "64Mi"})
		s.run(t, pod(name, []string{"sleep"}, name))
		s.protection(t, name, metav1.ConditionTrue, "Protected")
		s.kubelet(t, map[string]any{"featureGates": map[string]any{"MemoryQoS": true}})
		s.run(t, pod(name+"-plain", []string{"sleep"}))
		s.protection(t, name, metav1.ConditionFalse, "Overwritten")
		s.becomes(t, "67108864", s.levelDir(""), "memory.min")
		require.NotEqual(t, "0", s.metric(t, "actuator", `cpumem_actuator_repaired_total{file="memory.min"}`))
		require.NotEqual(t, "0", s.metric(t, "frontend", "cpumem_frontend_memory_overwritten"))
		require.Equal(t, "1", s.metric(t, "frontend", `cpumem_frontend_kubelet_findings{reason="SecondMemoryOwner"}`),
			"seen in kubelet's configuration")
		eventually(t, "events on the node", func(ctx context.Context) error {
			list, err := s.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + s.node,
			})
			if err != nil {
				return err
			}
			said := map[string]bool{}
			for _, e := range list.Items {
				said[e.Reason] = said[e.Reason] || strings.Contains(e.Message, "memory.min")
			}
			if !said["MemoryValuesOverwritten"] || !said["SecondMemoryOwner"] {
				return fmt.Errorf("events %v", said)
			}
			return nil
		})
	})
}
