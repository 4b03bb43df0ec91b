// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
)

// The authors of texts in the page of -page, as its marks name them.
const (
	authorFootprint = "make bench-footprint"
	authorStart     = "make bench-footprint: start"
	authorChurn     = "make bench-churn"
)

// The page has the marks between which the cases write. It needs no cluster.
func TestPageHasMarks(t *testing.T) {
	data, err := os.ReadFile("../../../docs/explanation/performance.md")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "performance.md")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	for _, author := range []string{authorFootprint, authorStart, authorChurn} {
		require.NoError(t, document.Insert(file, author, "new\n"))
	}
}
