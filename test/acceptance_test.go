// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// caseID matches the id of an acceptance case, in text and in the name of a test.
	caseID = regexp.MustCompile(`(?:\b|_|Test)(A[0-9]{2})(?:\b|_)`)
	// testFile matches a test file in a cell of the page.
	testFile = regexp.MustCompile("`([^`]+_test\\.go)`")
	// testName matches a test of the actuator, as package and function.
	testName = regexp.MustCompile("`([a-z]+)\\.(Test[A-Za-z]+)`")
)

// casesOfTests returns the test files that name each acceptance case, as paths
// of the repository.
func casesOfTests(t *testing.T) map[string][]string {
	t.Helper()
	cases := make(map[string][]string)
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		for _, match := range caseID.FindAllStringSubmatch(string(text), -1) {
			if id := match[1]; !slices.Contains(cases[id], file) {
				cases[id] = append(cases[id], file)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	return cases
}

// casesOfPage returns the test files in the row of each acceptance case. A row
// has the id, a sentence, and a column of files for each kind of test.
func casesOfPage(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/acceptance.md")
	require.NoError(t, err)
	cases := make(map[string][]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !caseID.MatchString(cells[1]) {
			continue
		}
		id := strings.TrimSpace(cells[1])
		require.NotContains(t, cases, id, "docs/acceptance.md has two rows of the case")
		require.NotEmpty(t, strings.TrimSpace(cells[2]), "docs/acceptance.md: %s has no sentence", id)
		cases[id] = []string{}
		for i, dir := range []string{"", "test/lab", "test/cluster/e2e"} {
			for _, match := range testFile.FindAllStringSubmatch(cells[3+i], -1) {
				cases[id] = append(cases[id], path.Join(dir, match[1]))
			}
		}
	}
	require.NotEmpty(t, cases)
	return cases
}

// The page is how people find the tests of a behaviour: each case that a test
// names is there, and each file of its row names the case.
func TestAcceptancePage(t *testing.T) {
	tests, page := casesOfTests(t), casesOfPage(t)
	for id, files := range tests {
		assert.Contains(t, page, id, "tests name the case, and docs/acceptance.md has no row of it: %v", files)
	}
	for id, files := range page {
		assert.NotEmpty(t, files, "docs/acceptance.md has no test of %s", id)
		for _, file := range files {
			assert.Contains(t, tests[id], file, "docs/acceptance.md names a file for %s that does not name the case", id)
		}
	}
}

// Each row of the contract's failure rules names tests of the actuator that
// exist.
func TestFailureRules(t *testing.T) {
	page, err := os.ReadFile("../docs/contract.md")
	require.NoError(t, err)
	_, rules, found := strings.Cut(string(page), "\n| | container with a claim | container without a claim | tests |\n|---|---|---|---|\n")
	require.True(t, found)
	rules, _, _ = strings.Cut(rules, "\n\n")
	for row := range strings.Lines(rules) {
		tests := testName.FindAllStringSubmatch(row, -1)
		assert.NotEmpty(t, tests, row)
		for _, match := range tests {
			sources, err := filepath.Glob(filepath.Join("../nri-actuator", match[1], "*_test.go"))
			require.NoError(t, err)
			assert.True(t, slices.ContainsFunc(sources, func(source string) bool {
				text, err := os.ReadFile(source)
				return err == nil && strings.Contains(string(text), "\nfunc "+match[2]+"(")
			}), "%s.%s does not exist", match[1], match[2])
		}
	}
}
