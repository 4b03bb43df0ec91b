// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"os"
	"path"
	"path/filepath"
	"reflect"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/disk"
)

// addDamage adds what another program does to the files of the CDI directory.
func (w *world) addDamage(add func(name string, actuator, frontend bool, do func() error)) {
	damage := func(name, file string) {
		if _, there := w.disk.Now()[path.Join(cdiDir, file)]; !there {
			return
		}
		add(name+" is removed", false, false, func() error { return w.remove(file) })
		add(name+" is made unreadable", false, false, func() error { return w.corrupt(file) })
	}
	for _, p := range w.pods {
		if p.claimed() {
			damage("the claim file of the pod with "+p.name, contract.ClaimFile(p.claimUID()))
		}
	}
	damage("the node file", contract.NodeFile)
}

// remove removes a file. A container whose claim file is removed goes to the shared pool.
func (w *world) remove(file string) error {
	for _, c := range w.containers {
		c.unbacked = c.unbacked || c.claimed() && contract.ClaimFile(c.pod.claimUID()) == file
	}
	for _, o := range disk.Removal(path.Join(cdiDir, file)) {
		w.disk.Do(o)
	}
	return os.Remove(filepath.Join(w.cdi(), file))
}

// corrupt replaces a file by one that cannot be read.
func (w *world) corrupt(file string) error {
	const content = "{"
	for _, o := range disk.Replacement(path.Join(cdiDir, file), content) {
		w.disk.Do(o)
	}
	name := filepath.Join(w.cdi(), file)
	if err := os.WriteFile(name+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// drain does what the frontend asks an administrator for: it ends the pods whose claim
// files cannot be read, which releases the claims.
func (w *world) drain() error {
	for _, p := range w.pods {
		if !p.claimed() || !w.held(p) || w.prepared(p) {
			continue
		}
		if err := w.endPod(p); err != nil {
			return err
		}
	}
	return nil
}

// blocked reports whether a claim file cannot be read: the frontend takes no new claims
// and leaves the node file as it is.
func (w *world) blocked() bool {
	for _, p := range w.pods {
		if p.claimed() && w.held(p) && !w.prepared(p) {
			return true
		}
	}
	return false
}

// backed reports whether the frontend's files have the container's decision.
func (w *world) backed(c *container) bool {
	node, err := w.node()
	if err != nil || !c.claimed() {
		return err == nil
	}
	_, listed := node.Pods[c.pod.uid]
	d, prepared := w.decision(c.pod)
	return listed && prepared && reflect.DeepEqual(d, c.decision)
}
