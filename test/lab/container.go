// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
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
	// unadjusted tells that the runtime created it without an actuator.
	unadjusted bool
	// overwritten tells that kubelet updated it without an actuator.
	overwritten bool
}

// CreateContainer does what the runtime does when kubelet asks for a
// container: make the OCI spec, inject the CDI devices, ask the NRI plugins,
// apply their answer.
func (n *Node) CreateContainer(p *Pod, name string) (*Container, error) {
	n.t.Helper()
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
	return c, nil
}

// baseSpec is the spec before CDI and NRI, with what kubelet asks for: it
// writes zeros for the protection, and for hugepages that the container does
// not ask for.
func (n *Node) baseSpec(c *Container, spec ContainerSpec) *specs.Spec {
	s := &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{Args: []string{"/pause"}, Cwd: "/", Env: append([]string{"PATH=/bin"}, spec.Env...), OOMScoreAdj: new(c.Pod.oomScore())},
		Root:    &specs.Root{Path: "rootfs"},
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
		s.Linux.Resources.HugepageLimits = append(s.Linux.Resources.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: size, Limit: spec.hugepages(size)})
	}
	return s
}

// hugepages is the limit of its own of a page size in the kernel's form.
func (s ContainerSpec) hugepages(size string) uint64 {
	for of, limit := range s.Hugepages {
		if contract.CgroupPageSize(of) == size {
			q := resource.MustParse(limit)
			return uint64(q.Value())
		}
	}
	return 0
}

// nri is the container as NRI plugins see it.
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

// tellsDevices: containerd names CDI devices from 2.3 on.
func (n *Node) tellsDevices() bool {
	return !slices.ContainsFunc([]string{"v1.", "v2.0.", "v2.1.", "v2.2."}, func(old string) bool {
		return strings.HasPrefix(n.o.RuntimeVersion, old)
	})
}

// Start does what the OCI runtime does and then the container runtime: make
// the cgroup, run the hooks, tell the NRI plugins. Only then the program runs.
func (c *Container) Start() error {
	c.n.t.Helper()
	c.n.makeCgroup(c.cgroup(), c.values())
	c.n.judge()
	err := c.runHooks()
	if err == nil && c.n.runtime.running() {
		err = c.n.runtime.nri.StartContainer(c.n.t.Context(), &adaptation.StartContainerRequest{Pod: c.sandbox, Container: c.nri()})
	}
	if err != nil {
		c.Stop()
		return err
	}
	c.started = true
	c.n.runtime.keep(c)
	return nil
}

// Stop ends and removes the container.
func (c *Container) Stop() {
	c.n.t.Helper()
	require.NoError(c.n.t, os.RemoveAll(filepath.Join(c.n.Cgroup, c.cgroup())))
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

// Update is kubelet's update of a running container: it brings zeros, and the
// runtime writes its whole spec again.
func (c *Container) Update() error {
	c.n.t.Helper()
	c.overwritten = !c.n.acting()
	kubelet := &api.LinuxResources{Unified: map[string]string{"memory.min": "0", "memory.low": "0"}}
	reply, err := c.n.runtime.nri.UpdateContainer(c.n.t.Context(), &adaptation.UpdateContainerRequest{Pod: c.sandbox, Container: c.nri(), LinuxResources: kubelet})
	if err != nil {
		return err
	}
	r := c.Spec.Linux.Resources
	maps.Copy(r.Unified, kubelet.Unified)
	for _, u := range reply.GetUpdate() {
		if id := u.GetContainerId(); id != "" && id != c.ID { // NRI's own answer names none
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
	for file, value := range c.values() {
		c.n.writeCgroup(c.cgroup(), file, value)
	}
	c.n.judge()
	return c.n.runtime.nri.PostUpdateContainer(c.n.t.Context(), &adaptation.PostUpdateContainerRequest{Pod: c.sandbox, Container: c.nri()})
}

// values are the cgroup's values by the OCI spec, as runc writes them.
func (c *Container) values() map[string]string {
	r := c.Spec.Linux.Resources
	out := map[string]string{"cpuset.cpus": r.CPU.Cpus, "cpuset.mems": r.CPU.Mems}
	if r.Memory != nil && r.Memory.Limit != nil {
		out["memory.max"] = strconv.FormatInt(*r.Memory.Limit, 10)
	}
	for _, l := range r.HugepageLimits {
		limit := "max"
		if l.Limit != math.MaxUint64 {
			limit = strconv.FormatUint(l.Limit, 10)
		}
		out["hugetlb."+l.Pagesize+".max"], out["hugetlb."+l.Pagesize+".rsvd.max"] = limit, limit
	}
	maps.Copy(out, r.Unified)
	return out
}

// runHooks runs the createRuntime hooks, with the state on stdin. Each is the
// guard, which is told where the lab's cgroups and processes are.
func (c *Container) runHooks() error {
	if c.Spec.Hooks == nil {
		return nil
	}
	bundle := c.n.path("bundles/" + c.ID)
	c.n.mkdir("bundles/" + c.ID)
	defer os.RemoveAll(bundle)
	config, err := json.Marshal(c.Spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		return err
	}
	proc := filepath.Join(bundle, "proc")
	if err := c.makeProcess(proc); err != nil {
		return err
	}
	state, err := json.Marshal(specs.State{Version: specs.Version, ID: c.ID, Status: specs.StateCreating, Pid: hookPID, Bundle: bundle})
	if err != nil {
		return err
	}
	for _, hook := range c.Spec.Hooks.CreateRuntime {
		cmd := exec.Command(hook.Path)
		cmd.Args, cmd.Env, cmd.Stdin = append(slices.Clone(hook.Args), "--cgroup-root", c.n.Cgroup, "--proc-root", proc), hook.Env, bytes.NewReader(state)
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("createRuntime hook: %w: %s", err, out))
		}
	}
	return nil
}

// hookPID is the process that hooks are told of.
const hookPID = 4242

// makeProcess makes what hooks find in /proc of the container's process, whose
// program does not run yet: an OCI runtime has given it the OOM score of the spec.
func (c *Container) makeProcess(proc string) error {
	dir := filepath.Join(proc, strconv.Itoa(hookPID))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	score := 0
	if s := c.Spec.Process.OOMScoreAdj; s != nil {
		score = *s
	}
	return os.WriteFile(filepath.Join(dir, "oom_score_adj"), fmt.Appendln(nil, score), 0o600)
}

// HasCgroup reports whether the OCI runtime has made the container's cgroup.
func (c *Container) HasCgroup() bool {
	_, err := os.Stat(filepath.Join(c.n.Cgroup, c.cgroup()))
	return err == nil
}

// ReadCgroup reads a file of the container's cgroup.
func (c *Container) ReadCgroup(file string) string { return c.n.ReadCgroup(c.cgroup(), file) }

// SetCgroup writes a file of the container's cgroup as somebody else would.
func (c *Container) SetCgroup(file, value string) { c.n.SetCgroup(c.cgroup(), file, value) }

// CPUs is the container's cpuset: that of its cgroup, of its spec before.
func (c *Container) CPUs() string {
	if c.started {
		return c.ReadCgroup("cpuset.cpus")
	}
	return c.Spec.Linux.Resources.CPU.Cpus
}

func (c *Container) cgroup() string { return c.Pod.cgroup() + "/" + c.ID }

// cgroup is the pod's cgroup, as kubelet's cgroupfs driver names it.
func (p *Pod) cgroup() string {
	level := map[Level]string{Guaranteed: "", Burstable: "burstable/", BestEffort: "besteffort/"}[p.Level]
	return "kubepods/" + level + "pod" + p.UID
}

// oomScore is what kubelet asks for, for Burstable pods somewhere in between.
func (p *Pod) oomScore() int {
	return map[Level]int{Guaranteed: -997, Burstable: 900, BestEffort: 1000}[p.Level]
}

// makePodCgroup does what kubelet does: no hugepages but what the containers'
// specs say.
func (n *Node) makePodCgroup(p *Pod) {
	if p.made {
		return
	}
	p.made = true
	values := make(map[string]string)
	for _, size := range n.pageSizes() {
		sum := uint64(0)
		for _, c := range p.Containers {
			sum += c.hugepages(size)
		}
		limit := strconv.FormatUint(sum, 10)
		values["hugetlb."+size+".max"], values["hugetlb."+size+".rsvd.max"] = limit, limit
	}
	n.makeCgroup(p.cgroup(), values)
}

func (n *Node) removePodCgroup(p *Pod) {
	require.NoError(n.t, os.RemoveAll(filepath.Join(n.Cgroup, p.cgroup())))
	p.made = false
}
