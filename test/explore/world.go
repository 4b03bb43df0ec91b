// SPDX-License-Identifier: Apache-2.0

// Package explore runs code of both daemons on a small node, in all orders of what can
// happen there: package ledger and package nodestate of the frontend, package nri of the
// actuator with everything below it, and package kernel's model in place of the kernel.
// docs/proof.md says what can happen, what is checked, and what is left out.
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

// world is the node.
type world struct {
	dir     string
	version kernel.Release
	pods    []pod
	boot    int
	now     time.Time
	kernel  *kernel.Kernel
	// frontend and actuator are the lives of the two processes.
	frontend, actuator *life
	ledger             *ledger.Ledger
	plugin             *nri.Plugin
	session            *nri.Session
	announced          contract.Announcement
	// containers are the runtime's containers by the UID of their pod.
	containers map[string]*container
	// second are the pods whose next container has the second of the two names.
	second map[string]bool
	// offline reports whether CPU 3 is offline.
	offline bool
	// writes counts the writes of both processes.
	writes int
	// broken is the first violation of an invariant.
	broken error
}

// newWorld starts a node whose directory is dir.
func newWorld(dir string, version kernel.Release) (*world, error) {
	w := &world{dir: dir, version: version, pods: pods(version), now: time.Unix(1e9, 0)}
	return w, w.reboot(mishap{})
}

func (w *world) cdi() string    { return filepath.Join(w.dir, "cdi") }
func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boot) }

// Contents that another program wrote into levels before this driver.
var formerContents = map[string]string{"kubepods/memory.min": "1048576", "kubepods/burstable/memory.low": "2097152"}

// reboot starts the machine, then both daemons. The CDI directory is empty.
func (w *world) reboot(m mishap) error {
	w.boot++
	w.kernel = kernel.New(w.version, cpus, nodes)
	w.containers, w.second, w.offline = make(map[string]*container), make(map[string]bool), false
	if err := errors.Join(os.RemoveAll(w.cdi()), os.MkdirAll(w.cdi(), 0o700)); err != nil {
		return err
	}
	for _, dir := range []string{"", "kubepods", "kubepods/burstable"} {
		if dir != "" {
			if err := w.kernel.Mkdir(dir); err != nil {
				return err
			}
		}
		if err := w.kernel.Write(dir, "cgroup.subtree_control", "+cpuset +memory +hugetlb"); err != nil {
			return err
		}
	}
	for name, content := range formerContents {
		if err := w.kernel.Write(filepath.Dir(name), filepath.Base(name), content); err != nil {
			return err
		}
	}
	return errors.Join(w.startFrontend(m), w.startActuator(m))
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
func (w *world) startFrontend(m mishap) error {
	w.frontend = &life{mishap: m, writes: &w.writes}
	dir := ledger.NewClaimDir(cdidir.At(w.cdi()), filepath.Join(w.dir, "location.json"), w.bootID())
	w.ledger = ledger.New(directory{dir, w.frontend, w}, w.bootID())
	if err := cdidir.At(w.cdi()).RemoveStale(); err != nil {
		return err
	}
	return w.reconcile()
}

// reconcile makes the node file current.
func (w *world) reconcile() error {
	_, err := w.do(func() error {
		claims, err := w.ledger.Load()
		if err != nil {
			return err
		}
		state, err := w.nodeState(claims.Prepared)
		if err != nil {
			return err
		}
		return w.ledger.WriteNode(state)
	})
	return err
}

func (w *world) nodeState(records []contract.ClaimRecord) (contract.NodeState, error) {
	return nodestate.Compute(nodestate.Base{
		BootID: w.bootID(), CPUs: contract.CPUs(0, 1, 2, 3), Mems: contract.NUMANodes(0, 1), Protect: true,
	}, records)
}

// prepare prepares the claim of a pod, if the CPUs are free.
func (w *world) prepare(p pod) error {
	_, err := w.do(func() error {
		claims, err := w.ledger.Load()
		if err != nil {
			return err
		}
		if _, known := claims.Find(p.claimUID()); known || nodestate.ClaimedCPUs(claims.Prepared).Overlaps(p.decision.CPUs) {
			return nil
		}
		record := contract.ClaimRecord{
			V: contract.Version, Namespace: "ns", Name: "claim", UID: p.claimUID(), BootID: w.bootID(), OwnedByPod: true,
			Pods:    []contract.PodRecord{{UID: p.uid, QOS: p.level}},
			Results: []contract.ResultRecord{{Request: "r", Pool: "node", Device: "numa-0", Decision: *p.decision}},
		}
		before, err := w.nodeState(claims.Prepared)
		if err != nil {
			return err
		}
		after, err := w.nodeState(claims.With(record).Prepared)
		if err != nil {
			return err
		}
		return w.ledger.Add(record, after, before)
	})
	return err
}

// unprepare releases the claim of a pod.
func (w *world) unprepare(p pod) error {
	crashed, err := w.do(func() error { return w.ledger.Forget(p.claimUID()) })
	if err != nil || crashed {
		return err
	}
	return w.reconcile()
}

// prepared reports whether the claim of the pod has a claim file.
func (w *world) prepared(p pod) bool {
	_, err := os.Stat(filepath.Join(w.cdi(), contract.ClaimFile(p.claimUID())))
	return err == nil
}

// directory is the CDI directory as the frontend sees it.
type directory struct {
	ledger.ClaimDir
	*life
	w *world
}

// Write leaves the unfinished file of a writer that crashes.
func (d directory) Write(name string, data []byte) error {
	if d.kind == crashes && d.before == 0 && !d.over {
		if err := os.WriteFile(d.Path("."+name+".tmp-crashed"), data[:len(data)/2], 0o600); err != nil {
			return err
		}
	}
	err := d.write(func() error { return d.ClaimDir.Write(name, data) })
	d.w.note("the write of "+name, d.w.files())
	return err
}

func (d directory) Remove(name string) error {
	err := d.write(func() error { return d.ClaimDir.Remove(name) })
	d.w.note("the removal of "+name, d.w.files())
	return err
}

// startActuator starts the actuator, which takes over the runtime's containers.
func (w *world) startActuator(m mishap) error {
	w.actuator = &life{mishap: m, writes: &w.writes}
	registry, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	mount := cgroups.NewMount(hierarchy{w.actuator, w.kernel, func(dir, file, content string) {
		w.check(fmt.Sprintf("the actuator's write of %q to %s/%s", content, dir, file))
	}})
	w.plugin = nri.New(nri.Options{Announcer: w, Kernel: "6.12.0", Options: enforce.Options{
		Directory: claims.New(cdidir.At(w.cdi()), contract.Features()), Mount: mount, Metrics: registry,
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
	w.sawAll(crashed || err != nil)
	return err
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
	w.sawAll(crashed || err != nil)
	return err
}

// apply reports a change of the CDI directory to the actuator.
func (w *world) apply() error {
	_, err := w.do(func() error { return errors.Join(w.plugin.Apply(ctx()), w.plugin.CatchUp(ctx())) })
	return err
}

// sawAll notes that the actuator has seen all containers, unless something went wrong.
func (w *world) sawAll(wrong bool) {
	if wrong || w.actuator.wrong {
		return
	}
	for _, c := range w.containers {
		c.unseen = false
	}
}

func ctx() context.Context { return context.Background() }

func (w *world) sorted() []*container {
	var all []*container
	for _, c := range w.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *container) int { return slices.Compare([]byte(a.pod.uid), []byte(b.pod.uid)) })
	return all
}
