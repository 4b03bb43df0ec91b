// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchemasAreCurrent(t *testing.T) {
	require.NoError(t, run(filepath.Join("..", "..", "..", "cdi-contract", "schema"), true))
}

func TestCheckFindsStaleAndMissingSchemas(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, run(dir, false))
	require.NoError(t, run(dir, true))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.schema.json"), []byte("{}\n"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(dir, "claim.schema.json")))
	err := run(dir, true)
	require.ErrorContains(t, err, "node.schema.json is not current")
	require.ErrorContains(t, err, "claim.schema.json")
}
