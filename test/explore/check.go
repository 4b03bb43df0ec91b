// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// check notes the first violation of an invariant that holds at each moment.
func (w *world) check(when string) { w.note(when, w.moment()) }

func (w *world) note(when string, err error) {
	if err != nil && w.broken == nil {
		w.broken = fmt.Errorf("after %s: %w", when, err)
	}
}

// moment returns which invariant does not hold, of those that hold at each moment.
func (w *world) moment() error {
	var errs []error
	if damage := w.kernel.Damage(); damage != "" {
		errs = append(errs, fmt.Errorf("the kernel is damaged: %s", damage))
	}
	for _, id := range sortedIDs(w.containers) {
		c := w.containers[id]
		if !c.running {
			continue
		}
		has, err := w.effective(c)
		errs = append(errs, err)
		if has.IsEmpty() {
			errs = append(errs, fmt.Errorf("I7: the container of pod %s has no CPU", c.pod.uid))
		}
		if c.pod.decision == nil || c.unknown {
			continue
		}
		if !has.IsSubsetOf(c.pod.decision.CPUs) { // I5
			errs = append(errs, fmt.Errorf("I5: pod %s has CPUs %s, its claim %s", c.pod.uid, has, c.pod.decision.CPUs))
		}
		for _, other := range sortedIDs(w.containers) {
			o := w.containers[other]
			if other == id || !o.running || o.unknown {
				continue
			}
			theirs, err := w.effective(o)
			errs = append(errs, err)
			if theirs.Overlaps(has) { // I1
				errs = append(errs, fmt.Errorf("I1: pod %s has CPUs %s, pod %s has %s", c.pod.uid, has, o.pod.uid, theirs))
			}
		}
	}
	return errors.Join(errs...)
}

// files returns an error if a CPU of a claim file is in the shared pool (I1).
func (w *world) files() error {
	node, err := w.node()
	if err != nil || node.BootID != w.bootID() {
		return nil // no node state of this boot
	}
	var errs []error
	for _, p := range pods() {
		if p.decision != nil && w.prepared(p) && node.PoolCPUs().Overlaps(p.decision.CPUs) {
			errs = append(errs, fmt.Errorf("I1: the pool has CPUs %s, the claim of pod %s has %s", node.PoolCPUs(), p.uid, p.decision.CPUs))
		}
	}
	return errors.Join(errs...)
}

func (w *world) node() (contract.NodeState, error) {
	data, err := os.ReadFile(filepath.Join(w.cdi(), contract.NodeFile))
	if err != nil {
		return contract.NodeState{}, err
	}
	return contract.DecodeNode(data)
}

func (w *world) effective(c *container) (contract.CPUSet, error) {
	list, err := w.kernel.Read(c.dir(), "cpuset.cpus.effective")
	if err != nil {
		return contract.CPUSet{}, err
	}
	return contract.ParseCPUs(list)
}

// rest returns which invariant does not hold, of those that hold when both daemons
// have done their work.
func (w *world) rest() error {
	errs := []error{w.moment()}
	for _, id := range sortedIDs(w.containers) {
		c := w.containers[id]
		if !c.running {
			continue
		}
		has, err := w.effective(c)
		errs = append(errs, err)
		want := c.pod.decision
		switch {
		case want == nil:
			continue
		case has != want.CPUs.Intersection(w.online()):
			errs = append(errs, fmt.Errorf("I5: pod %s has CPUs %s, its claim %s", c.pod.uid, has, want.CPUs))
		}
		if kind, _ := w.kernel.Read(c.dir(), contract.FilePartition); want.Partition != "" && kind != want.Partition {
			errs = append(errs, fmt.Errorf("pod %s: its partition is %q", c.pod.uid, kind))
		}
	}
	return errors.Join(errs...)
}

// online returns the CPUs that are online.
func (w *world) online() contract.CPUSet {
	if w.offline {
		return contract.CPUs(0, 1, 2)
	}
	return contract.CPUs(0, 1, 2, 3)
}

// empty returns what is left on a node without pods: liveness (I3).
func (w *world) empty() error {
	var errs []error
	all, err := w.kernel.Read("", "cpuset.cpus.effective")
	errs = append(errs, err)
	if all != w.online().String() {
		errs = append(errs, fmt.Errorf("the node has CPUs %q after all pods are gone", all))
	}
	for _, pattern := range []string{contract.ClaimFile("*"), ".*"} {
		left, err := filepath.Glob(filepath.Join(w.cdi(), pattern))
		errs = append(errs, err)
		if len(left) > 0 {
			errs = append(errs, fmt.Errorf("files %q are left after all pods are gone", left))
		}
	}
	for _, dir := range []string{"kubepods", "kubepods/burstable"} {
		for file, want := range map[string]string{contract.FileExclusive: "", "memory.min": "0", "memory.low": "0", contract.FilePartition: "member"} {
			if got, err := w.kernel.Read(dir, file); err == nil && got != want {
				errs = append(errs, fmt.Errorf("%s/%s is %q after all pods are gone", dir, file, got))
			}
		}
	}
	return errors.Join(errs...)
}
