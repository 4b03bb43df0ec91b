// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	oci "github.com/opencontainers/runtime-tools/generate"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// Container is a container in the runtime.
type Container struct {
	n       *Node
	Pod     *Pod
	Name    string
	ID      string
	Spec    *specs.Spec
	devices []string
	sandbox *api.PodSandbox
	started bool
	// unadjusted reports whether the runtime created the container without an
	// actuator.
	unadjusted bool
	// overwritten reports whether kubelet updated the container without an
	// actuator.
	overwritten bool
}

// CreateContainer creates a container as a runtime does: make the OCI spec, inject
// the CDI devices, ask the NRI plugins, apply their answer.
func (n *Node) CreateContainer(p *Pod, name string) (*Container, error) {
	n.t.Helper()
	n.scheduled(p)
	n.makePodCgroup(p)
	n.runtime.serial++
	spec := p.container(name)
	c := &Container{
		n: n, Pod: p, Name: name, ID: fmt.Sprintf("%s-%s-%04d", p.Name, name, n.runtime.serial),
		devices: p.devices(spec), unadjusted: n.actuator == nil || !n.runtime.running(),
		sandbox: &api.PodSandbox{Id: "sandbox-" + p.UID, Name: p.Name, Namespace: namespace, Uid: p.UID,
			Linux: &api.LinuxPodSandbox{CgroupParent: "/" + p.cgroup()}},
	}
	c.Spec = n.baseSpec(c, spec)
	cache := n.cdiCache()
	if all := append(slices.Clone(c.devices), spec.Annotated...); len(all) > 0 {
		if missing, err := cache.InjectDevices(c.Spec, all...); err != nil {
			return nil, fmt.Errorf("CDI: %v: %w", missing, err)
		}
	}
	if spec.OldCDI {
		c.Spec.Process.Env = append(slices.Clone(spec.Env), c.Spec.Process.Env...)
	}
	if n.runtime.running() {
		reply, err := n.runtime.nri.CreateContainer(n.t.Context(), &adaptation.CreateContainerRequest{Pod: c.sandbox, Container: c.nri()})
		if err != nil {
			return nil, err
		}
		if err := generate.SpecGenerator(&oci.Generator{Config: c.Spec}).Adjust(reply.Adjust); err != nil {
			return nil, err
		}
	}
	n.runtime.keep(c)
	c.step(protocol.ContainerCreated)
	return c, nil
}

// baseSpec returns kubelet's spec, before CDI and NRI. Kubelet writes zeros for the
// protection and for hugepages that the container does not request.
func (n *Node) baseSpec(c *Container, spec ContainerSpec) *specs.Spec {
	s := &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args: []string{"/pause"}, Cwd: "/", Env: append([]string{"PATH=/bin"}, spec.Env...), OOMScoreAdj: new(c.Pod.oomScore()),
		},
		Root: &specs.Root{Path: "rootfs"},
		Linux: &specs.Linux{CgroupsPath: "/" + c.cgroup(), Resources: &specs.LinuxResources{
			CPU:     &specs.LinuxCPU{Shares: new(uint64(2))},
			Unified: map[string]string{"memory.min": "0", "memory.low": "0"},
		}},
	}
	if spec.MemoryLimit != "" {
		q := resource.MustParse(spec.MemoryLimit)
		s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: new(q.Value())}
	}
	for _, size := range n.pageSizes() {
		s.Linux.Resources.HugepageLimits = append(s.Linux.Resources.HugepageLimits,
			specs.LinuxHugepageLimit{Pagesize: size, Limit: spec.hugepages(size)})
	}
	return s
}

// hugepages returns the container's own limit, in bytes, for a page size in the
// kernel's form.
func (s ContainerSpec) hugepages(size string) uint64 {
	for of, limit := range s.Hugepages {
		if contract.CgroupPageSize(of) == size {
			q := resource.MustParse(limit)
			return uint64(q.Value())
		}
	}
	return 0
}

// nri returns the container in the form that NRI plugins get.
func (c *Container) nri() *api.Container {
	out := &api.Container{
		Id: c.ID, PodSandboxId: c.sandbox.Id, Name: c.Name, Env: c.Spec.Process.Env, State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{
			CgroupsPath: "/" + c.cgroup(), OomScoreAdj: api.Int(c.Spec.Process.OOMScoreAdj),
			Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: c.Spec.Linux.Resources.CPU.Cpus}},
		},
		Annotations: c.Spec.Annotations, Hooks: api.FromOCIHooks(c.Spec.Hooks),
	}
	if c.started {
		out.State = api.ContainerState_CONTAINER_RUNNING
	}
	if c.n.tellsDevices() {
		for _, d := range c.devices {
			out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: d})
		}
	}
	return out
}

// tellsDevices reports whether NRI plugins get the names of CDI devices:
// containerd gives them from 2.3 on.
func (n *Node) tellsDevices() bool {
	return !slices.ContainsFunc([]string{"v1.", "v2.0.", "v2.1.", "v2.2."}, func(old string) bool {
		return strings.HasPrefix(n.o.RuntimeVersion, old)
	})
}

// Start starts the container: the OCI runtime makes the cgroup and runs the hooks,
// then the container runtime calls the NRI plugins. The program runs after that.
func (c *Container) Start() error {
	c.n.t.Helper()
	err := c.makeCgroup()
	if err == nil {
		err = c.runHooks()
	}
	if err == nil && c.n.runtime.running() {
		err = c.n.runtime.nri.StartContainer(c.n.t.Context(), &adaptation.StartContainerRequest{Pod: c.sandbox, Container: c.nri()})
	}
	if err != nil {
		c.Stop()
		return err
	}
	c.started = true
	c.n.runtime.keep(c)
	c.step(protocol.ContainerStarted)
	return nil
}

// Stop ends and removes the container.
func (c *Container) Stop() {
	c.n.t.Helper()
	c.step(protocol.Stopped)
	c.n.removeCgroup(c.cgroup())
	c.started = false
	c.n.runtime.remove(c)
	if !c.n.runtime.running() {
		return
	}
	_, err := c.n.runtime.nri.StopContainer(c.n.t.Context(), &adaptation.StopContainerRequest{Pod: c.sandbox, Container: c.nri()})
	require.NoError(c.n.t, err)
	err = c.n.runtime.nri.RemoveContainer(c.n.t.Context(), &adaptation.RemoveContainerRequest{Pod: c.sandbox, Container: c.nri()})
	require.NoError(c.n.t, err)
}

// Update is kubelet's update of a running container. Kubelet sends zeros for the
// protection, and the runtime writes the whole spec again.
func (c *Container) Update() error {
	c.n.t.Helper()
	c.overwritten = !c.n.acting()
	kubelet := &api.LinuxResources{Unified: map[string]string{"memory.min": "0", "memory.low": "0"}}
	reply, err := c.n.runtime.nri.UpdateContainer(c.n.t.Context(),
		&adaptation.UpdateContainerRequest{Pod: c.sandbox, Container: c.nri(), LinuxResources: kubelet})
	if err != nil {
		return err
	}
	r := c.Spec.Linux.Resources
	maps.Copy(r.Unified, kubelet.Unified)
	for _, u := range reply.GetUpdate() {
		if id := u.GetContainerId(); id != "" && id != c.ID { // NRI's own answer has no id
			return fmt.Errorf("an update of container %s", u.GetContainerId())
		}
		got := u.GetLinux().GetResources()
		maps.Copy(r.Unified, got.GetUnified())
		if cpus := got.GetCpu().GetCpus(); cpus != "" {
			r.CPU.Cpus = cpus
		}
		if mems := got.GetCpu().GetMems(); mems != "" {
			r.CPU.Mems = mems
		}
	}
	if err := c.writeValues(); err != nil {
		return err
	}
	return c.n.runtime.nri.PostUpdateContainer(c.n.t.Context(),
		&adaptation.PostUpdateContainerRequest{Pod: c.sandbox, Container: c.nri()})
}

// OwnContainer returns the container that has the actuator, with the option of this name.
func (n *Node) OwnContainer() *Container {
	all := n.runtime.list()
	i := slices.IndexFunc(all, func(c *Container) bool { return c.cgroup() == n.cgroups.namespace })
	require.GreaterOrEqual(n.t, i, 0, "no container has the actuator")
	return all[i]
}

// HasCgroup reports whether the container's cgroup exists.
func (c *Container) HasCgroup() bool {
	return c.n.cgroups.exists(c.cgroup())
}

// ReadCgroup reads a file of the container's cgroup.
func (c *Container) ReadCgroup(file string) string { return c.n.ReadCgroup(c.cgroup(), file) }

// SetCgroup writes a file of the container's cgroup, as another program would.
func (c *Container) SetCgroup(file, value string) { c.n.SetCgroup(c.cgroup(), file, value) }

// CPUs returns the cpuset of the container's cgroup, or of its spec before the
// start.
func (c *Container) CPUs() string {
	if c.started {
		return c.ReadCgroup("cpuset.cpus")
	}
	return c.Spec.Linux.Resources.CPU.Cpus
}

func (c *Container) cgroup() string { return c.Pod.cgroup() + "/" + c.ID }

// cgroup returns the pod's cgroup in the form of kubelet's cgroupfs driver.
func (p *Pod) cgroup() string {
	level := map[Level]string{Guaranteed: "", Burstable: "burstable/", BestEffort: "besteffort/"}[p.Level]
	return "kubepods/" + level + "pod" + p.UID
}

// oomScore returns kubelet's oom_score_adj, some value in the range for a Burstable
// pod.
func (p *Pod) oomScore() int {
	return map[Level]int{Guaranteed: -997, Burstable: 900, BestEffort: 1000}[p.Level]
}

// makePodCgroup makes the pod's cgroup as kubelet does: its hugepage limits are the
// sums of the containers' own limits.
func (n *Node) makePodCgroup(p *Pod) {
	if p.made {
		return
	}
	p.made = true
	n.MakeCgroup(p.cgroup())
	for _, size := range n.pageSizes() {
		sum := uint64(0)
		for _, c := range p.Containers {
			sum += c.hugepages(size)
		}
		for _, file := range []string{"hugetlb." + size + ".max", "hugetlb." + size + ".rsvd.max"} {
			n.SetCgroup(p.cgroup(), file, strconv.FormatUint(sum, 10))
		}
	}
}

func (n *Node) removePodCgroup(p *Pod) {
	n.removeCgroup(p.cgroup())
	p.made = false
}
