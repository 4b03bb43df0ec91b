// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"maps"
	"sync"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// state is an observation and its assessment.
type state struct {
	observation
	assessment
}

// status shows the loop's last state to kubelet's calls and to the HTTP server.
type status struct {
	mu    sync.Mutex
	state state
	// standby is why another instance is the active one.
	standby error
	// changed is closed when a device's problem changes.
	changed chan struct{}
}

// newStatus returns the status before the loop's first pass: no device is
// published yet.
func newStatus(o observation) *status {
	return &status{state: state{observation: o, assessment: assessment{faults: faults(o)}}, changed: make(chan struct{})}
}

func (s *status) set(now state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.state.problems, now.problems) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.state = now
}

// get returns the state and a channel that is closed when a device's problem
// changes.
func (s *status) get() (state, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// setStandby stores why another instance is the active one, nil if this one is. It
// returns the previous value.
func (s *status) setStandby(standby error) (before error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.standby = s.standby, standby
	return before
}

// standbyReason returns why another instance is the active one, nil if this one is.
func (s *status) standbyReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standby
}

// servesClaims returns why this instance takes no new claims, nil if it takes claims.
func (s *status) servesClaims() error {
	if standby := s.standbyReason(); standby != nil {
		return standby
	}
	n, _ := s.get()
	var errs []error
	for _, reason := range refusalReasons() {
		errs = append(errs, n.faults[reason])
	}
	return errors.Join(errs...)
}

// applier is the actuator for preparing claims. It returns an error on an unfit
// node, where a decision would not be applied as promised.
type applier struct {
	actuator
	status *status
}

// Announcement implements kubelet.Actuator.
func (a applier) Announcement() (contract.Announcement, error) {
	n, _ := a.status.get()
	if err := n.unfit(); err != nil {
		return contract.Announcement{}, err
	}
	return a.actuator.Announcement()
}
