// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMutants(t *testing.T) {
	const source = `package p

func f(a, b int, s []int) (int, error) {
	if a < b && b != 0 {
		s[0] = a + b
	}
	switch {
	case a > 1:
		log()
	}
	x := 1
	return x, err
}
`
	found, err := mutants([]byte(source))
	require.NoError(t, err)
	var lines []string
	for _, m := range found {
		lines = append(lines, m.String())
		changed := string(m.apply([]byte(source)))
		require.NotEqual(t, source, changed)
		require.Equal(t, m.from, source[m.begin:m.end])
	}
	require.ElementsMatch(t, []string{
		"a < b && b != 0  =>  !(a < b && b != 0)",
		"a < b && b != 0  =>  a < b",
		"a < b && b != 0  =>  b != 0",
		"a < b  =>  a <= b",
		"s[0] = a + b  =>  {}",
		"a + b  =>  a - b",
		"a > 1  =>  !(a > 1)",
		"a > 1  =>  a >= 1",
		"log()  =>  {}",
		"err  =>  nil",
	}, lines)
	_, err = mutants([]byte("no Go"))
	require.Error(t, err)
}

// module writes a module with a function, and a test that notices a change of its
// first statement only.
func module(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "example")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "p"), 0o755))
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"p/p.go": "package p\n\nfunc Larger(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n",
		// A failure is recorded as rapid does.
		"p/p_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestLarger(t *testing.T) {\n" +
			"\tif Larger(1, 2) != 2 {\n\t\tos.MkdirAll(\"testdata/rapid/TestLarger\", 0o755)\n" +
			"\t\tos.WriteFile(\"testdata/rapid/TestLarger/new\", nil, 0o600)\n\t\tt.Fail()\n\t}\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestRun(t *testing.T) {
	dir := module(t)
	equivalent := filepath.Join(t.TempDir(), "equivalent.txt")
	require.NoError(t, os.WriteFile(equivalent, nil, 0o600))
	old := filepath.Join(dir, "p", "testdata", "rapid", "TestLarger", "old")
	require.NoError(t, os.MkdirAll(filepath.Dir(old), 0o755))
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	var out bytes.Buffer
	r := run{module: dir, dir: "p", tests: []string{"./p"}, equivalent: equivalent, timeout: time.Minute, out: &out}
	score, err := r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 50, score, "the negated condition is noticed, the moved bound is not")
	require.FileExists(t, old)
	require.NoFileExists(t, filepath.Join(filepath.Dir(old), "new"))
	require.Equal(t, "example/p/p.go:4: a > b  =>  a >= b\n"+
		"example/p: 1 changes noticed, 1 not, 0 without an effect: 50 %\n", out.String())

	out.Reset()
	known := "# Of two equal numbers either is the larger.\nexample/p/p.go: a > b  =>  a >= b\n"
	require.NoError(t, os.WriteFile(equivalent, []byte(known), 0o600))
	score, err = r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, score)
	require.Equal(t, "example/p: 1 changes noticed, 0 not, 1 without an effect: 100 %\n", out.String())

	require.NoError(t, os.WriteFile(equivalent, []byte("example/p/p.go: a > b  =>  a >= b\n"), 0o600))
	_, err = r.run(t.Context())
	require.ErrorContains(t, err, "line 1 has no reason above it")

	require.NoError(t, os.WriteFile(equivalent, nil, 0o600))
	source := filepath.Join(dir, "p", "p.go")
	data, err := os.ReadFile(source)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(source, []byte(strings.Replace(string(data), "return b", "return 0", 1)), 0o600))
	_, err = r.run(t.Context())
	require.ErrorContains(t, err, "the tests fail without a change")
}
