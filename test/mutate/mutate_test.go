// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	log()
	log()
	logs.From(ctx).Info("x")
	x := 1
	return x, err
}
`
	found, err := mutants("p.go", []byte(source))
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
		"log()  =>  {}",
		"log()  =>  {}",
		"err  =>  nil",
	}, lines)
	for i, m := range found {
		for _, other := range found[:i] {
			require.NotEqual(t, m.name(), other.name())
		}
	}
	_, err = mutants("p.go", []byte("no Go"))
	require.Error(t, err)
}

// calls calls each kind of change: of two conditions, bounds, sums, errors and statements.
const calls = `package main

import (
	"errors"
	"fmt"
)

type list []int

func (l *list) add(n int) { *l = append(*l, n) }

func check(a, b int) error {
	switch {
	case a > 1 || b >= 2:
		return errors.New("large")
	}
	return nil
}

const limit = 1 + 1

func compare(a, b int) (text string, err error) {
	defer func() { text += "!" }()
	if err := check(a, b); a < b && b != 0 || a-limit <= b-3 {
		return text + "below", err
	}
	var l list
	for i := 0; i < a; i++ {
		l.add(a + i*(b-a))
		if len(l) > 9 {
			break
		}
	}
	text = fmt.Sprint(l)
	return text, nil
}

func main() {
	for a := range 4 {
		for b := range 4 {
			fmt.Println(compare(a, b))
		}
	}
}
`

// A test binary with a change selected does what the changed source does.
func TestInstrument(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "example")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example\n\ngo 1.26\n"), 0o600))
	build := func(source []byte) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600))
		program := filepath.Join(t.TempDir(), "program")
		_, err := command(t.Context(), dir, "build", "-o", program)
		require.NoError(t, err)
		return program
	}
	output := func(program string, env ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program)
		cmd.Env = append(cmd.Environ(), env...)
		out, _ := cmd.CombinedOutput() // a panic is an output
		text, _, _ := strings.Cut(string(out), "goroutine")
		return text
	}
	plain := output(build([]byte(calls)))
	pkg, err := load(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "support.go"), support("main", 100), 0o600))
	found, err := mutants("main.go", []byte(calls))
	require.NoError(t, err)
	require.Greater(t, len(found), 20)
	found = slices.DeleteFunc(found, func(m mutant) bool {
		return !pkg.compiles("main.go", m.apply([]byte(calls))) || m.from == "i++" // the loop would not end
	})
	instrumented := build(instrument([]byte(calls), found, 1))
	require.Equal(t, plain, output(instrumented))
	for i, m := range found {
		changed := output(build(m.apply([]byte(calls))))
		require.Equal(t, changed, output(instrumented, selects+"="+strconv.Itoa(i+1)), m.name())
	}
}

func TestCompiles(t *testing.T) {
	pkg, err := load(t.Context(), module(t))
	require.NoError(t, err)
	require.True(t, pkg.compiles("p.go", []byte("package p\n\nfunc Larger(a, b int) int { return a - b }\n")))
	for name, source := range map[string]string{
		"syntax":           "package p\n\nfunc",
		"type":             "package p\n\nfunc Larger(a, b string) string { return a - b }\n",
		"missing return":   "package p\n\nfunc Larger(a, b int) int {}\n",
		"unused variable":  "package p\n\nfunc Larger(a, b int) int { c := a; return b }\n",
		"unknown function": "package p\n\nfunc Larger(a, b int) int { return other(a) }\n",
	} {
		t.Run(name, func(t *testing.T) { require.False(t, pkg.compiles("p.go", []byte(source))) })
	}
}

// module writes a module with a function, and a test that notices a change of its
// first statement only.
func module(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "example")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "p"), 0o755))
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"p/p.go": "package p\n\nfunc Larger(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestLarger(t *testing.T) {\n" +
			"\tif Larger(1, 2) != 2 {\n\t\tt.Fail()\n\t}\n}\n",
		// A test that waits for a loop to end is cut off.
		"p/loop.go": "package p\n\nfunc Sum(n int) (sum int) {\n\tfor n > 0 {\n\t\tsum += n\n\t\tn--\n\t}\n\treturn sum\n}\n",
		"p/loop_test.go": "package p\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n" +
			"\tif Sum(3) != 6 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "p")
}

func TestRun(t *testing.T) {
	dir := filepath.Dir(module(t))
	equivalent := filepath.Join(t.TempDir(), "equivalent.txt")
	require.NoError(t, os.WriteFile(equivalent, nil, 0o600))
	var out bytes.Buffer
	r := run{
		module: dir, dir: "p", tests: []string{"p"}, equivalent: equivalent,
		timeout: time.Minute, slack: 3 * time.Second, jobs: 2, out: &out,
	}
	score, err := r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 66, score)
	require.Equal(t, "line 4, tests that come by: 1: example/p/loop.go Sum: n > 0  =>  n >= 0\n"+
		"line 4, tests that come by: 1: example/p/p.go Larger: a > b  =>  a >= b\n"+
		"example/p: killed 4 of 6 (66 %), 0 equivalent\n", out.String())

	out.Reset()
	r.file = "p.go"
	known := "# Of two equal numbers either is the larger.\nexample/p/p.go Larger: a > b  =>  a >= b\n"
	require.NoError(t, os.WriteFile(equivalent, []byte(known), 0o600))
	score, err = r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, score)
	require.Equal(t, "example/p: killed 1 of 1 (100 %), 1 equivalent\n", out.String())

	out.Reset()
	require.NoError(t, os.WriteFile(equivalent, nil, 0o600))
	r.sample, r.seed = 1, 7
	_, err = r.run(t.Context())
	require.NoError(t, err)
	require.Contains(t, out.String(), " of 1 (")
	require.Contains(t, out.String(), ", a sample of 2 with seed 7\n")

	require.NoError(t, os.WriteFile(equivalent, []byte("example/p/p.go Larger: a > b  =>  a >= b\n"), 0o600))
	_, err = r.run(t.Context())
	require.ErrorContains(t, err, "line 1 has no reason above it")

	stale := "# It was equal once.\nexample/p/p.go Larger: a > c  =>  a >= c\nexample/q/q.go Larger: a > c  =>  a >= c\n"
	require.NoError(t, os.WriteFile(equivalent, []byte(stale), 0o600))
	_, err = r.run(t.Context())
	require.ErrorContains(t, err, "no change of the source, remove them:\nexample/p/p.go Larger: a > c  =>  a >= c")
	require.NotContains(t, err.Error(), "example/q", "of a package that is not run")

	require.NoError(t, os.WriteFile(equivalent, nil, 0o600))
	source := filepath.Join(dir, "p", "p.go")
	data, err := os.ReadFile(source)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(source, []byte(strings.Replace(string(data), "return b", "return 0", 1)), 0o600))
	_, err = r.run(t.Context())
	require.ErrorContains(t, err, "the tests fail without a change")
}
