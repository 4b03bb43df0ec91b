// SPDX-License-Identifier: Apache-2.0

// Package explore runs the real code of both daemons on a small node, in all orders of
// what can happen there: package ledger and package nodestate of the frontend, package
// nri of the actuator with everything below it, and package kernel's model in place of
// the kernel. A daemon may crash before any file operation. The invariants are checked
// after each write to a cgroup and after each action.
package explore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// pod is a pod of the world, with at most one claim.
type pod struct {
	uid, level string
	// decision is the claim's decision, nil for a pod without a claim.
	decision *contract.Decision
}

func (p pod) claimUID() string { return "c" + p.uid[1:] }

func (p pod) dir() string {
	dir := "kubepods"
	if p.level != "" {
		dir += "/" + p.level
	}
	return dir + "/pod" + p.uid
}

// pods are all pods: two claims that can be there together, a claim of a CPU of the
// second claim, and a pod without a claim.
func pods() []pod {
	partition := []string{contract.FeaturePartition}
	memory := &contract.Memory{Min: 64 << 20, Low: 64 << 20, High: contract.Max, Max: 512 << 20}
	return []pod{
		{"a0000000-0000-4000-8000-000000000001", "burstable",
			&contract.Decision{V: contract.Version, CPUs: contract.CPUs(1), Mems: contract.NUMANodes(0), Memory: memory}},
		{"a0000000-0000-4000-8000-000000000002", "",
			&contract.Decision{V: contract.Version, CPUs: contract.CPUs(2, 3), Mems: contract.NUMANodes(1), Partition: contract.PartitionRoot, Requires: partition}},
		{"a0000000-0000-4000-8000-000000000003", "burstable",
			&contract.Decision{V: contract.Version, CPUs: contract.CPUs(2), Mems: contract.NUMANodes(1), Partition: contract.PartitionRoot, Requires: partition}},
		{"a0000000-0000-4000-8000-000000000004", "burstable", nil},
	}
}

const cpus, nodes = 4, 2

// world is the node.
type world struct {
	dir     string
	release kernel.Release
	boot    int
	now     time.Time
	kernel  *kernel.Kernel
	// frontend and actuator are the lives of the two processes.
	frontend, actuator *life
	plugin             *nri.Plugin
	session            *nri.Session
	announced          contract.Announcement
	containers         map[string]*container
	// offline reports whether CPU 3 is offline.
	offline bool
	// broken is the first violation of an invariant.
	broken error
}

// newWorld starts a node whose directory is dir.
func newWorld(dir string, release kernel.Release) (*world, error) {
	w := &world{dir: dir, release: release, now: time.Unix(1e9, 0)}
	if err := os.MkdirAll(w.cdi(), 0o700); err != nil {
		return nil, err
	}
	return w, w.reboot()
}

func (w *world) cdi() string    { return filepath.Join(w.dir, "cdi") }
func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boot) }

// reboot starts the machine, then both daemons. The claim files stay.
func (w *world) reboot() error {
	w.boot++
	w.kernel = kernel.New(w.release, cpus, nodes)
	w.containers, w.offline = make(map[string]*container), false
	const all = "+cpuset +memory +hugetlb"
	for _, dir := range []string{"", "kubepods", "kubepods/burstable"} {
		if dir != "" {
			if err := w.kernel.Mkdir(dir); err != nil {
				return err
			}
		}
		if err := w.kernel.Write(dir, "cgroup.subtree_control", all); err != nil {
			return err
		}
	}
	if err := w.startFrontend(none); err != nil {
		return err
	}
	return w.startActuator(none)
}

// do runs a part of a process until it is done, or crashes.
func (w *world) do(part func() error) (crashed bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, crashed = p.(crash); !crashed {
				panic(p)
			}
		}
	}()
	return false, part()
}

// startFrontend starts the frontend, which makes the node file current.
func (w *world) startFrontend(f fault) error {
	w.frontend = f.life()
	_, err := w.do(func() error {
		if err := cdidir.At(w.cdi()).RemoveStale(); err != nil {
			return err
		}
		l := w.ledger()
		claims, err := l.Load()
		if err != nil {
			return err
		}
		for _, c := range claims.Prepared {
			if c.BootID != w.bootID() {
				if err := l.Forget(c.UID); err != nil {
					return err
				}
			}
		}
		return w.writeNode(l)
	})
	return err
}

func (w *world) ledger() *ledger.Ledger {
	dir := ledger.NewClaimDir(cdidir.At(w.cdi()), filepath.Join(w.dir, "location.json"), w.bootID())
	return ledger.New(directory{dir, w.frontend, w}, w.bootID())
}

// writeNode writes the node state of the present claims.
func (w *world) writeNode(l *ledger.Ledger) error {
	claims, err := l.Load()
	if err != nil {
		return err
	}
	state, err := w.nodeState(claims.Prepared)
	if err != nil {
		return err
	}
	return l.WriteNode(state)
}

func (w *world) nodeState(records []contract.ClaimRecord) (contract.NodeState, error) {
	return nodestate.Compute(nodestate.Base{
		BootID: w.bootID(), CPUs: contract.CPUs(0, 1, 2, 3), Mems: contract.NUMANodes(0, 1), Protect: true,
	}, records)
}

// prepare prepares the claim of a pod, and reports whether its CPUs are free.
func (w *world) prepare(p pod) (bool, error) {
	l := w.ledger()
	claims, err := l.Load()
	if err != nil {
		return false, err
	}
	if _, known := claims.Find(p.claimUID()); known {
		return false, nil
	}
	if nodestate.ClaimedCPUs(claims.Prepared).Overlaps(p.decision.CPUs) {
		return false, nil
	}
	record := contract.ClaimRecord{
		V: contract.Version, Namespace: "ns", Name: "claim", UID: p.claimUID(), BootID: w.bootID(), OwnedByPod: true,
		Pods:    []contract.PodRecord{{UID: p.uid, QOS: p.level}},
		Results: []contract.ResultRecord{{Request: "r", Pool: "node", Device: "numa-0", Decision: *p.decision}},
	}
	before, err := w.nodeState(claims.Prepared)
	if err != nil {
		return false, err
	}
	after, err := w.nodeState(claims.With(record).Prepared)
	if err != nil {
		return false, err
	}
	return true, l.Add(record, after, before)
}

// unprepare releases the claim of a pod.
func (w *world) unprepare(p pod) error {
	l := w.ledger()
	if err := l.Forget(p.claimUID()); err != nil {
		return err
	}
	return w.writeNode(l)
}

// prepared reports whether the claim of the pod has a claim file of this boot.
func (w *world) prepared(p pod) bool {
	data, err := os.ReadFile(filepath.Join(w.cdi(), contract.ClaimFile(p.claimUID())))
	if err != nil {
		return false
	}
	record, err := contract.DecodeClaim(contract.ClaimFile(p.claimUID()), data)
	return err == nil && record.BootID == w.bootID()
}

// directory is the CDI directory as the frontend sees it.
type directory struct {
	ledger.ClaimDir
	*life
	w *world
}

// Write leaves the unfinished file of a writer that crashes.
func (d directory) Write(name string, data []byte) error {
	if d.before == 0 && !d.fails && !d.over {
		if err := os.WriteFile(d.Path("."+name+".tmp-crashed"), data[:len(data)/2], 0o600); err != nil {
			return err
		}
	}
	if err := d.operation(); err != nil {
		return err
	}
	err := d.ClaimDir.Write(name, data)
	d.w.note("the write of "+name, d.w.files())
	return err
}

func (d directory) Remove(name string) error {
	if err := d.operation(); err != nil {
		return err
	}
	err := d.ClaimDir.Remove(name)
	d.w.note("the removal of "+name, d.w.files())
	return err
}

// startActuator starts the actuator, which takes over the runtime's containers.
func (w *world) startActuator(f fault) error {
	w.actuator = f.life()
	m, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	mount := cgroups.NewMount(hierarchy{w.actuator, func() *kernel.Kernel { return w.kernel }, func(dir, file, content string) {
		w.check(fmt.Sprintf("write of %q to %s/%s", content, dir, file))
	}})
	w.plugin = nri.New(nri.Options{Announcer: w, Kernel: "6.12.0", Options: enforce.Options{
		Directory: claims.New(cdidir.At(w.cdi()), contract.Features()), Mount: mount, Metrics: m,
		Units:           systemd.Systemd{Bus: systemd.New(nil, nil), Dropins: systemd.NewDropins(filepath.Join(w.dir, "absent"))},
		RefreshInterval: time.Minute, Clock: func() time.Time { return w.now },
	}})
	return w.connect()
}

// connect connects the actuator to the runtime.
func (w *world) connect() error {
	w.session = w.plugin.NewSession(func() string { return "v0.12.0" })
	crashed, err := w.do(func() error {
		if _, err := w.session.Configure(ctx(), "", "containerd", "v2.2.7"); err != nil {
			return err
		}
		pods, list := w.list()
		_, err := w.session.Synchronize(ctx(), pods, list)
		return err
	})
	w.known(crashed || err != nil)
	return err
}

// known notes that the actuator has seen and written all containers, unless something
// went wrong.
func (w *world) known(wrong bool) {
	if wrong || w.actuator.failed {
		return
	}
	for _, c := range w.containers {
		c.unknown = false
	}
}

// Set implements nri.Announcer.
func (w *world) Set(change func(*contract.Announcement)) error {
	change(&w.announced)
	return nil
}

// refresh lets the refresh interval pass.
func (w *world) refresh() error {
	w.now = w.now.Add(time.Minute)
	crashed, err := w.do(func() error { return errors.Join(w.plugin.Refresh(ctx()), w.plugin.CatchUp(ctx())) })
	w.known(crashed || err != nil)
	return err
}

// apply reports a change of the CDI directory to the actuator.
func (w *world) apply() error {
	_, err := w.do(func() error { return errors.Join(w.plugin.Apply(ctx()), w.plugin.CatchUp(ctx())) })
	return err
}

func ctx() context.Context { return context.Background() }

func sortedIDs(containers map[string]*container) []string {
	var ids []string
	for id := range containers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
