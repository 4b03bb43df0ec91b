// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// Instance identifies a frontend.
type Instance struct {
	// PodUID is the UID of the frontend's pod, empty for a frontend that never
	// overlaps.
	PodUID string
	// Release is the frontend's release, as "namespace/name".
	Release string
}

// Frontend is a frontend among several on the node.
type Frontend struct{ s *served }

// Frontend returns the frontend that kubelet calls.
func (n *Node) Frontend() *Frontend {
	s, ok := n.frontend.(*served)
	require.True(n.t, ok, "only frontends with sockets overlap")
	return &Frontend{s: s}
}

// StartBeside starts a further frontend, as a rolling update does. Kubelet does not
// know it before [Frontend.Register].
func (n *Node) StartBeside(i Instance, change func(*config.Config)) *Frontend {
	n.t.Helper()
	c := n.config
	change(&c)
	f := &Frontend{s: startServed(n, c, i)}
	n.beside = append(n.beside, f)
	return f
}

// Register waits until kubelet has registered the frontend. Kubelet calls the
// frontend that it registered last.
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

// Waits waits until the frontend gives the reason why another instance is the active
// one.
func (f *Frontend) Waits(reason string) {
	f.s.n.t.Helper()
	f.s.n.eventually("the frontend to wait", func() error {
		err := f.s.daemon.ServesClaims()
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
