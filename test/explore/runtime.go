// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/api"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// container is a container of the runtime.
type container struct {
	pod  pod
	slot slot
	// decision is the decision with which a container with a claim was created.
	decision contract.Decision
	api      *api.Container
	dir      string
	// spec are the cgroup files that the runtime writes.
	spec  map[string]string
	phase phase
	// unseen reports whether the actuator has not seen the container as it is: the
	// container was created or started without the actuator, or another program has
	// changed it. The guard takes care of containers with a claim.
	unseen bool
	// unbacked reports whether another program has removed the file of the container's
	// claim: the container belongs to the shared pool.
	unbacked bool
}

// phase is how far a container has come. A made container has its cgroup, and its
// program does not run yet.
type phase int

const (
	created phase = iota
	made
	running
)

func (c *container) claimed() bool { return c.pod.claimed() }

// list returns what the runtime lists at a connection.
func (w *world) list() (pods []*api.PodSandbox, list []*api.Container) {
	for _, p := range w.pods {
		if w.populated(p) {
			pods = append(pods, p.sandbox())
		}
	}
	for _, c := range w.sorted() {
		list = append(list, c.api)
	}
	return pods, list
}

// answers reports whether the actuator runs and is connected.
func (w *world) answers() bool { return !w.actuator.over && !w.away }

// populated reports whether the pod has a container.
func (w *world) populated(p pod) bool {
	return slices.ContainsFunc(p.slots(), func(at slot) bool { return w.containers[at] != nil })
}

func (w *world) exists(dir string) bool {
	_, err := w.kernel.Attributes(dir)
	return err == nil
}

// create creates a container of a pod, which has its cgroup from kubelet. A container
// that is refused is not there afterwards: its pod stays without one.
func (w *world) create(p pod, at slot) error {
	if !w.exists(p.dir()) {
		if err := w.kernel.Mkdir(p.dir()); err != nil {
			return err
		}
		if err := w.kernel.Write(p.dir(), "cgroup.subtree_control", "+cpuset +memory +hugetlb"); err != nil {
			return err
		}
	}
	name := at.name() + "-first"
	if w.second[at] {
		name = at.name() + "-second"
	}
	w.second[at] = !w.second[at]
	c := &container{
		pod: p, slot: at, dir: p.dir() + "/" + name, spec: map[string]string{"memory.min": "0", "memory.low": "0"}, unseen: !p.claimed(),
		api: &api.Container{Id: p.uid + name, PodSandboxId: "sandbox-" + p.uid, Name: at.name(), State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: "/" + p.dir() + "/" + name}},
	}
	if p.claimed() {
		c.decision, _ = w.decision(p)
		entry, err := c.decision.Env(contract.Key{ClaimUID: p.claimUID(), Index: 0})
		if err != nil {
			return err
		}
		c.api.Env = []string{entry}
	}
	if w.answers() {
		var refusal error
		crashed, _ := w.do(func() error {
			var a *api.ContainerAdjustment
			a, _, refusal = w.session.CreateContainer(ctx(), p.sandbox(), c.api)
			c.answered(a.GetLinux().GetResources())
			c.api.Annotations = a.GetAnnotations()
			return nil
		})
		switch {
		case crashed:
		case refusal != nil && !p.claimed():
			return fmt.Errorf("I7: a container without a claim is refused: %w", refusal)
		case refusal != nil:
			w.refused = refusal
			return nil
		case c.spec["cpuset.cpus"] != "":
			c.unseen = false
		case w.knowsPool && w.claimsRun() && !w.actuator.wrong:
			return errors.New("I1: without a node file, the last known pool does not hold for a container without a claim")
		}
	}
	w.containers[at] = c
	return nil
}

// forge creates containers of the pod without a claim, each with the variable of the
// prepared claim of another pod. Each is refused (I6).
func (w *world) forge() error {
	thief := w.pods[len(w.pods)-1]
	for _, p := range w.pods {
		d, prepared := w.decision(p)
		if !prepared {
			continue
		}
		entry, err := d.Env(contract.Key{ClaimUID: p.claimUID(), Index: 0})
		if err != nil {
			return err
		}
		forged := &api.Container{Id: "forged", PodSandboxId: "sandbox-" + thief.uid, Name: "forged", Env: []string{entry},
			Linux: &api.LinuxContainer{CgroupsPath: "/" + thief.dir() + "/forged"}}
		var refusal error
		if crashed, _ := w.do(func() error {
			_, _, refusal = w.session.CreateContainer(ctx(), thief.sandbox(), forged)
			return nil
		}); crashed {
			return nil
		}
		if refusal == nil {
			return fmt.Errorf("I6: a container of another pod gets the claim of the pod with %s", p.name)
		}
	}
	return nil
}

// claimsRun reports whether a container with a claim runs that the actuator has seen.
func (w *world) claimsRun() bool {
	return slices.ContainsFunc(w.sorted(), func(c *container) bool { return c.claimed() && c.phase == running && !c.unseen })
}

// answered keeps an answer's values for the container's cgroup.
func (c *container) answered(r *api.LinuxResources) {
	if cpus := r.GetCpu().GetCpus(); cpus != "" {
		c.spec["cpuset.cpus"] = cpus
		c.api.Linux.Resources = &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus}}
	}
	if mems := r.GetCpu().GetMems(); mems != "" {
		c.spec["cpuset.mems"] = mems
	}
	maps.Copy(c.spec, r.GetUnified())
}

// make makes the container's cgroup, with the runtime's own process in it.
func (w *world) make(c *container) error {
	if err := w.kernel.Mkdir(c.dir); err != nil {
		return err
	}
	if err := w.kernel.Attach(c.dir); err != nil {
		return err
	}
	c.phase = made
	return w.writeSpec(c)
}

func (w *world) writeSpec(c *container) error {
	for _, file := range slices.Sorted(maps.Keys(c.spec)) {
		if err := w.kernel.Write(c.dir, file, c.spec[file]); err != nil {
			return fmt.Errorf("the runtime writes %q to %s/%s: %w", c.spec[file], c.dir, file, err)
		}
		w.check(fmt.Sprintf("the runtime's write of %q to %s/%s", c.spec[file], c.dir, file))
	}
	return nil
}

// guarded reports whether the guard lets a made container start: a container with a
// claim has the claim's values, and is a partition if the decision says so.
func (w *world) guarded(c *container) bool {
	if !c.claimed() {
		return true
	}
	for file, want := range c.decision.Files() {
		if got, err := w.kernel.Read(c.dir, file); err != nil || got != want {
			return false
		}
	}
	got, _ := w.kernel.Read(c.dir, "cpuset.cpus")
	return got == c.decision.CPUs.String()
}

// start starts the program of a made container. A container that is refused ends.
func (w *world) start(c *container) error {
	if w.answers() {
		var refusal error
		crashed, _ := w.do(func() error {
			refusal = w.session.StartContainer(ctx(), c.pod.sandbox(), c.api)
			return nil
		})
		switch {
		case crashed:
			c.unseen = c.unseen || !c.claimed()
		case refusal == nil:
		case !c.claimed() && !w.actuator.wrong:
			return fmt.Errorf("I7: a container without a claim may not start: %w", refusal)
		default:
			return w.end(c)
		}
	} else {
		c.unseen = c.unseen || !c.claimed()
	}
	c.phase, c.api.State = running, api.ContainerState_CONTAINER_RUNNING
	return nil
}

// update is kubelet's change of the container's own values: the runtime writes all of
// the spec again, with kubelet's zeros where the actuator does not answer.
func (w *world) update(c *container) error {
	c.spec["memory.min"], c.spec["memory.low"] = "0", "0"
	answered := false
	if w.answers() {
		var err error
		crashed, _ := w.do(func() error {
			var updates []*api.ContainerUpdate
			updates, err = w.session.UpdateContainer(ctx(), c.pod.sandbox(), c.api, &api.LinuxResources{})
			for _, u := range updates {
				c.answered(u.GetLinux().GetResources())
			}
			return nil
		})
		if err != nil && !crashed {
			return nil // the runtime changes nothing
		}
		answered = !crashed
	}
	c.unseen = c.unseen || !answered
	if err := w.writeSpec(c); err != nil || !w.answers() {
		return err
	}
	_, err := w.do(func() error { return w.session.PostUpdateContainer(ctx(), c.pod.sandbox(), c.api) })
	return err
}

// end stops and removes a container.
func (w *world) end(c *container) error {
	if w.answers() {
		if _, err := w.do(func() error {
			_, err := w.session.StopContainer(ctx(), c.pod.sandbox(), c.api)
			return err
		}); err != nil {
			return err
		}
	}
	if c.phase != created {
		if err := w.kernel.Detach(c.dir); err != nil {
			return err
		}
		if err := w.kernel.Rmdir(c.dir); err != nil {
			return err
		}
	}
	delete(w.containers, c.slot)
	if !w.answers() {
		return nil
	}
	_, err := w.do(func() error { return w.session.RemoveContainer(ctx(), c.pod.sandbox(), c.api) })
	return err
}

// foreign is a write of another program into a container's cgroup.
func (w *world) foreign(c *container, file, content string) error {
	before, err := w.kernel.Read(c.dir, file)
	if err != nil {
		return err
	}
	c.unseen = c.unseen || before != content
	return w.kernel.Write(c.dir, file, content)
}

// delete is kubelet's end of a pod: the claim is released, and the cgroup removed.
func (w *world) delete(p pod) error {
	if p.claimed() {
		if err := w.unprepare(p); err != nil {
			return err
		}
	}
	if !w.exists(p.dir()) {
		return nil
	}
	return w.kernel.Rmdir(p.dir())
}
