// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// Instance says which instance a frontend is.
type Instance struct {
	// PodUID is the UID of its pod, empty for one that never overlaps.
	PodUID string
	// Release is the installation that it is part of.
	Release string
}

// Frontend is one of several frontends on the node.
type Frontend struct{ s *served }

// Frontend returns the frontend that kubelet calls.
func (n *Node) Frontend() *Frontend {
	s, ok := n.frontend.(*served)
	require.True(n.t, ok, "only frontends with sockets overlap")
	return &Frontend{s: s}
}

// StartBeside starts another frontend beside those that run, as during a
// rolling update. Kubelet does not know it before [Frontend.Register].
func (n *Node) StartBeside(i Instance, change func(*config.Config)) *Frontend {
	n.t.Helper()
	c := n.config
	change(&c)
	f := &Frontend{s: startServed(n, c, i)}
	n.beside = append(n.beside, f)
	return f
}

// Register waits until kubelet can register the frontend. From then on kubelet
// calls it, as it prefers the one that it registered last.
func (f *Frontend) Register() {
	n := f.s.n
	n.t.Helper()
	n.eventually("the frontend to be registered", f.s.register)
	if old := n.Frontend(); old.s != f.s {
		n.beside = append(n.beside, old)
	}
	n.frontend, n.config, n.inventory, n.published = f.s, f.s.config, nil, ""
}

// Ready returns why kubelet does not call the frontend.
func (f *Frontend) Ready() error { return f.s.daemon.Ready() }

// Waits waits until the frontend says that another one is the active one.
func (f *Frontend) Waits(reason string) {
	f.s.n.t.Helper()
	f.s.n.eventually("the frontend to wait", func() error {
		err := f.s.daemon.Fitness()
		if err == nil || !strings.Contains(err.Error(), reason) {
			return fmt.Errorf("it says %v, want %q", err, reason)
		}
		return nil
	})
}

// Stop ends the frontend.
func (f *Frontend) Stop() {
	f.s.n.t.Helper()
	f.s.stop()
}
