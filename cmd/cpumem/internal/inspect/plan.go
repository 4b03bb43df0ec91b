// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Plan is what the actuator would write into the cgroups now.
type Plan struct {
	Steps []tree.Step
	// Refused has the containers whose claims are refused, with the reason. The
	// actuator gives them the shared pool's CPUs.
	Refused map[string]string
	// LeftOut has the containers that the plan does not judge, with the reason.
	LeftOut map[string]string
}

// ReadPlan plans from the CDI directory and the cgroups of this node, with the
// actuator's own functions. proc is the mount of proc: the environment of a
// container's first process has its claims. Only root may read both. The plan is of
// a moment: while containers are created, it may name values that the actuator is
// about to write.
func ReadPlan(cdiDir, cgroupRoot string, proc fs.FS) (Plan, error) {
	bootID, err := preflight.BootID(proc)
	if err != nil {
		return Plan{}, err
	}
	mount, err := cgroups.Open(cgroupRoot)
	if err != nil {
		return Plan{}, err
	}
	p := planner{mount: mount, proc: proc, dir: claims.New(cdidir.At(cdiDir), contract.Features(), bootID)}
	p.plan.Refused, p.plan.LeftOut = make(map[string]string), make(map[string]string)
	err = p.read()
	return p.plan, errors.Join(err, mount.Close())
}

type planner struct {
	mount *cgroups.Mount
	proc  fs.FS
	dir   *claims.Directory
	node  contract.NodeState
	plan  Plan
}

func (p *planner) read() (err error) {
	if p.node, err = p.dir.Node(); err != nil {
		return err
	}
	kubepods, found := p.mount.Kubepods()
	if !found {
		return errors.New("no cgroup kubepods or kubepods.slice below the mount: is kubelet running, and with the default cgroupRoot?")
	}
	levels, err := cgroups.Levels(path.Join(kubepods, "pod"))
	if err != nil {
		return err
	}
	var holdings []tree.Holding
	for _, level := range levels {
		for _, pod := range p.below(level) {
			uid := cgroups.PodUID(pod)
			if uid == "" {
				continue
			}
			holdings = append(holdings, tree.Holding{PodDir: pod, PodUID: uid})
			for _, dir := range p.below(pod) {
				h, err := p.holding(dir, pod, uid)
				switch refused := (*claims.Refusal)(nil); {
				case errors.Is(err, errHiddenProcess):
					return err
				case errors.As(err, &refused):
					p.plan.Refused[dir] = err.Error()
				case err != nil:
					p.plan.LeftOut[dir] = err.Error()
				}
				holdings = append(holdings, h)
			}
		}
	}
	desired := tree.Desired(p.node, levels, holdings)
	observed := make(map[string]tree.State)
	for dir, want := range desired {
		files := []string{contract.FileExclusive, contract.FilePartition}
		for file := range want.Files {
			files = append(files, file)
		}
		state, err := p.mount.Observe(dir, files...)
		if err != nil && !errors.Is(err, cgroups.ErrGone) {
			return err
		}
		if state.Files == nil {
			continue
		}
		if want.Kind > tree.Pod {
			state.Former = nil
		}
		observed[dir] = state
	}
	for _, step := range tree.Steps(desired, observed) {
		if step.Act != tree.MarkWritten {
			p.plan.Steps = append(p.plan.Steps, step)
		}
	}
	return nil
}

// below returns the cgroups directly below the cgroup dir, none if it is gone.
func (p *planner) below(dir string) []string {
	names, _ := p.mount.Children(dir)
	dirs := make([]string, len(names))
	for i, name := range names {
		dirs[i] = path.Join(dir, name)
	}
	return dirs
}

// holding returns what the container has of the node. A refused container has the
// shared pool's CPUs. With another error a container on its pod's CPUs stays as it is, as
// in the actuator.
func (p *planner) holding(dir, pod, uid string) (tree.Holding, error) {
	h := tree.Holding{Dir: dir, PodDir: pod, PodUID: uid}
	if kind, err := p.mount.Read(dir, contract.FilePartition); err == nil && kind != tree.Member {
		h.PartitionCPUs, _ = p.mount.ReadCPUs(dir, contract.FileExclusive)
	}
	env, err := p.environment(dir)
	if err != nil {
		return h, err
	}
	container := claims.Container{PodUID: uid}.WithEnv(env)
	state, err := p.mount.Observe(dir)
	if err != nil {
		return h, err
	}
	if !container.NamesClaim() && len(state.Written) == 0 {
		return h, errors.New("no claim, and the actuator has written nothing: a sandbox, a container that another program " +
			"pinned, or one that was created while no actuator was there")
	}
	held, err := p.dir.ForContainer(p.node, container)
	pool := p.node.SharedOf(uid)
	switch {
	case errors.As(err, new(*claims.Refusal)):
		h.Decision = contract.Decision{V: contract.Version, CPUs: pool.CPUs}
		return h, err
	case err != nil:
		return h, err
	}
	h.Decision = claims.Effective(held, pool)
	h.Claimed = !contract.Merge(held).CPUs.IsEmpty()
	if h.Claimed && h.Decision.Partition == "" && p.runsOnNone(dir, pod, h.Decision.CPUs) {
		h.Substitute = pool.CPUs
	}
	return h, nil
}

// runsOnNone reports whether the container can run on none of the CPUs, as in the actuator: neither its level
// nor its own cgroup has one of them.
func (p *planner) runsOnNone(dir, pod string, cpus contract.CPUSet) bool {
	for _, cgroup := range []string{path.Dir(pod), dir} {
		usable, err := p.mount.ReadCPUs(cgroup, tree.FileEffective)
		if err != nil || usable.IsEmpty() || usable.Overlaps(cpus) {
			return false
		}
	}
	return true
}

// errHiddenProcess means that no container can be judged.
var errHiddenProcess = errors.New("run --plan on the node: this PID namespace does not show the containers' processes")

// maxEnviron bounds a process's environment, in bytes. The kernel's limit for one
// variable is smaller (execve(2)).
const maxEnviron = 4 << 20

// environment returns the variables of the container's first process.
func (p *planner) environment(dir string) ([]string, error) {
	pids, err := p.mount.Read(dir, "cgroup.procs")
	for _, sub := range p.below(dir) {
		if err == nil && pids == "" {
			// Some OCI runtimes put the processes into a cgroup of their own.
			pids, err = p.mount.Read(sub, "cgroup.procs")
		}
	}
	if err != nil {
		return nil, err
	}
	pid, _, _ := strings.Cut(pids, "\n")
	switch pid {
	case "":
		return nil, errors.New("no process")
	case "0": // so the kernel shows a process of another PID namespace
		return nil, errHiddenProcess
	}
	f, err := p.proc.Open(path.Join(pid, "environ"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	return strings.Split(string(data), "\x00"), err
}

// Write prints the plan, a line for each write.
func (p Plan) Write(w io.Writer) {
	switch {
	case len(p.Steps) == 0 && len(p.LeftOut) == 0:
		fmt.Fprintln(w, "plan: the cgroups have what the node state demands")
	case len(p.Steps) == 0:
		fmt.Fprintln(w, "plan: the cgroups have what the node state demands, except containers that are left out")
	}
	for _, s := range p.Steps {
		note := ""
		switch {
		case s.Act == tree.SaveFormer:
			note = " (its former value is saved)"
		case s.Act == tree.GiveBack:
			note = " (its former value)"
		}
		fmt.Fprintf(w, "plan: %s/%s: %.200q becomes %q%s\n", s.Dir, s.File, s.Found, s.Content, note)
	}
	list(w, "have a refused claim", p.Refused)
	list(w, "are left out", p.LeftOut)
}

func list(w io.Writer, what string, reasons map[string]string) {
	if len(reasons) > 0 {
		fmt.Fprintf(w, "plan: containers that %s: %d\n", what, len(reasons))
	}
	for _, dir := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(w, "  %s: %s\n", dir, reasons[dir])
	}
}
