// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// history is a node's random life. Each step is drawn; the invariants are checked
// after each step.
type history struct {
	t    *rapid.T
	n    *lab.Node
	next int
	pods []*pod
	// actuator reports whether the actuator runs.
	actuator bool
	// partitions reports whether the kernel makes cpuset partitions. exclusivity
	// is the node's configuration.
	partitions bool
	// isolates reports whether the kernel makes isolated partitions without a deadlock.
	isolates    bool
	exclusivity string
	claims      map[string]claim
	// whole reports whether each container has all results of its claims.
	whole bool
}

// newHistory starts a node with a drawn machine and configuration.
func newHistory(t *rapid.T, o lab.Options) *history {
	h := &history{
		t: t, actuator: true, claims: map[string]claim{},
		partitions: o.Kernel.HasRemotePartitions(), isolates: o.Kernel == kerneltest.Linux7, exclusivity: drawExclusivity(t),
	}
	o.Programs = programs
	o.Configure = func(c *config.Config) { c.Exclusivity = h.exclusivity }
	h.n = lab.NewNode(t, machine(t), o)
	return h
}

// drawExclusivity draws auto, which leaves claims a choice, in most cases.
func drawExclusivity(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		config.ExclusivityAuto, config.ExclusivityAuto, config.ExclusivityAuto, config.ExclusivityPool, config.ExclusivityPartition,
	}).Draw(t, "exclusivity")
}

type pod struct {
	*lab.Pod
	prepared bool
	// outdated reports whether the node's offer changed between allocation and
	// Prepare.
	outdated   bool
	containers map[string]*lab.Container
}

// batches is how many parts TestMain divides rapid's checks into. Whole nodes are
// slow, so a property about whole nodes runs a few batches only. rapid keeps its
// number of checks in a flag that parallel tests must not change.
const batches = 20

// divideChecks sets rapid's number of checks to one batch. -rapid.checks scales
// the number.
func divideChecks() error {
	flag.Parse()
	checks := flag.Lookup("rapid.checks")
	all, err := strconv.Atoi(checks.Value.String())
	if err != nil {
		return err
	}
	return checks.Value.Set(strconv.Itoa(max(1, all/batches)))
}

// check runs a property n batches long.
func check(t *testing.T, n int, property func(*rapid.T)) {
	t.Helper()
	for range n {
		rapid.Check(t, property)
	}
}

// onEachKernel runs a property at least n batches long, in equal parts on each kernel of
// the model.
func onEachKernel(t *testing.T, n int, property func(*rapid.T, kerneltest.Release)) {
	t.Helper()
	releases := kerneltest.Releases()
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) {
			t.Parallel()
			check(t, (n+len(releases)-1)/len(releases), func(rt *rapid.T) { property(rt, release) })
		})
	}
}

// machine draws a machine with memory in at least one NUMA node.
func machine(t *rapid.T) topologytest.Spec {
	spec := topologytest.Random(t)
	total := int64(0)
	for _, node := range spec.Nodes {
		total += node.Memory
	}
	if total == 0 {
		spec.Nodes[0].Memory = topologytest.Gi
	}
	return spec
}

// run takes steps of these names; a repeated name is more likely. Then it removes
// all pods.
func (h *history) run(steps int, names ...string) {
	actions := map[string]func(){
		"add pod": h.addPod, "prepare": h.prepareSome, "start or stop": h.start, "update": h.update, "remove pod": h.removeSome,
		"restart frontend": h.n.RestartFrontend, "kill frontend": h.killFrontend, "restart kubelet": h.restartKubelet,
		"restart actuator": h.restartActuator, "restart runtime": h.n.RestartRuntime, "reconfigure": h.reconfigure,
	}
	for range steps {
		actions[rapid.SampledFrom(names).Draw(h.t, "step")]()
		h.n.Check()
	}
	if !h.actuator {
		h.restartActuator()
	}
	for len(h.pods) > 0 {
		h.remove(h.pods[0])
		h.n.Check()
	}
	require.Empty(h.t, h.n.Records())
}

// request draws amounts that a zone may have.
func (h *history) request(name string) lab.Request {
	r := lab.Request{Name: name, Capacity: map[string]string{}}
	if rapid.IntRange(0, 3).Draw(h.t, "with cpu") > 0 {
		r.Capacity["cpu"] = strconv.Itoa(rapid.IntRange(1, 6).Draw(h.t, "cpu"))
	}
	if rapid.IntRange(0, 2).Draw(h.t, "with memory") == 0 || len(r.Capacity) == 0 {
		r.Capacity["memory"] = strconv.Itoa(rapid.IntRange(1, 1<<30).Draw(h.t, "memory"))
	}
	if rapid.IntRange(0, 3).Draw(h.t, "with hugepages") == 0 {
		r.Capacity["hugepages_2Mi"] = strconv.Itoa(rapid.IntRange(1, 1<<26).Draw(h.t, "hugepages"))
	}
	if rapid.IntRange(0, 2).Draw(h.t, "with parameters") == 0 {
		r.Parameters = rapid.SampledFrom([]string{
			`"cpu":{"placement":"spread"}`, `"cpu":{"placement":"packed","cores":"any"}`, `"hugepages":{"limits":"unchanged"}`,
			`"memory":{"limit":"2Gi","throttlingFactor":0.5}`,
			`"memory":{"protection":"low"}`, `"memory":{"protection":"none","limit":"1Gi"}`,
			isolation("none"), isolation("partition"), isolation("isolated"),
			isolation("isolated") + `,"hugepages":{"limits":"unchanged"}`,
		}).Draw(h.t, "parameters")
	}
	return r
}

// reconfigure changes the zones and the shared pool under live claims. The claims
// stay, and later allocations can be prepared (I1, I2, I7).
func (h *history) reconfigure() {
	var managed []int
	for _, c := range h.n.CPUs() {
		if rapid.Bool().Draw(h.t, "managed") {
			managed = append(managed, c)
		}
	}
	exclusivity := drawExclusivity(h.t)
	changed := h.n.Reconfigure(func(c *config.Config) {
		c.Exclusivity = exclusivity
		c.GroupBy = rapid.SampledFrom([]string{"numanode", "numanode", "socket", "machine"}).Draw(h.t, "groupBy")
		c.CPU.WholeCores = rapid.IntRange(0, 3).Draw(h.t, "wholeCores") == 0
		c.CPU.Placement = rapid.SampledFrom([]string{"packed", "spread"}).Draw(h.t, "placement")
		c.SharedPool.MinCPUs = rapid.IntRange(1, 3).Draw(h.t, "minCPUs")
		c.SharedPool.Mode, c.ManagedCPUs = "dynamic", ""
		if len(managed) > 0 && rapid.Bool().Draw(h.t, "some") {
			c.ManagedCPUs = contract.CPUs(managed...).String()
			c.SharedPool.Mode = rapid.SampledFrom([]string{"dynamic", "fixed"}).Draw(h.t, "mode")
		}
	})
	if !changed {
		return
	}
	h.exclusivity = exclusivity
	h.outdate()
}

// addPod schedules a pod: without a claim, with several claims in one container,
// with a claim of CPUs that two containers share, or with one request of a claim for
// each container.
func (h *history) addPod() {
	h.next++
	name := fmt.Sprintf("p%d", h.next)
	var containers []lab.ContainerSpec
	level := rapid.SampledFrom([]lab.Level{lab.Guaranteed, lab.Burstable, lab.BestEffort}).Draw(h.t, "level")
	switch kind := rapid.IntRange(0, 5).Draw(h.t, "kind"); {
	case kind == 0:
		containers = []lab.ContainerSpec{{Name: "a"}}
	case kind == 1:
		cpus := strconv.Itoa(rapid.IntRange(1, 4).Draw(h.t, "cpu"))
		parameters := rapid.SampledFrom([]string{"", "", isolation("none"), isolation("partition")}).Draw(h.t, "parameters")
		claim := h.claim(name, name, lab.Request{Name: "r", Capacity: cpu(cpus), Parameters: parameters})
		containers = []lab.ContainerSpec{{Name: "a", Claims: []string{claim}}, {Name: "b", Claims: []string{claim}}}
	case kind == 2 && !h.whole:
		claim := h.claim(name, name, h.request("r"), h.request("s"))
		containers = []lab.ContainerSpec{{Name: "a", Claims: []string{claim + "/r"}}, {Name: "b", Claims: []string{claim + "/s"}}}
	case kind == 3:
		one, two := h.claim(name, name+"-1", h.request("r")), h.claim(name, name+"-2", h.request("r"))
		containers = []lab.ContainerSpec{{Name: "a", Claims: []string{one, two}}, {Name: "b"}}
	default:
		containers = []lab.ContainerSpec{{Name: "a", Claims: []string{h.claim(name, name, h.request("r"))}}}
	}
	p := &pod{Pod: h.n.Pod(name, level, containers...), containers: map[string]*lab.Container{}}
	if !h.n.Allocate(p.Pod) {
		h.n.Withdraw(p.Pod)
		return
	}
	h.pods = append(h.pods, p)
	h.prepare(p)
}

// prepare prepares a pod and checks I2: each allocation can be prepared, unless no
// actuator runs or a claim requires a partition that is impossible.
func (h *history) prepare(p *pod) {
	if p.prepared {
		return
	}
	want := h.outcome(p)
	err := h.n.Prepare(p.Pod)
	if errors.Is(err, lab.ErrDied) {
		h.n.RestartFrontend()
		h.n.Check()
		h.prepared(want)
		want = h.outcome(p)
		err = h.n.Prepare(p.Pod)
	}
	h.prepared(want)
	if p.outdated && err != nil {
		return // the scheduler accepted it on other devices
	}
	if !h.actuator && err != nil {
		require.ErrorContains(h.t, err, "nri-actuator")
		return
	}
	h.refused(want, err)
	if p.outdated {
		h.outdate()
	}
	p.prepared, p.outdated = err == nil, false
}

// outdate marks the pods that are allocated and not prepared: the node offers
// something else now.
func (h *history) outdate() {
	for _, p := range h.pods {
		p.outdated = p.outdated || !p.prepared
	}
}

func (h *history) somePod() *pod {
	if len(h.pods) == 0 {
		return nil
	}
	return rapid.SampledFrom(h.pods).Draw(h.t, "pod")
}

func (h *history) prepareSome() {
	if p := h.somePod(); p != nil {
		h.prepare(p)
	}
}

// start creates and starts a container, or stops a running container.
func (h *history) start() {
	p := h.somePod()
	if p == nil || !p.prepared {
		return
	}
	spec := rapid.SampledFrom(p.Containers).Draw(h.t, "container")
	if c := p.containers[spec.Name]; c != nil {
		c.Stop()
		delete(p.containers, spec.Name)
		return
	}
	c, err := h.n.CreateContainer(p.Pod, spec.Name)
	require.NoError(h.t, err)
	h.n.Check()
	err = c.Start()
	if !h.actuator && len(spec.Claims) > 0 {
		require.ErrorContains(h.t, err, "the claim's decision is", "I5")
		return
	}
	require.NoError(h.t, err, "I7")
	p.containers[spec.Name] = c
}

// update updates a container as kubelet does. It needs an actuator, without which
// kubelet's values stay until the actuator is back.
func (h *history) update() {
	p := h.somePod()
	if p == nil || !h.actuator {
		return
	}
	spec := rapid.SampledFrom(p.Containers).Draw(h.t, "container")
	if c := p.containers[spec.Name]; c != nil {
		require.NoError(h.t, c.Update())
	}
}

func (h *history) remove(p *pod) {
	err := h.n.Remove(p.Pod)
	if errors.Is(err, lab.ErrDied) {
		h.n.RestartFrontend()
		h.n.Check()
		err = h.n.Remove(p.Pod)
	}
	require.NoError(h.t, err)
	for i := range h.pods {
		if h.pods[i] == p {
			h.pods = append(h.pods[:i], h.pods[i+1:]...)
			return
		}
	}
}

func (h *history) removeSome() {
	if p := h.somePod(); p != nil {
		h.remove(p)
	}
}

// killFrontend lets the frontend die at one of its next writes.
func (h *history) killFrontend() {
	h.n.KillFrontendAfter(rapid.IntRange(0, 4).Draw(h.t, "writes"))
}

// restartKubelet checks I8: kubelet gets the same answers again.
func (h *history) restartKubelet() {
	h.n.RestartKubelet()
	for _, p := range h.pods {
		if !p.prepared {
			continue
		}
		before := map[string][]string{}
		for _, claim := range p.Claims() {
			before[claim] = p.CDIDevices(claim)
		}
		decided := h.n.Records()
		p.prepared = false
		h.prepare(p)
		require.True(h.t, p.prepared, "I8: what was prepared needs no actuator")
		for claim, devices := range before {
			require.Equal(h.t, devices, p.CDIDevices(claim), "I8")
		}
		require.Equal(h.t, decided, h.n.Records(), "I8: the decisions stand")
	}
}

func (h *history) restartActuator() {
	if !h.actuator || rapid.Bool().Draw(h.t, "start again") {
		h.n.StopActuator(rapid.Bool().Draw(h.t, "kill"))
		h.n.StartActuator()
		h.n.Ready()
		h.actuator = true
		return
	}
	h.n.StopActuator(rapid.Bool().Draw(h.t, "kill"))
	h.actuator = false
}

// A23: each allocation of the scheduler's allocator is prepared, and nothing leaks
// (I1 to I4, I8), although the frontend may die at any write. rapid's default of 100
// checks takes at least 10 000 steps.
func TestAllocatorAndPrepare(t *testing.T) {
	t.Parallel()
	onEachKernel(t, batches, func(rt *rapid.T, release kerneltest.Release) {
		h := newHistory(rt, lab.Options{Kernel: release, Embedded: true, NoActuator: true})
		h.run(rapid.IntRange(100, 110).Draw(rt, "steps"),
			"add pod", "add pod", "add pod", "prepare", "remove pod", "remove pod",
			"restart frontend", "kill frontend", "restart kubelet", "reconfigure")
	})
}

// TestHistory runs the whole node. The actuator comes and goes, and the frontend may
// die at any write (I1 to I9).
func TestHistory(t *testing.T) {
	t.Parallel()
	onEachKernel(t, batches/4, func(rt *rapid.T, release kerneltest.Release) {
		h := newHistory(rt, lab.Options{Kernel: release, Embedded: true})
		h.run(rapid.IntRange(20, 60).Draw(rt, "steps"),
			"add pod", "add pod", "add pod", "start or stop", "start or stop", "start or stop", "start or stop", "update", "prepare",
			"remove pod", "restart frontend", "kill frontend", "restart kubelet", "restart actuator", "restart runtime", "reconfigure")
	})
}

// TestHistoryThroughSockets runs the same node with the frontend's daemon and its
// sockets.
func TestHistoryThroughSockets(t *testing.T) {
	t.Parallel()
	onEachKernel(t, batches/10, func(rt *rapid.T, release kerneltest.Release) {
		h := newHistory(rt, lab.Options{Kernel: release})
		h.run(rapid.IntRange(20, 50).Draw(rt, "steps"),
			"add pod", "add pod", "add pod", "start or stop", "start or stop", "start or stop", "start or stop", "update", "prepare",
			"remove pod", "restart frontend", "restart kubelet", "restart actuator", "restart runtime")
	})
}
