// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Measurements are what was measured on the CPUs of claims that ask for quiet ones.
type Measurements struct {
	// Receipts are named like the results' devices.
	Receipts map[string]receipt.Receipt
	// Irqbalance reports whether irqbalance is running.
	Irqbalance bool
	// Err is why nothing was measured, nil if it was.
	Err error
}

// Host is where the measurements are read.
type Host struct {
	Sys, Proc, Cgroups fs.FS
	// PluginDir is the frontend's data directory.
	PluginDir string
}

// Measure returns the directory with the measurements of its claims until now.
func (d Directory) Measure(h Host) Directory {
	d.Measurements = Measurements{Irqbalance: quiet.Irqbalance(h.Cgroups)}
	book, err := receipt.File{Dir: h.PluginDir}.Read()
	if err != nil || len(book.Entries) == 0 {
		d.Measurements.Err = err
		return d
	}
	machine, err := receipt.ReadMachine(h.Sys, h.Proc)
	var throttled map[contract.Key]receipt.Throttling
	var kubepods string
	if err == nil {
		kubepods, err = d.kubepods(h.Cgroups)
	}
	if err == nil {
		throttled, err = receipt.ReadThrottling(h.Cgroups, d.Claims, func(p contract.PodRecord) string {
			return health.PodDir(kubepods, p.QOS, p.UID)
		})
	}
	if err != nil {
		d.Measurements.Err = err
		return d
	}
	d.Measurements.Receipts = make(map[string]receipt.Receipt)
	for key, r := range book.Receipts(d.Claims, machine, throttled) {
		d.Measurements.Receipts[key.DeviceName()] = r
	}
	return d
}

// kubepods returns the cgroup of all pods: the announced one, and without an announcement one
// of kubelet's names. Below a cgroup that is absent, no pod would look throttled.
func (d Directory) kubepods(cgroups fs.FS) (string, error) {
	names := topology.KubepodsDirs("")
	if d.Actuator != nil && d.Actuator.Kubepods != "" {
		names = []string{d.Actuator.Kubepods}
	}
	for _, name := range names {
		if _, err := fs.Stat(cgroups, name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("the cgroup mount has no %s: --cgroup-root must be the node's mount, and nri-actuator must run if kubelet has "+
		"a --cgroup-root", strings.Join(names, " and no "))
}

// explainQuiet writes a line for each result whose CPUs are to be quiet, and what is
// known against it.
func (d Directory) explainQuiet(w io.Writer, claim string) {
	facts := health.QuietFacts{Irqbalance: d.Measurements.Irqbalance, Receipts: make(map[contract.Key]receipt.Receipt)}
	if d.Actuator != nil {
		facts.Fixed, facts.Faults = d.Actuator.FixedInterrupts, d.Actuator.MachineFaults
	}
	for _, c := range d.Claims {
		for i := range c.Results {
			key := contract.Key{ClaimUID: c.UID, Index: i}
			if r, measured := d.Measurements.Receipts[key.DeviceName()]; measured {
				facts.Receipts[key] = r
			}
		}
	}
	found := health.CheckQuiet(d.Claims, facts)
	asked := false
	for _, c := range d.Claims {
		for i, r := range c.Results {
			promises := promisesOf(r)
			state := found[contract.Key{ClaimUID: c.UID, Index: i}]
			if !selects(claim, c) || len(promises) == 0 && state == (health.Quiet{}) {
				continue
			}
			asked = asked || receipt.Measured(r)
			line := func(format string, args ...any) {
				fmt.Fprintf(w, "quiet: claim %s/%s, CPUs %s: %s\n", c.Namespace, c.Name, r.Decision.CPUs, fmt.Sprintf(format, args...))
			}
			if len(promises) > 0 {
				line("%s", strings.Join(promises, ", "))
			}
			for _, condition := range []health.Condition{state.Interrupts, state.Quota, state.Measured} {
				switch {
				case condition.Status == metav1.ConditionFalse:
					line("but %s", condition.Message)
				case condition.Reason == health.ReasonIrqbalance, condition != (health.Condition{}) && condition == state.Measured:
					line("%s", condition.Message)
				}
			}
		}
	}
	if asked && d.Measurements.Err != nil {
		fmt.Fprintf(w, "quiet: not measured: %v\n", d.Measurements.Err)
	}
}

// promisesOf names what a result asks for.
func promisesOf(r contract.ResultRecord) []string {
	var all []string
	q := r.Quiet
	switch {
	case q.Device != "":
		all = append(all, "interrupts of "+q.Device+" only")
	case q.NoInterrupts:
		all = append(all, "no interrupts")
	}
	if q.NoWorkQueues {
		all = append(all, "no unbound work queues")
	}
	if r.Decision.Quota == contract.QuotaNone {
		all = append(all, "no CPU limit")
	}
	for _, file := range slices.Sorted(maps.Keys(q.Files)) {
		all = append(all, file+" = "+q.Files[file])
	}
	return all
}
