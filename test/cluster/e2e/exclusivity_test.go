// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const cgroupMount = "/sys/fs/cgroup"

// partitions reports whether the kernel of the suite's node can make a partition of
// any cgroup.
func (s suite) partitions(t *testing.T) bool {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, "ls "+s.levelDir("")+"/cpuset.cpus.exclusive || true")
	require.NoError(t, err)
	found := strings.HasSuffix(strings.TrimSpace(out), "exclusive")
	require.Equal(t, s.Kernel(s.node) != cluster.KernelStable, found, "the file cpuset.cpus.exclusive of %s", s.node)
	return found
}

// allowed returns the CPUs that a program of the node may run on.
func (s suite) allowed(t *testing.T, program string) cpuset.CPUSet {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, "set -- $(pidof "+program+"); grep Cpus_allowed_list /proc/$1/status")
	require.NoError(t, err)
	return cpus(t, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(out), "Cpus_allowed_list:")))
}

// withSide adds the container "side", without a claim, to the pod.
func withSide(p *corev1.Pod) *corev1.Pod {
	side := *p.Spec.Containers[0].DeepCopy()
	side.Name, side.Args, side.Resources = "side", []string{"mask", "sleep"}, corev1.ResourceRequirements{}
	p.Spec.Containers = append(p.Spec.Containers, side)
	return p
}

// A30, A32, A38: a claim of one container gets a partition where the kernel can
// make one; elsewhere the shared pool leaves its CPUs out. Either way no other
// container runs on the CPUs, and with a partition no program of the node does.
func TestExclusive_ByKernelOrPool(t *testing.T) {
	drivers(t, "exclusive", func(t *testing.T, s suite, name string) {
		all := cpus(t, map[string]string{node: "0-7", wide: "0-15"}[s.node])
		partition := s.partitions(t)
		s.run(t, pod(name+"-plain", []string{"mask", "sleep"}))
		plain := s.running(t, name+"-plain")
		s.claim(t, name, "", capacity{"cpu": "2", "memory": "32Mi"})
		p := s.run(t, withSide(pod(name, []string{"mask", "sleep"}, name)))
		own := cpus(t, s.lines(t, name, "mask")["mask"].CPUs)
		require.Equal(t, 2, own.Size())
		rest := all.Difference(own)

		holds := func() {
			t.Helper()
			require.Equal(t, own.String(), s.cgroup(t, p, "main", "cpuset.cpus.effective"))
			require.Equal(t, rest.String(), s.cgroup(t, p, "side", "cpuset.cpus"), "beside it")
			require.Equal(t, rest.String(), s.cgroup(t, plain, "main", "cpuset.cpus.effective"))
			if !partition {
				require.Equal(t, rest.String(), s.nodeState(t).Shared.CPUs)
				require.Equal(t, rest.String(), s.cgroup(t, plain, "main", "cpuset.cpus"))
				return
			}
			require.Equal(t, "root", s.cgroup(t, p, "main", "cpuset.cpus.partition"))
			for _, dir := range []string{s.cgroupDir(t, p, "main"), s.cgroupDir(t, p, ""), s.levelDir("besteffort"), s.levelDir("")} {
				require.Equal(t, own.String(), s.file(t, dir+"/cpuset.cpus.exclusive"), dir)
			}
			require.Equal(t, all.String(), s.nodeState(t).Shared.CPUs, "the kernel takes them out of it")
			require.Equal(t, all.String(), s.cgroup(t, plain, "main", "cpuset.cpus"), "nobody wrote it")
			require.Equal(t, rest.String(), s.file(t, cgroupMount+"/cpuset.cpus.effective"))
			for _, program := range []string{"kubelet", "containerd", "nri-actuator"} {
				require.Equal(t, rest.String(), s.allowed(t, program).String(), program)
			}
		}
		holds()
		s.reload(t)
		holds()

		// A new container in the same pod, with the same claim.
		_, err := s.NodeExec(t.Context(), s.node, "kill -9 $(head -1 "+s.cgroupDir(t, p, "main")+"/cgroup.procs)")
		require.NoError(t, err)
		before := p
		eventually(t, "restart of "+name, func(ctx context.Context) error {
			if p, err = s.client.CoreV1().Pods("default").Get(ctx, name, getOptions); err != nil {
				return err
			}
			for _, c := range p.Status.ContainerStatuses {
				if c.Name == "main" && (c.State.Running == nil || c.ContainerID == before.Status.ContainerStatuses[0].ContainerID) {
					return fmt.Errorf("container %+v", c)
				}
			}
			return nil
		})
		require.Equal(t, own.String(), s.lines(t, name, "mask")["mask"].CPUs)
		holds()

		// The refusal names the parameter and the kernel that the node lacks.
		if !partition {
			s.claim(t, name+"-must", "", capacity{"cpu": "1"}, parameters(`"cpu":{"isolation":"partition"}`))
			s.create(t, pod(name+"-must", []string{"sleep"}, name+"-must"))
			s.refused(t, name+"-must", "cpu.isolation", "6.7")
			s.remove(t, name+"-must")
		}
		s.remove(t, name)
		s.released(t, all.String())
		s.becomes(t, all.String(), s.cgroupDir(t, plain, "main"), "cpuset.cpus.effective")
		if partition {
			s.becomes(t, "", s.levelDir(""), "cpuset.cpus.exclusive")
			require.Equal(t, all.String(), s.file(t, cgroupMount+"/cpuset.cpus.effective"))
		}
	})
}

// The runtime reports no end of a container whose start failed while its pod's object exists. The CPUs of its
// partition are free for pods of all QoS classes when its pod has failed.
func TestExclusive_FailedStart(t *testing.T) {
	longOnly(t)
	drivers(t, "unstarted", func(t *testing.T, s suite, name string) {
		if !s.partitions(t) {
			t.Skip("the kernel makes no partitions")
		}
		s.claim(t, name, "", capacity{"cpu": "1"}, parameters(`"cpu":{"isolation":"partition"}`))
		p := pod(name, nil, name)
		p.Spec.RestartPolicy, p.Spec.Containers[0].Command = corev1.RestartPolicyNever, []string{"/no-such-program"}
		s.create(t, p)
		eventually(t, "a failed start of "+name, func(ctx context.Context) error {
			got, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions)
			if err != nil {
				return err
			}
			if got.Status.Phase != corev1.PodFailed {
				return fmt.Errorf("phase %s; events: %s", got.Status.Phase, s.events(ctx, got.UID))
			}
			p = got
			return nil
		})
		require.Equal(t, "StartError", p.Status.ContainerStatuses[0].State.Terminated.Reason)
		for _, level := range []string{"besteffort", ""} {
			s.becomes(t, "", s.levelDir(level), "cpuset.cpus.exclusive")
		}
	})
}

// domains returns the given CPUs that have scheduling domains: the scheduler
// balances load over them.
func (s suite) domains(t *testing.T, of cpuset.CPUSet) []int {
	t.Helper()
	var balanced []int
	cpu := -1
	for line := range strings.Lines(s.file(t, "/proc/schedstat")) {
		if _, err := fmt.Sscanf(line, "cpu%d ", &cpu); err == nil {
			continue
		}
		if strings.HasPrefix(line, "domain") && of.Contains(cpu) && !slices.Contains(balanced, cpu) {
			balanced = append(balanced, cpu)
		}
	}
	return balanced
}

// A partition that is lost is made again. While that is impossible, the claim, metrics
// and an event report it. The CPUs of an isolated partition have no load balancing. Older
// kernels than Linux 7 refuse isolated claims: they can hang for good when a process is moved
// while an isolated partition is made (docs/concepts/exclusivity.md).
func TestExclusive_LostAndMadeAgain(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	if !s.partitions(t) {
		t.Skip("the kernel makes no partitions")
	}
	const name = "lost"
	all := cpus(t, "0-15")
	isolation, kind := "partition", "root"
	if s.Kernel(s.node) == cluster.KernelNewest {
		isolation, kind = "isolated", "isolated"
	} else {
		s.claim(t, "isolated", "", capacity{"cpu": "1"}, parameters(`"cpu":{"isolation":"isolated"}`))
		s.create(t, pod("isolated", []string{"sleep"}, "isolated"))
		s.refused(t, "isolated", "cpu.isolation: isolated", "the feature needs Linux 7.0")
		s.remove(t, "isolated")
	}
	s.claim(t, name, "numa-1", capacity{"cpu": "2"}, parameters(`"cpu":{"isolation":"`+isolation+`"}`))
	p := s.run(t, pod(name, []string{"mask", "sleep"}, name))
	own := cpus(t, s.lines(t, name, "mask")["mask"].CPUs)
	dir := s.cgroupDir(t, p, "main")
	valid := func(when string) {
		t.Helper()
		s.becomes(t, kind, dir, "cpuset.cpus.partition")
		s.becomes(t, own.String(), dir, "cpuset.cpus.effective")
		if kind == "isolated" {
			require.Equal(t, own.String(), s.file(t, cgroupMount+"/cpuset.cpus.isolated"), when)
			require.Empty(t, s.domains(t, own), when)
		}
		s.healthy(t, name, "", "")
	}
	valid("at first")
	if kind == "isolated" {
		require.Equal(t, all.Difference(own).List(), s.domains(t, all))
	}

	write := func(content, dir, file string) {
		t.Helper()
		_, err := s.NodeExec(t.Context(), s.node, "echo "+content+" >"+dir+"/"+file)
		require.NoError(t, err)
	}
	write("member", dir, "cpuset.cpus.partition")
	valid("after somebody ended it")
	write("", s.cgroupDir(t, p, ""), "cpuset.cpus.exclusive")
	s.becomes(t, own.String(), s.cgroupDir(t, p, ""), "cpuset.cpus.exclusive")
	valid("after somebody took its CPUs from the pod")

	// A cgroup beside the container names one of its CPUs.
	other := path.Dir(dir) + "/other"
	_, err := s.NodeExec(t.Context(), s.node, "mkdir "+other)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = s.NodeExec(context.Background(), s.node, "rmdir "+other) })
	write(fmt.Sprint(own.List()[0]), other, "cpuset.cpus")
	if s.Kernel(s.node) == cluster.KernelNewest {
		// Linux 7 takes the CPU from the other cgroup.
		valid("beside a cgroup that names one of its CPUs")
	} else {
		s.healthy(t, name, health.ReasonPartition, "partition")
		require.Equal(t, "1", s.metric(t, "actuator", "cpumem_actuator_invalid_partitions"))
		require.Equal(t, "1", s.metric(t, "frontend", "cpumem_frontend_invalid_partitions"))
		eventually(t, "event on the node", func(ctx context.Context) error {
			list, err := s.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.kind=Node,reason=PartitionInvalid,involvedObject.name=" + s.node,
			})
			if err == nil && len(list.Items) == 0 {
				err = fmt.Errorf("none with reason PartitionInvalid")
			}
			return err
		})
	}
	_, err = s.NodeExec(t.Context(), s.node, "rmdir "+other)
	require.NoError(t, err)
	valid("when the other cgroup is gone")

	// CPUs of the claim go offline and come back. The kernel keeps the last CPU of a root
	// partition online.
	offline := own.List()
	if kind == "root" {
		offline = offline[:1]
	}
	for _, value := range []string{"0", "1"} {
		for _, cpu := range offline {
			s.sysfs(t, value, online(cpu))
		}
		if value == "0" {
			s.healthy(t, name, health.ReasonCPUs, "offline")
		}
	}
	valid("when its CPUs came back")

	s.remove(t, name)
	s.becomes(t, "", cgroupMount, "cpuset.cpus.isolated")
	s.becomes(t, all.String(), cgroupMount, "cpuset.cpus.effective")
}
