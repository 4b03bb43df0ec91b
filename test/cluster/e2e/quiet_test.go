// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// machineFiles are the files of a node with values that claims change, without the
// interrupts that the kernel moves itself.
func (s suite) machineFiles(t *testing.T) string {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, `cat /proc/irq/default_smp_affinity /sys/devices/virtual/workqueue/cpumask
grep -s . /proc/irq/*/smp_affinity_list /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us`)
	require.NoError(t, err)
	return out
}

// device is an interrupt of the node's network card, and the file with its CPUs.
type device struct{ name, dir string }

// networkInterrupt returns an interrupt of the node's network card.
func (s suite) networkInterrupt(t *testing.T) device {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, "ls -d /proc/irq/*/virtio*-input.0 | head -n 1")
	require.NoError(t, err)
	dir := strings.TrimSpace(out)
	i := strings.LastIndex(dir, "/")
	require.Positive(t, i, "the node has no interrupt of a network card: %q", out)
	return device{name: dir[i+1:], dir: dir[:i]}
}

// handled returns how often the interrupt came to each of the node's CPUs.
func (s suite) handled(t *testing.T, d device) map[int]int {
	t.Helper()
	counts := make(map[int]int)
	for line := range strings.Lines(s.file(t, "/proc/interrupts")) {
		words := strings.Fields(line)
		if len(words) < 3 || words[len(words)-1] != d.name {
			continue
		}
		for cpu, word := range words[1:] {
			n, err := strconv.Atoi(word)
			if err != nil {
				break
			}
			counts[cpu] = n
		}
	}
	require.NotEmpty(t, counts, "%s is not in /proc/interrupts", d.name)
	return counts
}

// condition waits until the claim's only device has the condition with the status and the
// reason, and returns its message.
func (s suite) condition(t *testing.T, claim, kind string, status metav1.ConditionStatus, reason string) (message string) {
	t.Helper()
	eventually(t, kind+" of claim "+claim, func(ctx context.Context) error {
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(ctx, claim, getOptions)
		if err != nil {
			return err
		}
		for _, d := range c.Status.Devices {
			for _, has := range d.Conditions {
				if has.Type == kind && has.Status == status && has.Reason == reason {
					message = has.Message
					return nil
				}
			}
		}
		return fmt.Errorf("devices %+v", c.Status.Devices)
	})
	return message
}

// A83: interrupts leave the CPUs of a claim that asks for it, the traffic of the node's network
// card comes to no CPU of the claim, and a device's interrupts come to the claim that names
// the device. Everything is as before when the claims have gone (I3).
func TestQuiet_Interrupts(t *testing.T) {
	longOnly(t)
	drivers(t, "quiet", func(t *testing.T, s suite, name string) {
		before := s.machineFiles(t)
		card := s.networkInterrupt(t)
		s.claim(t, name, "numa-1", capacity{"cpu": "2"}, parameters(`"cpu":{"interrupts":"none","wakeupLatency":0,"housekeeping":"none"}`))
		s.run(t, pod(name, []string{"mask", "sleep"}, name))
		own := cpus(t, s.lines(t, name, "mask")["mask"].CPUs)
		require.False(t, own.IsEmpty())

		require.True(t, cpus(t, s.file(t, card.dir+"/smp_affinity_list")).Intersection(own).IsEmpty())
		for _, cpu := range own.List() {
			require.Equal(t, "n/a", s.file(t, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/power/pm_qos_resume_latency_us", cpu)))
		}
		workQueues, err := strconv.ParseUint(s.file(t, "/sys/devices/virtual/workqueue/cpumask"), 16, 64)
		require.NoError(t, err)
		for _, cpu := range own.List() {
			require.Zero(t, workQueues&(1<<cpu), "work queues may use CPU %d", cpu)
		}
		counts := s.handled(t, card)
		for range 20 { // each is a connection over the node's network card
			s.file(t, "/proc/uptime")
		}
		var on, off int
		for cpu, n := range s.handled(t, card) {
			if own.Contains(cpu) {
				on += n - counts[cpu]
			} else {
				off += n - counts[cpu]
			}
		}
		require.Zero(t, on, "interrupts of %s on the claim's CPUs %s", card.name, own)
		require.Positive(t, off, "interrupts of %s elsewhere", card.name)
		// The kernel moves the interrupts of the disk's queues itself, one of which is each CPU's.
		fixed := s.condition(t, name, "InterruptsQuiet", metav1.ConditionFalse, "InterruptsFixed")
		require.Contains(t, fixed, "virtio0-req.")
		require.NotContains(t, fixed, "put.", "the card's interrupts, input and output, are elsewhere")
		require.NotContains(t, fixed, "config")

		// The card's interrupts come to a claim that names it.
		poller := name + "-poller"
		s.claim(t, poller, "numa-0", capacity{"cpu": "1"}, parameters(`"cpu":{"interrupts":{"device":"`+card.name+`"}}`))
		s.run(t, pod(poller, []string{"mask", "sleep"}, poller))
		beside := s.lines(t, poller, "mask")["mask"].CPUs
		require.Equal(t, beside, s.file(t, card.dir+"/smp_affinity_list"))

		// Prepare refuses what the machine does not have.
		for suffix, c := range map[string]struct{ parameters, says string }{
			"device":   {`"cpu":{"interrupts":{"device":"nosuch*"}}`, "no interrupt of this machine has a name that matches device"},
			"twice":    {`"cpu":{"interrupts":{"device":"virtio*-input.0"}}`, "or another request of this claim, has"},
			"governor": {`"cpu":{"governor":"performance"}`, "frequency"},
			"latency":  {`"cpu":{"wakeupLatency":"2s"}`, "want 0 to 1s as 0, 20us or 1ms"},
		} {
			refused := name + "-" + suffix
			s.claim(t, refused, "numa-0", capacity{"cpu": "1"}, parameters(c.parameters))
			s.create(t, pod(refused, []string{"sleep"}, refused))
			s.refused(t, refused, c.says)
			s.remove(t, refused)
		}

		s.remove(t, name)
		s.remove(t, poller)
		eventually(t, "former values of "+s.node, func(context.Context) error {
			if now := s.machineFiles(t); now != before {
				return fmt.Errorf("before:\n%s\nnow:\n%s", before, now)
			}
			return nil
		})
		files, err := s.NodeExec(t.Context(), s.node, "ls -A /var/run/cdi")
		require.NoError(t, err)
		require.NotContains(t, files, "former")
	})
}

// A85: what disturbs a claim that asks for quiet CPUs is measured: another program brings
// interrupts of the network card to its CPUs, which its status and the tool report.
func TestQuiet_Receipt(t *testing.T) {
	longOnly(t)
	drivers(t, "receipt", func(t *testing.T, s suite, name string) {
		s.shareTool(t)
		card := s.networkInterrupt(t)
		file := card.dir + "/smp_affinity_list"
		former := s.file(t, file)
		s.claim(t, name, "numa-1", capacity{"cpu": "1"}, parameters(`"cpu":{"interrupts":"none","quota":"none"}`))
		s.run(t, pod(name, []string{"mask", "sleep"}, name))
		own := s.lines(t, name, "mask")["mask"].CPUs
		measured := func() string {
			out, err := s.NodeExec(t.Context(), s.node, "/share/cpumem explain default/"+name)
			require.NoError(t, err, out)
			return out
		}
		eventually(t, "the start of the measurement", func(context.Context) error {
			if out := measured(); !strings.Contains(out, "throttled 0 times (0s), partition lost 0 times") {
				return errors.New(out)
			}
			return nil
		})
		eventually(t, "interrupts on the claim's CPU", func(ctx context.Context) error {
			// The actuator moves the interrupts away again when it looks.
			if _, err := s.NodeExec(ctx, s.node, "echo "+own+" >"+file); err != nil {
				return err
			}
			for range 5 { // each is a connection over the network card
				s.file(t, "/proc/uptime")
			}
			out := measured()
			if _, list, found := strings.Cut(out, "interrupts came to its CPUs from "); !found || !strings.Contains(list, card.name) {
				return errors.New(out)
			}
			return nil
		})
		require.Contains(t, s.condition(t, name, "Quiet", metav1.ConditionFalse, "Interrupted"), "interrupts came to its CPUs from")
		s.remove(t, name)
		// What another program has written counts as the former value.
		eventually(t, "the value of the other program", func(context.Context) error {
			if now := s.file(t, file); now != own {
				return fmt.Errorf("%s is %s", file, now)
			}
			return nil
		})
		_, err := s.NodeExec(t.Context(), s.node, "echo "+former+" >"+file)
		require.NoError(t, err)
		_, err = s.NodeExec(t.Context(), s.node, "[ ! -e /var/lib/kubelet/plugins/dra.cpumem/receipts.json ]")
		require.NoError(t, err, "no claim is measured any more")
	})
}

// throttled returns how often the kernel has throttled the cgroup.
func (s suite) throttled(t *testing.T, p *corev1.Pod, container string) int {
	t.Helper()
	for line := range strings.Lines(s.cgroup(t, p, container, "cpu.stat")) {
		if n, found := strings.CutPrefix(line, "nr_throttled "); found {
			count, err := strconv.Atoi(strings.TrimSpace(n))
			require.NoError(t, err)
			return count
		}
	}
	t.Fatal("cpu.stat has no nr_throttled")
	return 0
}

// A84: a CPU limit throttles a container with claimed CPUs, which the claim's status reports,
// unless the claim lifts the limit, of the container and of its pod.
func TestQuiet_CPULimit(t *testing.T) {
	longOnly(t)
	drivers(t, "limit", func(t *testing.T, s suite, name string) {
		limited := func(p *corev1.Pod, container int, cpu string) *corev1.Pod {
			p.Spec.Containers[container].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			return p
		}
		s.claim(t, name, "", capacity{"cpu": "1"})
		p := s.run(t, limited(pod(name, []string{"hog", "sleep"}, name), 0, "200m"))
		require.Contains(t, s.condition(t, name, "Unthrottled", metav1.ConditionFalse, "CPULimit"), "200m")
		eventually(t, "throttling", func(context.Context) error {
			if n := s.throttled(t, p, "main"); n == 0 {
				return fmt.Errorf("throttled %d times", n)
			}
			return nil
		})
		s.remove(t, name)

		lifted := name + "-lifted"
		s.claim(t, lifted, "", capacity{"cpu": "1"}, parameters(`"cpu":{"quota":"none"}`))
		p = s.run(t, limited(limited(withSide(pod(lifted, []string{"mask", "hog", "sleep"}, lifted)), 0, "200m"), 1, "100m"))
		s.lines(t, lifted, "mask")
		require.Equal(t, "max 100000", s.cgroup(t, p, "main", "cpu.max"))
		require.Equal(t, "10000 100000", s.cgroup(t, p, "side", "cpu.max"), "another container keeps its limit")
		require.Equal(t, "max 100000", s.cgroup(t, p, "", "cpu.max"))
		s.condition(t, lifted, "Unthrottled", metav1.ConditionTrue, "NoQuota")
		used := s.usage(t, p)
		eventually(t, "half a second of CPU time", func(context.Context) error {
			if now := s.usage(t, p); now-used < 500_000 {
				return fmt.Errorf("%d us", now-used)
			}
			return nil
		})
		require.Zero(t, s.throttled(t, p, "main"))
		s.reload(t)
		require.Equal(t, "max 100000", s.cgroup(t, p, "main", "cpu.max"))
		require.Equal(t, "max 100000", s.cgroup(t, p, "", "cpu.max"))
		s.remove(t, lifted)

		// The pod's own limit bounds the container without the claim more than the container's does.
		whole := name + "-whole"
		s.claim(t, whole, "", capacity{"cpu": "1"}, parameters(`"cpu":{"quota":"none"}`))
		p = limited(limited(withSide(pod(whole, []string{"sleep"}, whole)), 0, "200m"), 1, "150m")
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}}
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		}
		p = s.run(t, p)
		require.Equal(t, "max 100000", s.cgroup(t, p, "main", "cpu.max"))
		require.Equal(t, "120000 100000", s.cgroup(t, p, "", "cpu.max"), "the pod's limit and the claim's CPU")
	})
}

// usage returns the CPU time of the pod's container main in microseconds.
func (s suite) usage(t *testing.T, p *corev1.Pod) int {
	t.Helper()
	var us int
	_, err := fmt.Sscanf(s.cgroup(t, p, "main", "cpu.stat"), "usage_usec %d", &us)
	require.NoError(t, err)
	return us
}
