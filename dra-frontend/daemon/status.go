// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"maps"
	"sync"
)

// status is what the loop found last. Readiness, health and taints are read
// from it.
type status struct {
	mu         sync.Mutex
	actuator   error
	blocked    error
	empty      bool
	unhealthy  map[string]string
	registered func() error
	changed    chan struct{}
}

var errNotChecked = errors.New("not checked yet")

func newStatus(registered func() error) *status {
	return &status{actuator: errNotChecked, blocked: errNotChecked, registered: registered, changed: make(chan struct{})}
}

// node is a snapshot of what decides about new claims.
type node struct {
	actuator, blocked error
	empty             bool
	// unhealthy are devices by name, with what their claims lack.
	unhealthy map[string]string
}

// set stores the findings and reports whether they differ from the last ones
// in more than their wording. Watchers are woken for another wording too.
func (s *status) set(n node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := (s.actuator == nil) == (n.actuator == nil) && (s.blocked == nil) == (n.blocked == nil) && s.empty == n.empty
	reworded := text(s.actuator) != text(n.actuator) || text(s.blocked) != text(n.blocked) || !maps.Equal(s.unhealthy, n.unhealthy)
	s.actuator, s.blocked, s.empty, s.unhealthy = n.actuator, n.blocked, n.empty, n.unhealthy
	if !same || reworded {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return !same
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// get returns the findings and a channel that is closed when they change.
func (s *status) get() (node, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return node{actuator: s.actuator, blocked: s.blocked, empty: s.empty, unhealthy: s.unhealthy}, s.changed
}

// ready returns why the node takes no new claims, nil if it does.
func (s *status) ready() error {
	n, _ := s.get()
	errs := []error{n.actuator, n.blocked, s.registered()}
	if n.empty {
		errs = append(errs, errors.New("no zone of this node has anything to offer: look at reservedCPUs, reservedMemory and managedCPUs of the configuration"))
	}
	return errors.Join(errs...)
}
