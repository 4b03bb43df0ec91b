// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"maps"
	"sync"
)

// status has the last findings of the loop. Fitness, health and taints come
// from them.
type status struct {
	mu      sync.Mutex
	node    node
	changed chan struct{}
}

var errNotChecked = errors.New("not checked yet")

func newStatus() *status {
	return &status{node: node{actuator: errNotChecked, blocked: errNotChecked}, changed: make(chan struct{})}
}

// node is a snapshot of the findings that decide about new claims.
type node struct {
	// standby is why another instance is the active one.
	standby error
	// unfit is why the node cannot keep the driver's promises.
	unfit error
	// actuator is why no actuator would apply a claim. blocked names the claim
	// files that cannot be read.
	actuator, blocked error
	// empty reports whether there is no zone to offer.
	empty bool
	// unhealthy has the problem of each unhealthy device by name.
	unhealthy map[string]string
}

// set stores all findings but standby and reports whether a fault came or went.
// Watchers are also woken if only a wording or an unhealthy device differs.
func (s *status) set(n node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.node
	n.standby = old.standby
	same := alike(old.unfit, n.unfit) && alike(old.actuator, n.actuator) && alike(old.blocked, n.blocked) && old.empty == n.empty
	reworded := text(old.actuator) != text(n.actuator) || text(old.blocked) != text(n.blocked) || !maps.Equal(old.unhealthy, n.unhealthy)
	s.node = n
	if !same || reworded {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return !same
}

// stand stores why another instance is the active one, nil if this one is. It
// returns the previous value.
func (s *status) stand(standby error) (before error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.node.standby = s.node.standby, standby
	return before
}

// alike reports whether both errors are nil or neither is.
func alike(a, b error) bool { return (a == nil) == (b == nil) }

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
	return s.node, s.changed
}

// fitness returns why this instance takes no new claims, nil if it takes claims.
func (s *status) fitness() error {
	n, _ := s.get()
	if n.standby != nil {
		return n.standby
	}
	found := n.findings()
	var errs []error
	for _, reason := range unfitReasons() {
		errs = append(errs, found[reason])
	}
	return errors.Join(errs...)
}
