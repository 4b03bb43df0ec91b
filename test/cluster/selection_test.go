// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	selection = regexp.MustCompile(`RUN='([^']+)'`)
	group     = regexp.MustCompile(`^([^(]*)\(([^()]*)\)(.*)$`)
	function  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// alternatives returns the expressions that an expression with groups of alternatives stands for.
func alternatives(expression string) []string {
	depth, parts := 0, []string{""}
	for _, letter := range expression {
		switch {
		case letter == '|' && depth == 0:
			parts = append(parts, "")
			continue
		case letter == '(':
			depth++
		case letter == ')':
			depth--
		}
		parts[len(parts)-1] += string(letter)
	}
	var all []string
	for _, part := range parts {
		match := group.FindStringSubmatch(part)
		if match == nil {
			all = append(all, part)
			continue
		}
		for word := range strings.SplitSeq(match[2], "|") {
			all = append(all, alternatives(match[1]+word+match[3])...)
		}
	}
	return all
}

// go test runs nothing and succeeds if no case has the name: each case that CI and make select by its name exists.
func TestSelectedCasesExist(t *testing.T) {
	require.Equal(t, []string{"a", "bc", "bd"}, alternatives("a|b(c|d)"))
	files, err := filepath.Glob("e2e/*_test.go")
	require.NoError(t, err)
	var cases []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range function.FindAllStringSubmatch(string(data), -1) {
			cases = append(cases, match[1])
		}
	}
	found := 0
	for _, file := range []string{"../../.ci/run", "../../Makefile"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range selection.FindAllStringSubmatch(strings.ReplaceAll(string(data), "$$", "$"), -1) {
			for _, name := range alternatives(match[1]) {
				found++
				require.True(t, slices.ContainsFunc(cases, regexp.MustCompile(name).MatchString), "%s: no case has the name %s", file, name)
			}
		}
	}
	require.GreaterOrEqual(t, found, 5)
}
