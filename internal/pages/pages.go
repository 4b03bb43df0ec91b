// SPDX-License-Identifier: Apache-2.0

// Package pages reads the repository's Markdown pages for the tests that keep them
// true: their headings, links, blocks of text, and the commands in them. Each program
// of a command has its test where the program's own code is: this package (make, go),
// cmd (this project's programs), test/chart (helm) and test/kubernetes (kubectl).
package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// Page is a Markdown page.
type Page struct {
	Path string // in the repository
	// Titles are the headings of the first level.
	Titles []string
	// Intro is the paragraph right after the page's first heading, if there is one.
	Intro  string
	Links  []string
	Blocks []Block
	Codes  []Block // code inside of sentences
}

// Block is a block of text that is shown as it is, or code inside of a sentence.
type Block struct {
	Page string
	Line int
	// Language follows the fence: yaml, json, sh, console. It is Commands for a block
	// that is indented and has no fence.
	Language string
	// Mark is the text of the HTML comment right before the block, which a reader does
	// not see.
	Mark string
	Text string
}

// Commands is the language of an indented block.
const Commands = "commands"

// At returns the place of the block, for messages.
func (b Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

var comment = regexp.MustCompile(`^<!--\s*(.*?)\s*-->\s*$`)

// Read returns the pages of the repository at root. The changelog is not among them,
// because it has the commands of earlier versions.
func Read(root string) ([]Page, error) {
	var pages []Page
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"_output", "bin", ".git", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" || d.Name() == "CHANGELOG.md" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		page, err := parse(name, data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		pages = append(pages, page)
		return nil
	})
	return pages, err
}

func parse(path string, source []byte) (Page, error) {
	page := Page{Path: path}
	at := func(language, mark, content string, start int) Block {
		return Block{Page: path, Line: 1 + strings.Count(string(source[:start]), "\n"), Language: language, Mark: mark, Text: content}
	}
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	err := ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level != 1 {
				break
			}
			page.Titles = append(page.Titles, string(n.Lines().Value(source)))
			if p, is := n.NextSibling().(*ast.Paragraph); is && len(page.Titles) == 1 {
				page.Intro = string(p.Lines().Value(source))
			}
		case *ast.Link:
			page.Links = append(page.Links, string(n.Destination))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if n.Lines().Len() == 0 {
				break
			}
			language := Commands
			if fenced, is := n.(*ast.FencedCodeBlock); is {
				language = string(fenced.Language(source))
			}
			page.Blocks = append(page.Blocks, at(language, mark(n, source), string(n.Lines().Value(source)), n.Lines().At(0).Start))
		case *ast.CodeSpan:
			var content strings.Builder
			start := 0
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				piece, is := c.(*ast.Text)
				if !is {
					return ast.WalkStop, fmt.Errorf("code in a sentence has a %s", c.Kind())
				}
				if c == n.FirstChild() {
					start = piece.Segment.Start
				}
				content.Write(piece.Segment.Value(source))
			}
			page.Codes = append(page.Codes, at("", "", strings.Join(strings.Fields(content.String()), " "), start))
		}
		return ast.WalkContinue, nil
	})
	return page, err
}

// mark returns the text of the comment right before the block.
func mark(n ast.Node, source []byte) string {
	before, is := n.PreviousSibling().(*ast.HTMLBlock)
	if !is || n.HasBlankPreviousLines() {
		return ""
	}
	lines := string(before.Lines().Value(source))
	if m := comment.FindStringSubmatch(lines); m != nil {
		return m[1]
	}
	return ""
}
