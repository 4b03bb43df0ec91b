// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

// runtime is a container runtime. It keeps the spec of each container, writes
// it into the cgroup when the container starts, and writes all of it again at
// each update.
type runtime struct {
	t         require.TestingT
	node      *testnode.Node
	registry  *prometheus.Registry
	plugin    *nri.Plugin
	session   *nri.Session
	announced contract.Announcement
	// nri and kernel are versions. They have all features unless changed before
	// connect.
	nri, kernel string
	// version is the version of containerd.
	version    string
	containers map[string]*container
	// now is the time in nanoseconds. It passes only in later.
	now atomic.Int64
	// features are the features that the actuator implements.
	features []string
	// machine are the machine's files: none unless set before connect.
	machine machine.Files
	// mount has the cgroups of the actuator, the node's unless set before connect.
	mount *cgroups.Mount
}

type container struct {
	pod     *api.PodSandbox
	api     *api.Container
	dir     string
	spec    map[string]string
	policy  *api.LinuxMemoryPolicy
	running bool
}

// Set implements nri.Announcer.
func (r *runtime) Set(change func(*contract.Announcement)) error {
	change(&r.announced)
	return nil
}

// newRuntime makes a node with Linux 6.12 and connects an actuator.
func newRuntime(t require.TestingT, dir string) *runtime {
	return newRuntimeOn(t, dir, kerneltest.Linux612)
}

func newRuntimeOn(t require.TestingT, dir string, release kerneltest.Release) *runtime {
	r := &runtime{
		t:          t,
		node:       testnode.NewOn(t, dir, release),
		nri:        "v0.12.0",
		kernel:     "6.12.0",
		version:    "v2.2.7",
		containers: make(map[string]*container),
		features:   contract.Features(),
		machine:    machine.Dirs{},
	}
	if release.Name == kerneltest.Linux7.Name {
		r.kernel = "7.0.0"
	}
	r.later(time.Hour)
	r.connect()
	return r
}

// later makes time pass.
func (r *runtime) later(d time.Duration) { r.now.Add(int64(d)) }

// connect starts a new actuator and synchronises it.
func (r *runtime) connect() {
	r.registry = prometheus.NewRegistry()
	m, err := metrics.New(r.registry)
	require.NoError(r.t, err)
	mount := r.node.Mount()
	if r.mount != nil {
		mount = r.mount
	}
	r.plugin = nri.New(nri.Options{Announcer: r, Options: enforce.Options{Kernel: r.kernel,
		Host:      machine.New(r.machine, cdidir.At(r.node.CDI), "boot"),
		Directory: claims.New(cdidir.At(r.node.CDI), r.features, "boot"), Mount: mount, Metrics: m,
		// The cgroups are no units.
		Units: systemd.Systemd{Slices: systemd.New(nil, nil), Dropins: systemd.NewDropins("/absent")},
		Clock: func() time.Time { return time.Unix(0, r.now.Load()) }, RefreshInterval: time.Minute,
	}})
	r.session = r.plugin.NewSession(func() string { return r.nri })
	_, err = r.session.Configure(context.Background(), "", "containerd", r.version)
	require.NoError(r.t, err)
	require.NoError(r.t, r.synchronize())
}

func (r *runtime) synchronize() error {
	pods := make(map[string]*api.PodSandbox)
	var list []*api.Container
	for _, c := range r.containers {
		if c.pod != nil {
			pods[c.pod.Id] = c.pod
		}
		list = append(list, proto.CloneOf(c.api))
	}
	var sandboxes []*api.PodSandbox
	for _, pod := range pods {
		sandboxes = append(sandboxes, proto.CloneOf(pod))
	}
	request := &api.SynchronizeRequest{Pods: sandboxes, Containers: list}
	nri.Reduce(request)
	updates, err := r.session.Synchronize(context.Background(), request.Pods, request.Containers)
	require.Empty(r.t, updates, "running containers are written, not updated through the runtime")
	return err
}

func sandbox(uid string) *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox-" + uid, Name: "pod-" + uid[len(uid)-4:], Namespace: "ns", Uid: uid,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods/burstable/pod" + uid}}
}

// podDir returns the directory of the pod's cgroup.
func (r *runtime) podDir(uid string) string { return "kubepods/burstable/pod" + uid }

func (r *runtime) addPod(uid string) { r.node.AddCgroup(r.podDir(uid)) }

// kubeletScore is the oom_score_adj that kubelet asks for in the tests.
const kubeletScore = 936

func (r *runtime) create(id, podUID string, env ...string) (*container, error) {
	pod := sandbox(podUID)
	c := &container{pod: pod, dir: r.podDir(podUID) + "/" + id, spec: map[string]string{"memory.min": "0", "memory.low": "0"},
		api: &api.Container{Id: id, PodSandboxId: pod.Id, Name: id, Env: env, State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/" + id, OomScoreAdj: api.Int(kubeletScore)}}}
	r.addPod(podUID)
	a, updates, err := r.session.CreateContainer(context.Background(), pod, c.api)
	require.Empty(r.t, updates)
	if err != nil {
		return nil, err
	}
	r.take(c, a.GetLinux().GetResources())
	c.api.Annotations = a.GetAnnotations()
	c.policy = a.GetLinux().GetMemoryPolicy()
	if score := a.GetLinux().GetOomScoreAdj(); score != nil {
		c.api.Linux.OomScoreAdj = score
	}
	r.containers[id] = c
	return c, nil
}

func (r *runtime) take(c *container, res *api.LinuxResources) {
	if cpus := res.GetCpu().GetCpus(); cpus != "" {
		c.spec["cpuset.cpus"] = cpus
		// The runtime reports the cpuset as the container's own from here on.
		c.api.Linux.Resources = &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus}}
	}
	if mems := res.GetCpu().GetMems(); mems != "" {
		c.spec["cpuset.mems"] = mems
	}
	maps.Copy(c.spec, res.GetUnified())
}

// start makes the cgroup with the spec's values, as the OCI runtime does, and
// calls StartContainer before the program runs.
func (r *runtime) start(c *container) error {
	r.node.AddCgroup(c.dir)
	r.writeSpec(c)
	if err := r.session.StartContainer(context.Background(), c.pod, c.api); err != nil {
		return errors.Join(err, r.remove(c))
	}
	c.running, c.api.State = true, api.ContainerState_CONTAINER_RUNNING
	return nil
}

func (r *runtime) writeSpec(c *container) {
	for _, file := range slices.Sorted(maps.Keys(c.spec)) {
		r.node.SetFile(c.dir, file, c.spec[file])
	}
}

// run creates and starts a container.
func (r *runtime) run(id, podUID string, env ...string) *container {
	c, err := r.create(id, podUID, env...)
	require.NoError(r.t, err)
	require.NoError(r.t, r.start(c))
	return c
}

// update is an in-place resize by kubelet: kubelet writes its zeros, and the
// runtime repeats the spec of the creation.
func (r *runtime) update(c *container) error {
	updates, err := r.session.UpdateContainer(context.Background(), c.pod, c.api, &api.LinuxResources{})
	if err != nil {
		return err
	}
	c.spec["memory.min"], c.spec["memory.low"] = "0", "0"
	for _, u := range updates {
		require.Equal(r.t, c.api.Id, u.ContainerId)
		r.take(c, u.GetLinux().GetResources())
	}
	if c.running {
		r.writeSpec(c)
	}
	return r.session.PostUpdateContainer(context.Background(), c.pod, c.api)
}

func (r *runtime) remove(c *container) error {
	r.node.RemoveCgroup(c.dir)
	_, err := r.session.StopContainer(context.Background(), c.pod, c.api)
	delete(r.containers, c.api.Id)
	c.running = false
	return errors.Join(err, r.session.RemoveContainer(context.Background(), c.pod, c.api))
}

func (r *runtime) cpus(c *container) string { return r.node.File(c.dir, "cpuset.cpus") }

// metric returns the sum of a metric's samples that have all of labels.
func (r *runtime) metric(name string, labels ...string) float64 {
	families, err := r.registry.Gather()
	require.NoError(r.t, err)
	sum := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && containsAll(m.String(), labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, `"`+part+`"`) {
			return false
		}
	}
	return true
}
