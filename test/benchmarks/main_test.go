// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const output = `goos: linux
pkg: example
BenchmarkApply/pool/containers=500-2    	      20	  96781932 ns/op	 8123570 B/op	   67299 allocs/op
BenchmarkPick/8_CPUs/two-8     	  100000	      1234.5 ns/op	      4567 p99-ns/op	     100 B/op	       3 allocs/op
BenchmarkCreateContainer/claims=0/containers=500-2 	 100 	 15000 ns/op 	 300000 p99-ns/op
BenchmarkCreateContainer/claims=1/containers=0-2 	 100 	 15000 ns/op 	 1600000 p99-ns/op
BenchmarkPlain 	  1	 7 ns/op
PASS
`

func TestRun(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("<!-- written by make bench -->\n<!-- end of what make bench writes -->\n"), 0o600))
	require.NoError(t, run(strings.NewReader(output), page))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), `| operation | time | 99 of 100 within | goal | memory | allocations |
|---|--:|--:|--:|--:|--:|
| Apply/pool/containers=500 | 96.8ms |  | 20ms, missed | 8123570 B | 67299 |
| Pick/8 CPUs/two | 1.23µs | 4.57µs |  | 100 B | 3 |
| CreateContainer/claims=0/containers=500 | 15µs | 300µs | 300µs | 0 B | 0 |
| CreateContainer/claims=1/containers=0 | 15µs | 1.6ms | 1.5ms, missed | 0 B | 0 |
| Plain | 7ns |  |  | 0 B | 0 |
`)
}

// Each number of an operation that was measured several times is the median.
func TestRun_Medians(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("<!-- written by make bench -->\n<!-- end of what make bench writes -->\n"), 0o600))
	require.NoError(t, run(strings.NewReader(`BenchmarkA-2 1 30 ns/op 90 p99-ns/op 5 B/op 7 allocs/op
BenchmarkB-2 1 1 ns/op
BenchmarkA-2 1 20 ns/op 80 p99-ns/op 6 B/op 8 allocs/op
BenchmarkB-2 1 2 ns/op
BenchmarkA-2 1 10 ns/op 99 p99-ns/op 4 B/op 9 allocs/op
`), page))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "|---|--:|--:|--:|--:|--:|\n| A | 20ns | 90ns |  | 5 B | 8 |\n| B | 1ns |  |  | 0 B | 0 |\n")
}

func TestParse_Faults(t *testing.T) {
	_, err := parse(strings.NewReader("FAIL\n"))
	require.ErrorContains(t, err, "no result")
	_, err = parse(strings.NewReader("BenchmarkX 1 many ns/op\n"))
	require.ErrorContains(t, err, "many")
}
