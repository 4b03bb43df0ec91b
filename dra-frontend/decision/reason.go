// SPDX-License-Identifier: Apache-2.0

package decision

import "errors"

// Reason is the kind of reason why a claim is not prepared, for metrics. The text of
// the error has the details.
type Reason string

// Reasons why a claim is not prepared.
const (
	// ReasonClaim: the claim itself, or the spec of its pod, asks for what cannot be
	// given.
	ReasonClaim Reason = "claim"
	// ReasonZone: this node does not have the zone, or not as much of it.
	ReasonZone Reason = "zone"
	// ReasonCPUsHeld: other claims hold the CPUs, mostly of pods that are ending.
	ReasonCPUsHeld Reason = "cpus-held"
	// ReasonPods: the claim's pods cannot be read, or earlier pods have not ended.
	ReasonPods Reason = "pods"
	// ReasonIsolation: the claim must be a partition and cannot be one.
	ReasonIsolation Reason = "isolation"
	// ReasonActuator: nri-actuator is away, or too old.
	ReasonActuator Reason = "actuator"
	// ReasonFiles: the CDI directory cannot be read or written.
	ReasonFiles Reason = "files"
	// ReasonOther: none of these.
	ReasonOther Reason = "other"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonClaim, ReasonZone, ReasonCPUsHeld, ReasonPods, ReasonIsolation, ReasonActuator, ReasonFiles, ReasonOther,
	}
}

type reasonError struct {
	reason Reason
	error
}

func (r *reasonError) Unwrap() error { return r.error }

// Because gives an error a reason, unless the error is nil or has one.
func Because(reason Reason, err error) error {
	if err == nil || errors.As(err, new(*reasonError)) {
		return err
	}
	return &reasonError{reason, err}
}

// ReasonOf returns the reason of an error, ReasonOther for an error without one.
func ReasonOf(err error) Reason {
	if r := (*reasonError)(nil); errors.As(err, &r) {
		return r.reason
	}
	return ReasonOther
}
