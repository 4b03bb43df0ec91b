// SPDX-License-Identifier: Apache-2.0

// Package contract_test tests the contract module with other projects' programs: a
// JSON Schema validator, the runtimes' CDI library, and OCI specs. The module has the
// tests that need no other project.
package contract_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/contract/records"
)

const (
	claimUID  = "4f1c2a7e-0b3d-4c5e-8f60-718293a4b5c6" // the UID of each golden claim
	otherUID  = "a0b1c2d3-e4f5-4061-8273-8495a6b7c8d9"
	goldenDir = "../../cdi-contract/testdata/v1"
	skewDir   = "../../cdi-contract/testdata/skew"
)

func validator(t testing.TB) *records.Validator {
	v, err := records.New()
	require.NoError(t, err)
	return v
}

// files returns, by name, the contents of the files in dir with the prefix kind.
func files(t testing.TB, dir, kind string) map[string][]byte {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), kind) {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			found[e.Name()] = data
		}
	}
	require.NotEmpty(t, found)
	return found
}

// fileName returns the name of a golden file in the CDI directory.
func fileName(golden string) string {
	switch {
	case strings.HasPrefix(golden, "claim"):
		return contract.ClaimFile(claimUID)
	case strings.HasPrefix(golden, "node"):
		return contract.NodeFile
	default:
		return contract.ActuatorFile
	}
}

func TestGoldenFilesAreOfTheSchemas(t *testing.T) {
	v := validator(t)
	// The schemas of v1 accept additions to v1, and refuse these files.
	refused := []string{
		"decision-v2.json", "claim-v2.json", "claim-v2-decision-v1.json", "node-v2.json", "node-file.json", "announcement-v2.json",
	}
	for _, dir := range []string{goldenDir, skewDir} {
		for name, data := range files(t, dir, "") {
			t.Run(filepath.Join(filepath.Base(dir), name), func(t *testing.T) {
				var err error
				if strings.HasPrefix(name, "decision") {
					err = v.Record("decision", data)
				} else {
					err = v.File(data)
				}
				if slices.Contains(refused, name) {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
			})
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	v := validator(t)
	for name, tc := range map[string]struct{ record, text string }{
		"no version":           {"decision", `{"requires":[]}`},
		"empty cpus":           {"decision", `{"v":"v1","cpus":""}`},
		"not a list":           {"decision", `{"v":"v1","cpus":"a"}`},
		"list with newline":    {"decision", `{"v":"v1","cpus":"1\n"}`},
		"memory incomplete":    {"decision", `{"v":"v1","memory":{"min":0}}`},
		"memory between pages": {"decision", `{"v":"v1","memory":{"min":1,"low":0,"high":0,"max":0}}`},
		"amount of other word": {"decision", `{"v":"v1","hugepages":{"2Mi":"Max"}}`},
		"cgroup page size":     {"decision", `{"v":"v1","hugepages":{"2MB":0}}`},
		"no hugepages":         {"decision", `{"v":"v1","hugepages":{}}`},
		"policy of other mode": {"decision", `{"v":"v1","mems":"0","memoryPolicy":{"mode":"strict","nodes":"0"}}`},
		"policy without nodes": {"decision", `{"v":"v1","mems":"0","memoryPolicy":{"mode":"bind"}}`},
		"empty feature":        {"decision", `{"v":"v1","requires":[""]}`},
		"empty pool of CPUs": {
			record: "node",
			text:   `{"v":"v1","generation":1,"bootID":"b","shared":{"cpus":"","mems":"0"},"pods":{},"ancestors":{}}`,
		},
		"pod of no UID": {
			record: "node",
			text: `{"v":"v1","generation":1,"bootID":"b","shared":{"cpus":"0","mems":"0"},` +
				`"pods":{"x":{"claims":["` + claimUID + `"]}},"ancestors":{}}`,
		},
		"other cgroup file": {
			record: "node",
			text: `{"v":"v1","generation":1,"bootID":"b","shared":{"cpus":"0","mems":"0"},` +
				`"pods":{},"ancestors":{"":{"cgroup.procs":"1"}}}`,
		},
		"unknown level": {
			record: "node",
			text:   `{"v":"v1","generation":1,"bootID":"b","shared":{"cpus":"0","mems":"0"},"pods":{},"ancestors":{"guaranteed":{}}}`,
		},
		"claim without results": {"claim", `{"v":"v1","namespace":"n","name":"n","uid":"` + claimUID + `","bootID":"b","results":[]}`},
		"relative guard": {
			record: "announcement",
			text: `{"v":"v1","versions":[],"features":[],"connected":true,"guard":"g",` +
				`"generation":1,"pid":1,"started":"2026-02-03T04:05:06Z"}`,
		},
		"started is no time": {
			record: "announcement",
			text:   `{"v":"v1","versions":[],"features":[],"connected":true,"generation":1,"pid":1,"started":"now"}`,
		},
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, v.Record(tc.record, []byte(tc.text))) })
	}
}
