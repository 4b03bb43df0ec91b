// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// Each refusal has the kind of its reason, through the text that is put around it.
func TestReasons(t *testing.T) {
	node := testNode(t)
	change := func(c decision.Claim, change func(*decision.Claim)) decision.Claim {
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		in   decision.Input
		want decision.Reason
	}{
		"parameters": {decision.Input{Claims: []decision.Claim{change(claim(1, "numa-0", 1, 0), func(c *decision.Claim) {
			c.ResultErr = errors.New("cpu.placement")
		})}}, decision.ReasonClaim},
		"asks for nothing": {decision.Input{Claims: []decision.Claim{claim(1, "numa-0", 0, 0)}}, decision.ReasonClaim},
		"no such zone":     {decision.Input{Claims: []decision.Claim{claim(1, "numa-9", 1, 0)}}, decision.ReasonZone},
		"too large":        {decision.Input{Claims: []decision.Claim{claim(1, "numa-0", 9, 0)}}, decision.ReasonZone},
		"no pods": {decision.Input{Claims: []decision.Claim{change(claim(1, "numa-0", 1, 0), func(c *decision.Claim) {
			c.Pods = nil
		})}}, decision.ReasonPods},
		"isolation": {decision.Input{Claims: []decision.Claim{change(claim(1, "numa-0", 1, 0), func(c *decision.Claim) {
			c.Results[0].Settings.Isolation = parameters.IsolationPartition
		})}}, decision.ReasonIsolation},
		"a node that decides nothing": {
			decision.Input{Claims: []decision.Claim{claim(1, "numa-0", 1, 0)}, Err: decision.Because(decision.ReasonActuator, errors.New("away"))},
			decision.ReasonActuator,
		},
		"held": {
			decision.Input{Claims: []decision.Claim{claim(1, "numa-0", 1, 0)}, Prepared: []contract.ClaimRecord{{
				UID: "other", Results: []contract.ResultRecord{{Decision: contract.Decision{CPUs: node.Inventory.Zones["numa-0"].CPUs}}},
			}}}, decision.ReasonCPUsHeld,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Node = node
			err := decision.Decide(c.in)[0].Err
			require.Error(t, err)
			require.Equal(t, c.want, decision.ReasonOf(fmt.Errorf("around: %w", err)))
			require.Contains(t, decision.Reasons(), c.want)
		})
	}
	require.Equal(t, decision.ReasonOther, decision.ReasonOf(errors.New("x")))
	require.NoError(t, decision.Because(decision.ReasonZone, nil))
}

// A claim waits while another claim of each of its pods cannot be read: the values of a container depend on both.
func TestBesideAFaultyClaim(t *testing.T) {
	bad, beside, alone := claim(1, "numa-0", 1, 0), claim(2, "numa-0", 1, 0), claim(3, "numa-0", 1, 0)
	bad.ResultErr = errors.New("cpu.placement")
	beside.Pods = bad.Pods
	alone.Pods = append(alone.Pods, bad.Pods...)
	for name, in := range map[string]decision.Input{
		"of the call":     {Claims: []decision.Claim{bad, beside, alone}},
		"prepared before": {Claims: []decision.Claim{beside, alone}, OtherClaims: []decision.Claim{bad}},
	} {
		t.Run(name, func(t *testing.T) {
			in.Node = testNode(t)
			out := decision.Decide(in)
			require.NoError(t, out[len(out)-1].Err)
			out = out[:len(out)-1]
			require.ErrorContains(t, out[len(out)-1].Err, "claim "+bad.Name+", which the pod has as well, cannot be read: cpu.placement")
			require.Equal(t, decision.ReasonClaim, decision.ReasonOf(out[len(out)-1].Err))
		})
	}
}
