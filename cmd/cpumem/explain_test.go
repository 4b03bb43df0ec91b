// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

// explain --watch shows everything again after a change of the directory, and ends without
// an error with its context.
func TestExplainWatch(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	cmd := command()
	cmd.SetOut(w)
	cmd.SetArgs([]string{"explain", "--watch", "--cdi-dir", dir})
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.ExecuteContext(ctx)
		_ = w.Close()
	}()
	lines := bufio.NewScanner(r)
	until := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("no line with %q", want)
	}
	until("problem: dra.cpumem-node.json: open")
	require.NoError(t, cdidir.At(dir).Write("dra.cpumem-node.json", []byte("{")))
	until("problem: dra.cpumem-node.json: not a CDI spec")
	stop()
	require.NoError(t, <-ended)
}
