// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// makeCgroup makes the container's cgroup as runc does, with a process in it.
func (c *Container) makeCgroup() error {
	k := c.n.cgroups
	if err := k.do(kerneltest.Operation{Kind: kerneltest.Mkdir, Dir: c.cgroup()}); err != nil {
		return err
	}
	if err := k.do(kerneltest.Operation{Kind: kerneltest.Attach, Dir: c.cgroup()}); err != nil {
		return err
	}
	return c.writeValues()
}

// writeValues writes the values of the OCI spec as runc does: those that the spec has
// members for, then the files of its member unified.
func (c *Container) writeValues() error {
	for _, files := range []map[string]string{c.values(), c.Spec.Linux.Resources.Unified} {
		for _, file := range sorted(files) {
			o := kerneltest.Operation{Kind: kerneltest.Write, Dir: c.cgroup(), File: file, Content: files[file]}
			if err := c.n.cgroups.do(o); err != nil {
				return fmt.Errorf("OCI runtime: %s: %w", o, err)
			}
		}
	}
	return nil
}

// values returns the cgroup's values for the members of the OCI spec but unified.
func (c *Container) values() map[string]string {
	r := c.Spec.Linux.Resources
	out := make(map[string]string)
	for file, list := range map[string]string{"cpuset.cpus": r.CPU.Cpus, "cpuset.mems": r.CPU.Mems} {
		if list != "" {
			out[file] = list
		}
	}
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
	return out
}

// runHooks runs the createRuntime hooks, with the state on standard input. Each
// hook is the guard, with arguments for the lab's cgroups and processes.
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
	end, err := c.makeProcess(proc)
	if err != nil {
		return err
	}
	defer end()
	state, err := json.Marshal(specs.State{Version: specs.Version, ID: c.ID, Status: specs.StateCreating, Pid: hookPID, Bundle: bundle})
	if err != nil {
		return err
	}
	for _, hook := range c.Spec.Hooks.CreateRuntime {
		cmd := exec.Command(hook.Path)
		cmd.Args, cmd.Env, cmd.Stdin = append(slices.Clone(hook.Args), "--cgroup-root", c.n.cgroups.socket, "--proc-root", proc),
			hook.Env, bytes.NewReader(state)
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("createRuntime hook: %w: %s", err, out))
		}
	}
	return nil
}

// hookPID is the container's process id in the hooks' state.
const hookPID = 4242

// makeProcess makes the /proc files of the container's process that hooks read. Until end,
// its CPUs and NUMA nodes follow its cgroup. The OCI runtime has written the spec's OOM
// score; the program does not run yet.
func (c *Container) makeProcess(proc string) (end func(), err error) {
	dir := filepath.Join(proc, strconv.Itoa(hookPID))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	score := 0
	if s := c.Spec.Process.OOMScoreAdj; s != nil {
		score = *s
	}
	if err := os.WriteFile(filepath.Join(dir, "oom_score_adj"), fmt.Appendln(nil, score), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/"+c.cgroup()+"\n"), 0o600); err != nil {
		return nil, err
	}
	if err := c.writeStatus(dir); err != nil {
		return nil, err
	}
	ended, follower := make(chan struct{}), sync.WaitGroup{}
	follower.Go(func() {
		tick := time.NewTicker(statusPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				_ = c.writeStatus(dir) // the cgroup may be gone
			}
		}
	})
	return func() { close(ended); follower.Wait() }, nil
}

// statusPeriod is shorter than the time between two looks of the guard.
const statusPeriod = 50 * time.Millisecond

// writeStatus writes what the kernel lets the container's process use.
func (c *Container) writeStatus(dir string) error {
	var status bytes.Buffer
	for _, f := range []struct{ field, file string }{
		{"Cpus_allowed_list", "cpuset.cpus.effective"}, {"Mems_allowed_list", "cpuset.mems.effective"},
	} {
		var list string
		err := c.n.cgroups.look(func() (err error) {
			list, err = c.n.cgroups.kernel.Read(c.cgroup(), f.file)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(&status, "%s:\t%s\n", f.field, list)
	}
	return atomicfile.Write(dir, "status", status.Bytes(), 0o600)
}
