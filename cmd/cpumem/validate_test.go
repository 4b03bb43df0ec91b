// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// validate --values takes the values that the chart takes, and refuses what the chart refuses.
func TestValidateValues(t *testing.T) {
	const null = ": null: helm removes the chart's default then"
	for name, c := range map[string]struct {
		values string
		// want are parts of the error, none of a valid file.
		want []string
	}{
		"defaults":                {"config: {}", nil},
		"text":                    {"config: {reservedCPUs: '0', managedCPUs: 0-7, memoryQoS: {throttlingFactor: 0.9}}", nil},
		"numbers of --set":        {"config: {reservedCPUs: 0, managedCPUs: 0}", nil},
		"a factor of --set":       {"config: {memoryQoS: {throttlingFactor: '.5'}}", nil},
		"no factor":               {"config: {memoryQoS: {throttlingFactor: null}}", nil},
		"a negative number":       {"config: {reservedCPUs: -1}", []string{"reservedCPUs: "}},
		"a fraction":              {"config: {managedCPUs: 1.5}", []string{"managedCPUs: "}},
		"a truth":                 {"config: {managedCPUs: true}", []string{"managedCPUs: true, want text"}},
		"a factor above 1":        {"config: {memoryQoS: {throttlingFactor: '1.5'}}", []string{"memoryQoS.throttlingFactor: "}},
		"a factor with a percent": {"config: {memoryQoS: {throttlingFactor: 90%}}", []string{"memoryQoS.throttlingFactor: "}},
		"a factor of zero":        {"config: {memoryQoS: {throttlingFactor: '.0'}}", []string{"memoryQoS.throttlingFactor: "}},
		"config without a value":  {"config:", []string{"config" + null}},
		"a key without a value":   {"config: {groupBy: }", []string{"groupBy" + null}},
		"a section without one":   {"config: {memoryQoS: null}", []string{"memoryQoS" + null}},
		"all at once": {
			"config: {sharedPool: {mode: null}, exclusivity: null, cpu: {placement: near}}",
			[]string{"sharedPool.mode" + null, "exclusivity" + null, `cpu.placement: "near"`},
		},
		"a list": {"config: []", []string{"the document: [], want fields with values"}},
	} {
		t.Run(name, func(t *testing.T) {
			values := filepath.Join(t.TempDir(), "values.yaml")
			require.NoError(t, os.WriteFile(values, []byte(c.values), 0o600))
			_, err := execute("validate", "--values", values)
			if c.want == nil {
				require.NoError(t, err)
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	schema, err := os.ReadFile("../../charts/dra-driver-cpumem/values.schema.json")
	require.NoError(t, err)
	pattern, err := json.Marshal(throttlingFactor.String())
	require.NoError(t, err)
	require.Contains(t, string(schema), string(pattern), "text that the chart takes")
}
