// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/api"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// container is a container of the runtime.
type container struct {
	pod pod
	api *api.Container
	// spec are the cgroup files that the runtime writes.
	spec map[string]string
	// running reports whether the container's program runs.
	running bool
	// unknown reports whether the actuator has not seen the container as it is: the
	// container was created without the actuator, or another program has changed it.
	unknown bool
}

func (c *container) dir() string { return c.pod.dir() + "/c" }

func (p pod) sandbox() *api.PodSandbox {
	parent := p.dir()
	return &api.PodSandbox{Id: "sandbox-" + p.uid, Name: "pod", Namespace: "ns", Uid: p.uid,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/" + parent}}
}

// list returns what the runtime lists at a connection.
func (w *world) list() (pods []*api.PodSandbox, list []*api.Container) {
	for _, id := range sortedIDs(w.containers) {
		pods = append(pods, w.containers[id].pod.sandbox())
		list = append(list, w.containers[id].api)
	}
	return pods, list
}

// alive reports whether the actuator runs and is connected.
func (w *world) alive() bool { return !w.actuator.over }

// makePodCgroup is kubelet's part of a pod's start.
func (w *world) makePodCgroup(p pod) error {
	if w.exists(p.dir()) {
		return nil
	}
	if err := w.kernel.Mkdir(p.dir()); err != nil {
		return err
	}
	return w.kernel.Write(p.dir(), "cgroup.subtree_control", "+cpuset +memory +hugetlb")
}

func (w *world) exists(dir string) bool {
	_, err := w.kernel.Files(dir)
	return err == nil
}

// run creates and starts the container of a pod. A container whose creation is refused
// is not there afterwards.
func (w *world) run(p pod) error {
	if err := w.makePodCgroup(p); err != nil {
		return err
	}
	c := &container{pod: p, spec: map[string]string{"memory.min": "0", "memory.low": "0"}, unknown: !w.alive(),
		api: &api.Container{Id: p.uid, PodSandboxId: "sandbox-" + p.uid, Name: "c", State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: "/" + p.dir() + "/c"}}}
	if p.decision != nil {
		entry, err := p.decision.Env(contract.Key{ClaimUID: p.claimUID(), Index: 0})
		if err != nil {
			return err
		}
		c.api.Env = []string{entry}
	}
	if w.alive() {
		refused := false
		crashed, err := w.do(func() error {
			a, _, err := w.session.CreateContainer(ctx(), p.sandbox(), c.api)
			if err != nil {
				refused = true
				return nil
			}
			c.take(a.GetLinux().GetResources())
			return nil
		})
		if err != nil || refused {
			return err
		}
		c.unknown = crashed
	}
	w.containers[p.uid] = c
	if err := w.kernel.Mkdir(c.dir()); err != nil {
		return err
	}
	if err := w.kernel.Attach(c.dir()); err != nil {
		return err
	}
	// The runtime's own process is in the cgroup, the container's program is not yet.
	for _, file := range slices.Sorted(maps.Keys(c.spec)) {
		if err := w.kernel.Write(c.dir(), file, c.spec[file]); err != nil {
			return fmt.Errorf("runtime writes %q to %s/%s: %w", c.spec[file], c.dir(), file, err)
		}
	}
	if !w.guarded(c) {
		return w.remove(c)
	}
	if w.alive() {
		refused := false
		crashed, err := w.do(func() error {
			refused = w.session.StartContainer(ctx(), p.sandbox(), c.api) != nil
			return nil
		})
		if err != nil {
			return err
		}
		if refused && !crashed {
			return w.remove(c)
		}
		c.unknown = c.unknown || crashed
	}
	c.running, c.api.State = true, api.ContainerState_CONTAINER_RUNNING
	return nil
}

// take keeps an answer's values for the container's cgroup.
func (c *container) take(r *api.LinuxResources) {
	if cpus := r.GetCpu().GetCpus(); cpus != "" {
		c.spec["cpuset.cpus"] = cpus
		c.api.Linux.Resources = &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus}}
	}
	if mems := r.GetCpu().GetMems(); mems != "" {
		c.spec["cpuset.mems"] = mems
	}
	maps.Copy(c.spec, r.GetUnified())
}

// guarded reports whether the guard lets the container start: a container with a claim
// has the claim's CPUs, as a partition if the decision says so.
func (w *world) guarded(c *container) bool {
	d := c.pod.decision
	if d == nil {
		return true
	}
	if cpus, _ := w.kernel.Read(c.dir(), "cpuset.cpus"); cpus != d.CPUs.String() {
		return false
	}
	kind, _ := w.kernel.Read(c.dir(), contract.FilePartition)
	return d.Partition == "" || kind == d.Partition
}

// end stops and removes the container of a pod.
func (w *world) end(c *container) error {
	if w.alive() {
		if _, err := w.do(func() error {
			_, err := w.session.StopContainer(ctx(), c.pod.sandbox(), c.api)
			return err
		}); err != nil {
			return err
		}
	}
	return w.remove(c)
}

// remove ends the container's processes, removes its cgroup, and reports the removal.
func (w *world) remove(c *container) error {
	if err := w.kernel.Detach(c.dir()); err != nil {
		return err
	}
	c.running = false
	if err := w.kernel.Rmdir(c.dir()); err != nil {
		return err
	}
	delete(w.containers, c.pod.uid)
	if w.alive() {
		_, err := w.do(func() error { return w.session.RemoveContainer(ctx(), c.pod.sandbox(), c.api) })
		return err
	}
	return nil
}

// removePodCgroup is kubelet's part of a pod's end.
func (w *world) removePodCgroup(p pod) error {
	if !w.exists(p.dir()) {
		return nil
	}
	return w.kernel.Rmdir(p.dir())
}
