// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// The schema of claim parameters and the decoder accept the same parameters.
func TestParametersSchemaIsTheDecoders(t *testing.T) {
	schema, err := claimParameters()
	require.NoError(t, err)
	resolved, err := schema.Resolve(nil)
	require.NoError(t, err)
	for members, valid := range map[string]bool{
		``: true,
		`,"cpu":{"placement":"spread","wholeCores":true,"wholeL3":false,"cores":"efficiency"}`:                                      true,
		`,"memory":{"limit":"12Gi","throttlingFactor":0.9,"protection":"low","policy":"interleave"},"hugepages":{"limits":"claim"}`: true,
		`,"cpu":{"interrupts":"none","quota":"none","wakeupLatency":0,"governor":"performance","minFrequency":"1800MHz"}`:           true,
		`,"cpu":{"interrupts":{"device":"eth0-*"},"wakeupLatency":"20us","maxFrequency":"2.4GHz","housekeeping":"none"}`:            true,
		`,"cpu":{"interrupts":"some"}`:                   false,
		`,"cpu":{"interrupts":{}}`:                       false,
		`,"cpu":{"interrupts":{"device":"a/b"}}`:         false,
		`,"cpu":{"interrupts":{"device":"a","queue":1}}`: false,
		`,"cpu":{"interrupts":{"device":5}}`:             false,
		`,"cpu":{"quota":"half"}`:                        false,
		`,"cpu":{"wakeupLatency":"2s"}`:                  false,
		`,"cpu":{"wakeupLatency":20}`:                    false,
		`,"cpu":{"wakeupLatency":"1s"}`:                  true,
		`,"cpu":{"governor":"Performance"}`:              false,
		`,"cpu":{"minFrequency":"0GHz"}`:                 false,
		`,"cpu":{"minFrequency":"100GHz"}`:               false,
		`,"cpu":{"minFrequency":2400}`:                   false,
		`,"cpu":{"housekeeping":"all"}`:                  false,
		`,"memory":{"limit":4096}`:                       true,
		`,"memory":{"throttlingFactor":0}`:               false,
		`,"memory":{"limit":true}`:                       false,
		`,"memory":{"policy":"local"}`:                   false,
		`,"cpu":{"placement":"near"}`:                    false,
		`,"cpu":{"wholeCores":"true"}`:                   false,
		`,"cpu":{"core":"any"}`:                          false,
		`,"hugepages":{"limits":"max"}`:                  false,
		`,"version":1`:                                   false,
	} {
		raw := `{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters"` + members + `}`
		var value any
		require.NoError(t, json.Unmarshal([]byte(raw), &value))
		require.Equal(t, valid, resolved.Validate(value) == nil, raw)
		_, err := parameters.Decode([]byte(raw))
		require.Equal(t, valid, err == nil, raw)
	}
}
