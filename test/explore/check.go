// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// check notes the first violation of an invariant that holds at each moment.
func (w *world) check(when string) { w.note(when, w.moment()) }

func (w *world) note(when string, err error) {
	if err != nil && w.broken == nil {
		w.broken = fmt.Errorf("after %s: %w", when, err)
	}
}

// moment checks the invariants that hold at each moment.
func (w *world) moment() error {
	var errs []error
	if damage := w.kernel.Damage(); damage != "" {
		errs = append(errs, fmt.Errorf("the kernel is damaged: %s", damage))
	}
	for _, c := range w.sorted() {
		if c.phase != running {
			continue
		}
		has, err := w.effective(c)
		errs = append(errs, err)
		if has.IsEmpty() {
			errs = append(errs, fmt.Errorf("I7: the pod with %s has no CPU", c.pod.name))
		}
		if !c.claimed() || c.unseen || c.unbacked {
			continue
		}
		if !has.IsSubsetOf(c.decision.CPUs) {
			errs = append(errs, fmt.Errorf("I5: the pod with %s has CPUs %s", c.pod.name, has))
		}
		for _, other := range w.sorted() {
			if other.pod.uid == c.pod.uid || other.phase != running || other.unseen {
				continue
			}
			theirs, err := w.effective(other)
			errs = append(errs, err)
			if theirs.Overlaps(has) {
				errs = append(errs, fmt.Errorf("I1: the pod with %s has CPUs %s, the pod with %s has %s", c.pod.name, has, other.pod.name, theirs))
			}
		}
	}
	return errors.Join(errs...)
}

func (w *world) effective(c *container) (contract.CPUSet, error) {
	list, err := w.kernel.Read(c.dir, "cpuset.cpus.effective")
	if err != nil {
		return contract.CPUSet{}, err
	}
	return contract.ParseCPUs(list)
}

// files checks the CDI directory: no CPU of a claim file is in another claim file or in
// the shared pool (I1), and the pool has a CPU (I7).
func (w *world) files() error {
	node, err := w.node()
	if err != nil {
		return nil // another program has removed the file, or made it unreadable
	}
	var errs []error
	if node.PoolCPUs().IsEmpty() {
		errs = append(errs, errors.New("I7: the shared pool has no CPU"))
	}
	taken := node.PoolCPUs()
	for _, p := range w.pods {
		if !p.claimed() || !w.held(p) {
			continue
		}
		if taken.Overlaps(p.cpus) {
			errs = append(errs, fmt.Errorf("I1: the claim of the pod with %s has CPUs of the pool or of another claim: %s", p.name, taken))
		}
		taken = taken.Union(p.cpus)
	}
	return errors.Join(errs...)
}

// node returns the node file, which is decoded once while its content is the same.
func (w *world) node() (contract.NodeState, error) {
	data := w.disk.Now()[path.Join(cdiDir, contract.NodeFile)]
	if w.decoded.text != data || data == "" {
		w.decoded.text = data
		w.decoded.state, w.decoded.err = contract.DecodeNode([]byte(data))
	}
	return w.decoded.state, w.decoded.err
}

// rest checks the invariants that hold when both daemons have done their work: each
// cgroup has the values of the files (I5), and the actuator has announced them.
func (w *world) rest() error {
	node, err := w.node()
	if err == nil && node.BootID != w.bootID() {
		err = fmt.Errorf("the node file is of boot %s", node.BootID)
	}
	if err != nil && w.blocked() {
		return nil // the frontend does not know the pool
	}
	if err != nil {
		return err
	}
	var errs []error
	if w.announced.Generation != node.Generation {
		errs = append(errs, fmt.Errorf("the actuator has announced generation %d, the node file has %d", w.announced.Generation, node.Generation))
	}
	for _, c := range w.sorted() {
		if c.phase != running {
			continue
		}
		want := contract.Files{tree.FileCPUs: node.SharedOf(c.pod.uid).CPUs.String()}
		switch {
		case !c.claimed():
			want[tree.FileMems] = node.Shared.Mems.String()
		case w.held(c.pod) && !w.prepared(c.pod):
			continue // it stays as it is
		case w.backed(c):
			want = tree.ContainerFiles(c.decision)
			if kind := c.decision.Partition; kind != "" {
				want[contract.FilePartition] = kind
			}
		}
		errs = append(errs, w.has(c.dir, want), w.has(c.pod.dir(), node.Pods[c.pod.uid].Cgroup))
	}
	for level, dir := range map[string]string{contract.LevelKubepods: "kubepods", contract.LevelBurstable: "kubepods/burstable"} {
		if len(w.containers) > 0 { // else no container leads to the levels
			errs = append(errs, w.has(dir, node.Ancestors[level]))
		}
	}
	return errors.Join(errs...)
}

// has returns an error unless a cgroup has these contents.
func (w *world) has(dir string, want contract.Files) error {
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(want)) {
		got, err := w.kernel.Read(dir, file)
		if err != nil || got != want[file] {
			errs = append(errs, fmt.Errorf("I5: %s/%s is %q (%v), want %q", dir, file, got, err, want[file]))
		}
	}
	return errors.Join(errs...)
}

// hasAll checks that a container without a claim has all CPUs again.
func (w *world) hasAll(c *container) error {
	has, err := w.effective(c)
	if err == nil && has != w.online() {
		err = fmt.Errorf("I3: the pod with %s has CPUs %s after all claims are released", c.pod.name, has)
	}
	return err
}

// online returns the CPUs that are online.
func (w *world) online() contract.CPUSet {
	if w.offline {
		return contract.CPUs(0, 1, 2)
	}
	return contract.CPUs(0, 1, 2, 3)
}

// empty checks that a node without pods has everything back (I3): CPUs, files, and the
// former contents of levels.
func (w *world) empty() error {
	all, err := w.kernel.Read("", "cpuset.cpus.effective")
	errs := []error{err}
	if all != w.online().String() {
		errs = append(errs, fmt.Errorf("I3: the node has CPUs %q after all pods are gone", all))
	}
	files := w.disk.Now()
	delete(files, path.Join(cdiDir, contract.NodeFile))
	if !strings.Contains(files[location], w.bootID()) {
		delete(files, location) // a location of an earlier boot means nothing
	}
	if len(files) > 0 {
		errs = append(errs, fmt.Errorf("I3: files %q are left after all pods are gone", files))
	}
	for _, dir := range w.kernel.Dirs() {
		if strings.Contains(dir, contract.Vendor+".probe") {
			continue // the next dry run uses it
		}
		if dir != "kubepods" && dir != "kubepods/burstable" {
			errs = append(errs, fmt.Errorf("I3: the cgroup %s is left after all pods are gone", dir))
		}
		want := contract.Files{"memory.min": "0", "memory.low": "0"}
		if w.version.Name != "6.1" {
			want[contract.FileExclusive], want[contract.FilePartition] = "", tree.Member
		}
		for name, content := range formerContents {
			if filepath.Dir(name) == dir {
				want[filepath.Base(name)] = content
			}
		}
		errs = append(errs, w.has(dir, want))
		marks, err := w.kernel.Attributes(dir)
		errs = append(errs, err)
		for mark := range marks {
			if strings.Contains(mark, ".former.") {
				errs = append(errs, fmt.Errorf("I3: the mark %s of %s is left after all pods are gone", mark, dir))
			}
		}
	}
	return errors.Join(errs...)
}
