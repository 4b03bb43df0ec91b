// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

// watching is a running explain --watch.
type watching struct {
	t        *testing.T
	out      io.Reader
	lines    *bufio.Scanner
	warnings *bytes.Buffer
	ended    chan error
	stop     context.CancelFunc
}

func watch(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	started := &watching{
		t: t, out: r, lines: bufio.NewScanner(r), warnings: &bytes.Buffer{}, ended: make(chan error, 1), stop: stop,
	}
	cmd := command()
	cmd.SetOut(w)
	cmd.SetErr(started.warnings)
	cmd.SetArgs(append([]string{"explain", "--watch"}, args...))
	go func() {
		started.ended <- cmd.ExecuteContext(ctx)
		_ = w.Close()
	}()
	return started
}

// until reads to the line that has the text, and returns the lines before it.
func (w *watching) until(want string) (before []string) {
	w.t.Helper()
	for w.lines.Scan() {
		if strings.Contains(w.lines.Text(), want) {
			return before
		}
		before = append(before, w.lines.Text())
	}
	w.t.Fatalf("no line with %q", want)
	return nil
}

// rest reads to the end of the output.
func (w *watching) rest() error {
	_, _ = io.Copy(io.Discard, w.out)
	return <-w.ended
}

// explain --watch shows everything again after a change of the directory, and ends without
// an error with its context.
func TestExplainWatch(t *testing.T) {
	for name, c := range map[string]struct {
		form, separator string
	}{
		"for people":   {"text", ""},
		"as documents": {"yaml", "---"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := watch(t, "--cdi-dir", dir, "-o", c.form)
			w.until("dra.cpumem-node.json: open")
			require.NoError(t, cdidir.At(dir).Write("dra.cpumem-node.json", []byte("{")))
			require.Contains(t, w.until("dra.cpumem-node.json: not a CDI spec"), c.separator)
			w.stop()
			require.NoError(t, w.rest())
		})
	}
}

// explain --watch of a claim ends when the claim is released. A claim that was never there is an error.
func TestExplainWatchOfClaim(t *testing.T) {
	const uid = "aaaaaaaa-0000-0000-0000-000000000001"
	data, err := contract.EncodeClaim(contract.ClaimRecord{
		V: contract.Version, Namespace: "default", Name: "claim", UID: uid, BootID: "boot",
		Pods: []contract.PodRecord{{UID: "cccccccc-0000-0000-0000-000000000003"}},
		Results: []contract.ResultRecord{{Request: "zone", Pool: "node", Device: "numa-0", Decision: contract.Decision{
			V: contract.Version, CPUs: contract.CPUs(1),
		}}},
	})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, cdidir.At(dir).Write(contract.ClaimFile(uid), data))
	w := watch(t, "--cdi-dir", dir, "default/claim")
	w.until("default/claim  zone")
	require.NoError(t, cdidir.At(dir).Remove(contract.ClaimFile(uid)))
	require.NoError(t, w.rest())
	require.Equal(t, "cpumem: claim default/claim is released\n", w.warnings.String())

	require.ErrorContains(t, watch(t, "--cdi-dir", dir, "default/claim").rest(), `no prepared claim "default/claim"`)
}
