// SPDX-License-Identifier: Apache-2.0

package document

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInsert(t *testing.T) {
	begin, end := marks("make bench")
	file := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, os.WriteFile(file, []byte("prose\n"+begin+"old\n"+end+"more prose\n"), 0o644))
	require.NoError(t, Insert(file, "make bench", "new\n"))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "prose\n"+begin+"\nnew\n\n"+end+"more prose\n", string(data))
	require.ErrorContains(t, Insert(file, "make other", "new\n"), "to write between")
}
