// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"os"
	"path"
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
	// testName matches the name of a test in a cell of a page.
	testName = regexp.MustCompile("`([^`]+)`")
	// testFunction matches the function of a test.
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// testFiles returns the text of each test file, by its path in the repository.
func testFiles(t *testing.T) map[string]string { return filesBelow(t, ".", "_test.go") }

// filesBelow returns the text of each file below the directory whose name ends so, by its
// path in the repository.
func filesBelow(t *testing.T, dir, end string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	root := os.DirFS("..")
	err := fs.WalkDir(root, dir, func(file string, entry fs.DirEntry, err error) error {
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
		if !strings.HasSuffix(name, end) {
			return nil
		}
		text, err := fs.ReadFile(root, file)
		files[file] = string(text)
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// casesOfTests returns the test files that name each acceptance case, as paths
// of the repository.
func casesOfTests(t *testing.T) map[string][]string {
	t.Helper()
	cases := make(map[string][]string)
	for file, text := range testFiles(t) {
		for _, match := range caseID.FindAllStringSubmatch(text, -1) {
			if id := match[1]; !slices.Contains(cases[id], file) {
				cases[id] = append(cases[id], file)
			}
		}
	}
	require.NotEmpty(t, cases)
	return cases
}

// casesOfPage returns the test files in the row of each acceptance case. A row
// has the id, a sentence, and a column of files for each kind of test.
func casesOfPage(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/acceptance.md")
	require.NoError(t, err)
	cases := make(map[string][]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !caseID.MatchString(cells[1]) {
			continue
		}
		id := strings.TrimSpace(cells[1])
		require.NotContains(t, cases, id, "docs/reference/acceptance.md has two rows of the case")
		require.NotEmpty(t, strings.TrimSpace(cells[2]), "docs/reference/acceptance.md: %s has no sentence", id)
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
		assert.Contains(t, page, id, "tests name the case, and docs/reference/acceptance.md has no row of it: %v", files)
	}
	for id, files := range page {
		assert.NotEmpty(t, files, "docs/reference/acceptance.md has no test of %s", id)
		for _, file := range files {
			assert.Contains(t, tests[id], file, "docs/reference/acceptance.md names a file for %s that does not name the case", id)
		}
	}
}

// directories returns the directories of each test, by its name on the pages: the name
// of its directory and its function.
func directories(t *testing.T) map[string][]string {
	t.Helper()
	tests := make(map[string][]string)
	for file, text := range testFiles(t) {
		dir := path.Dir(file)
		for _, match := range testFunction.FindAllStringSubmatch(text, -1) {
			name := path.Base(dir) + "." + match[1]
			tests[name] = append(tests[name], dir)
		}
	}
	return tests
}

// requireTests fails unless each row of the page's table with the head names, in its last
// cell, tests that exist. Their directories' paths begin with below.
func requireTests(t *testing.T, page, head, below string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rows, found := strings.Cut(string(text), "\n"+head+"\n"+regexp.MustCompile(`[^|]+`).ReplaceAllString(head, "---")+"\n")
	require.True(t, found, "%s has no table %s", page, head)
	rows, _, _ = strings.Cut(rows, "\n\n")
	tests := directories(t)
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		names := testName.FindAllStringSubmatch(cells[len(cells)-1], -1)
		assert.NotEmpty(t, names, row)
		for _, name := range names {
			assert.True(t, slices.ContainsFunc(tests[name[1]], func(dir string) bool { return strings.HasPrefix(dir, below) }),
				"%s: no test %s in %q", page, name[1], below)
		}
	}
}

// Each row of the contract's failure rules names tests of the actuator that
// exist.
func TestFailureRules(t *testing.T) {
	requireTests(t, "../docs/reference/contract.md", "| | container with a claim | container without a claim | tests |", "nri-actuator/")
}

// Each attempt of an attacker names the tests that show that it fails.
func TestAttackers(t *testing.T) {
	requireTests(t, "../docs/explanation/security.md", "| who | tries to | what stops it | tests |", "")
}
