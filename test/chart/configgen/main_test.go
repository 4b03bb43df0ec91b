// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// A56: the chart's schema, its defaults and the documented keys are those of the
// daemon's type.
func TestFilesAreCurrent(t *testing.T) {
	require.NoError(t, run(root, true))
}

func TestStaleFilesAreFound(t *testing.T) {
	copied := t.TempDir()
	for _, file := range []string{
		"charts/dra-driver-cpumem/values.schema.json", "charts/dra-driver-cpumem/files/config-defaults.yaml",
		"docs/configuration.md", "dra-frontend/config/config.go",
	} {
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
	require.NoError(t, os.Remove(filepath.Join(copied, "charts/dra-driver-cpumem/files/config-defaults.yaml")))
	require.ErrorContains(t, run(copied, true), "config-defaults.yaml is not current")
}
