// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

const root = "../.."

func read(t *testing.T) []pages.Page {
	t.Helper()
	all, err := pages.Read(root)
	require.NoError(t, err)
	return all
}

// The chart takes the values on the pages and among the examples, and the frontend the
// configuration in them.
func TestPagesOfValues(t *testing.T) {
	t.Parallel()
	blocks, err := pages.YAML(root, read(t))
	require.NoError(t, err)
	found := 0
	for _, b := range blocks {
		if b.Mark != pages.Values {
			continue
		}
		found++
		t.Run(b.At(), func(t *testing.T) {
			t.Parallel()
			for _, m := range of[*corev1.ConfigMap](render(t, b.Text)) {
				if file, is := m.Data["config.yaml"]; is {
					_, err := config.Parse([]byte(file))
					require.NoError(t, err)
				}
			}
		})
	}
	require.NotZero(t, found)
}

// valueFlags are the flags of helm that give values to a chart.
var valueFlags = []string{"--set", "--set-string", "--set-json", "--values", "-f"}

// valuesOf returns the arguments that give values to the chart. Without the reader's own
// files, which are not in the repository, the values are not whole.
func valuesOf(c pages.Command) (args []string, whole bool) {
	whole = true
	for i, arg := range c.Args {
		flag, value, joined := strings.Cut(arg, "=")
		if !slices.Contains(valueFlags, flag) {
			continue
		}
		if !joined && i+1 < len(c.Args) {
			value = c.Args[i+1]
		}
		if flag == "--values" || flag == "-f" {
			value = filepath.Join(root, c.Dir, value)
			if _, err := os.Stat(value); err != nil {
				whole = false
				continue
			}
		}
		args = append(args, flag, value)
	}
	return args, whole
}

// The subcommands and flags of helm on the pages exist, and the chart takes the values of
// an installation or an upgrade. An installation that can be typed as it stands has all
// values that have no default.
func TestPagesOfHelm(t *testing.T) {
	t.Parallel()
	commands, err := pages.CommandsOf(read(t), "helm")
	require.NoError(t, err)
	program, err := helmProgram()
	require.NoError(t, err, "find or build helm")
	run := func(c pages.Command, args ...string) {
		out, err := exec.Command(program, args...).CombinedOutput()
		assert.NoError(t, err, "%s\n%s", c, out)
	}
	withValues := 0
	for _, c := range commands {
		// Helm parses the flags before it shows the help.
		run(c, append(slices.Clone(c.Args), "--help")...)
		values, whole := valuesOf(c)
		if len(values) == 0 {
			continue
		}
		withValues++
		if !c.Whole || !whole || c.Args[0] != "install" {
			values = append([]string{"--values", "testdata/images.yaml"}, values...)
		}
		run(c, append([]string{"template", "r", chartDir, "--namespace", "ns"}, values...)...)
	}
	require.NotZero(t, withValues)
}
