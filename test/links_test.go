// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	unlinked = regexp.MustCompile("[^a-z0-9 _-]")
)

// Each link of a page leads to a file of the repository, and its anchor to a heading
// there.
func TestLinks(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "https://") || strings.HasPrefix(m[1], "http://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s links to %s", page, m[1]) {
				continue
			}
			if anchor != "" && strings.HasSuffix(target, ".md") {
				assert.Contains(t, anchors(t, target), anchor, "%s links to %s", page, m[1])
			}
		}
	}
	require.Greater(t, links, 100, "the test has found the links")
}

// pages returns all Markdown files of the repository.
func pages(t *testing.T) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "_output" || name == "bin" || name == ".git") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			out = append(out, path)
		}
		return nil
	}))
	return out
}

// anchors returns the anchors of a page's headings, as Git hosts make them.
func anchors(t *testing.T, page string) (out []string) {
	t.Helper()
	f, err := os.Open(page)
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if heading, is := strings.CutPrefix(lines.Text(), "#"); is {
			heading = strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
			out = append(out, strings.ReplaceAll(unlinked.ReplaceAllString(heading, ""), " ", "-"))
		}
	}
	return out
}
