// SPDX-License-Identifier: Apache-2.0

// Package explore runs code of both daemons on a small node, in all orders of what can
// happen there: package kubelet of the frontend with everything below it, package nri of the
// actuator with everything below it, and the models of package kerneltest and package disk.
// docs/explanation/proof.md says what can happen, what is checked, and what is left out.
package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest/mounted"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/disk"
)

// world is the node.
type world struct {
	dir     string
	version kerneltest.Release
	pods    []pod
	boot    int
	now     time.Time
	kernel  *kerneltest.Kernel
	// frontend and actuator are the lives of the two processes.
	frontend, actuator *life
	driver             *kubelet.Driver
	plugin             *nri.Plugin
	session            *nri.Session
	announced          contract.Announcement
	// knowsPool reports whether the actuator has read a node file.
	knowsPool bool
	// containers are the runtime's containers.
	containers map[slot]*container
	// second are the slots whose next container has the second of the two names.
	second map[slot]bool
	// away reports whether the runtime works without the actuator: the connection is lost,
	// and does not come back.
	away bool
	// offline reports whether CPU 3 is offline.
	offline bool
	// counts has what can go wrong in the present action.
	counts counts
	// disk has the files of the node.
	disk *disk.Disk
	// decoded is the last content of the node file.
	decoded struct {
		text  string
		state contract.NodeState
		err   error
	}
	// records are the claim files' records, by content: a file is decoded once.
	records map[string]contract.ClaimRecord
	// refused is why the actuator refused the last container that it refused.
	refused error
	// broken is the first violation of an invariant.
	broken error
}

// newWorld starts a node whose directory is dir.
func newWorld(dir string, version kerneltest.Release) (*world, error) {
	w := &world{
		dir: dir, version: version, pods: pods(), now: time.Unix(1e9, 0), disk: disk.New(nil),
		records: make(map[string]contract.ClaimRecord),
	}
	w.beginCounts()
	return w, w.reboot(mishap{})
}

func (w *world) cdi() string    { return filepath.Join(w.dir, cdiDir) }
func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boot) }

// Contents that another program wrote into levels before this driver.
var formerContents = map[string]string{"kubepods/memory.min": "1048576", "kubepods/burstable/memory.low": "2097152"}

// reboot starts the machine again. The CDI directory is in memory, and so it is empty.
func (w *world) reboot(m mishap) error {
	left := w.disk.Now()
	maps.DeleteFunc(left, func(name, _ string) bool { return path.Dir(name) == cdiDir })
	return w.boots(left, m)
}

// boots starts the machine with these files, then both daemons.
func (w *world) boots(left disk.Files, m mishap) error {
	w.boot++
	w.kernel = kerneltest.New(w.version, kerneltest.Regular(cpus, nodes))
	w.containers, w.second, w.offline, w.away = make(map[slot]*container), make(map[slot]bool), false, false
	w.disk = disk.New(left)
	if err := w.restore(); err != nil {
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
			if w.frontend.over {
				err = w.restore()
			}
		}
	}()
	return false, part()
}

// held reports whether the claim of the pod has a claim file.
func (w *world) held(p pod) bool {
	_, held := w.disk.Now()[path.Join(cdiDir, contract.ClaimFile(p.claimUID()))]
	return held
}

// prepared reports whether the claim of the pod is prepared.
func (w *world) prepared(p pod) bool {
	_, prepared := w.decision(p)
	return prepared
}

// decision returns the decision of the pod's claim, if the claim is prepared.
func (w *world) decision(p pod) (d contract.Decision, prepared bool) {
	name := contract.ClaimFile(p.claimUID())
	content := w.disk.Now()[path.Join(cdiDir, name)]
	record, known := w.records[content]
	if !known {
		var err error
		if record, err = contract.DecodeClaim(name, []byte(content)); err != nil {
			return contract.Decision{}, false
		}
		w.records[content] = record
	}
	if record.BootID != w.bootID() {
		return contract.Decision{}, false
	}
	return record.Results[0].Decision, true
}

// startActuator starts the actuator, which takes over the runtime's containers.
func (w *world) startActuator(m mishap) error {
	w.announced, w.knowsPool = contract.Announcement{}, false
	w.actuator = &life{mishap: m, counts: &w.counts}
	registry, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	mount := cgroups.NewMount(mounted.Hierarchy{Kernel: w.kernel, Process: process{w.actuator, func(what string) {
		w.check("the actuator's " + what)
	}}})
	w.plugin = nri.New(nri.Options{Announcer: w, Options: enforce.Options{Kernel: "6.12.0",
		Host:      machine.New(machine.Dirs{}, cdidir.At(w.cdi()), "boot"),
		Directory: claims.New(cdidir.At(w.cdi()), contract.Features(), w.bootID()), Mount: mount, Metrics: registry,
		Units:           systemd.Systemd{Slices: systemd.New(nil, nil), Dropins: systemd.NewDropins(filepath.Join(w.dir, "absent"))},
		RefreshInterval: time.Minute, Clock: func() time.Time { return w.now },
	}})
	if w.away {
		w.session = nil
		w.plugin.Disconnected(ctx(), reason)
		return nil
	}
	return w.connect()
}

const reason = "the runtime has no socket"

// disconnect ends the connection of the actuator and the runtime.
func (w *world) disconnect() error {
	w.away, w.session = true, nil
	if !w.actuator.over {
		w.plugin.Disconnected(ctx(), reason)
	}
	return nil
}

// reconnect connects the actuator, if it runs, to a runtime that was away.
func (w *world) reconnect() error {
	w.away = false
	if w.actuator.over {
		return nil
	}
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

// sawAll notes that the actuator has seen all containers, unless something went wrong. It
// can do nothing for a container whose decision cannot be read. Without the runtime it
// finds cgroups, and does not know which decision they shall have.
func (w *world) sawAll(wrong bool) {
	if wrong || w.actuator.wrong {
		return
	}
	_, err := w.node()
	w.knowsPool = w.knowsPool || err == nil
	for _, c := range w.containers {
		if w.backed(c) && (!w.away || !c.pod.claimed()) {
			c.unseen, c.unbacked = false, false
		}
	}
}

func ctx() context.Context { return context.Background() }

func (w *world) sorted() []*container {
	var all []*container
	for _, c := range w.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.slot.uid, b.slot.uid), cmp.Compare(a.slot.index, b.slot.index))
	})
	return all
}
