// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// mutant is one change of a source file.
type mutant struct {
	// line is where the change begins, from 1.
	line int
	// from and to are the changed text. begin and end are the byte offsets of from.
	from, to   string
	begin, end int
}

// String returns the change in one line, without its place.
func (m mutant) String() string {
	return fmt.Sprintf("%s  =>  %s", oneLine(m.from), oneLine(m.to))
}

const maxShown = 100

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxShown {
		text = text[:maxShown] + "..."
	}
	return text
}

// apply returns the source with the change.
func (m mutant) apply(source []byte) []byte {
	changed := append([]byte{}, source[:m.begin]...)
	changed = append(changed, m.to...)
	return append(changed, source[m.end:]...)
}

// mutants returns the changes of a source file: a condition is negated, a part of it
// left out, a bound moved by one, a sum made a difference, an error dropped, and a
// statement left out.
func mutants(source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	c := collector{source: source, files: files}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			c.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				c.condition(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						c.condition(e)
					}
				}
			}
		case *ast.BinaryExpr:
			c.binary(n)
		case *ast.ReturnStmt:
			c.dropError(n)
		case *ast.BlockStmt:
			c.statements(n.List)
		case *ast.CaseClause:
			c.statements(n.Body)
		case *ast.CommClause:
			c.statements(n.Body)
		}
		return true
	})
	return c.found, nil
}

type collector struct {
	source []byte
	files  *token.FileSet
	found  []mutant
}

func (c *collector) text(n ast.Node) string {
	return string(c.source[c.files.Position(n.Pos()).Offset:c.files.Position(n.End()).Offset])
}

func (c *collector) replace(n ast.Node, to string) {
	begin, end := c.files.Position(n.Pos()), c.files.Position(n.End())
	c.found = append(c.found, mutant{
		line: begin.Line, from: c.text(n), to: to, begin: begin.Offset, end: end.Offset,
	})
}

func (c *collector) condition(e ast.Expr) { c.replace(e, "!("+c.text(e)+")") }

func (c *collector) binary(e *ast.BinaryExpr) {
	left, right := c.text(e.X), c.text(e.Y)
	others := map[token.Token]string{
		token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.ADD: "-", token.SUB: "+",
	}
	switch other, known := others[e.Op]; {
	case e.Op == token.LAND || e.Op == token.LOR:
		c.replace(e, left)
		c.replace(e, right)
	case known:
		c.replace(e, left+" "+other+" "+right)
	}
}

// dropError replaces a returned error by nil. An error is a last result that is named
// err or made by a function of errors or fmt.
func (c *collector) dropError(r *ast.ReturnStmt) {
	if len(r.Results) == 0 {
		return
	}
	last := r.Results[len(r.Results)-1]
	text := c.text(last)
	if text == "err" || strings.HasPrefix(text, "errors.") || strings.HasPrefix(text, "fmt.Errorf(") {
		c.replace(last, "nil")
	}
}

// statements leaves out each call and each assignment to an existing variable.
func (c *collector) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
			c.replace(s, "{}")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				c.replace(s, "{}")
			}
		}
	}
}
