// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// A56: the schemas, the chart's defaults and the documented keys follow from the Go
// types.
func TestFilesAreCurrent(t *testing.T) {
	require.NoError(t, run(root, true))
}

func TestStaleFilesAreFound(t *testing.T) {
	copied := t.TempDir()
	all, err := generated(root)
	require.NoError(t, err)
	for _, file := range append(slices.Collect(maps.Keys(all)), "dra-frontend/config/config.go", "charts/dra-driver-cpumem/values.yaml") {
		data, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		to := filepath.Join(copied, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, data, 0o600))
	}
	require.NoError(t, run(copied, true))
	source := filepath.Join(copied, "dra-frontend/config/config.go")
	data, err := os.ReadFile(source)
	require.NoError(t, err)
	changed := bytes.Replace(data, []byte("are never claimed"), []byte("are reserved"), 1)
	require.NoError(t, os.WriteFile(source, changed, 0o600))
	require.ErrorContains(t, run(copied, true), "configuration.md is not current: run make generate")
	require.NoError(t, run(copied, false))
	require.NoError(t, run(copied, true))
	for _, file := range []string{"charts/dra-driver-cpumem/files/config-defaults.yaml", "cdi-contract/schema/claim.schema.json"} {
		require.NoError(t, os.Remove(filepath.Join(copied, file)))
		require.ErrorContains(t, run(copied, true), filepath.Base(file)+" is not current")
	}
}
