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
	// file is the file's path below the modules, function the name of the changed
	// function, and again the number of equal changes before this one in the function.
	file, function string
	again          int
	// line is where the change begins, from 1.
	line int
	// from and to are the changed text. begin and end are the byte offsets of from.
	from, to   string
	begin, end int
	// choice makes the change a choice of the running test.
	choice edit
}

// name identifies the change in the list of changes without an effect. It has no line
// number, because lines move.
func (m mutant) name() string {
	name := fmt.Sprintf("%s %s: %s", m.file, m.function, m)
	if m.again > 0 {
		name += fmt.Sprintf(" (%d)", m.again+1)
	}
	return name
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
// statement left out. Constants and logs stay.
func mutants(name string, source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	c := collector{file: name, source: source, files: files, seen: make(map[string]int)}
	for _, decl := range file.Decls {
		c.function = "package"
		if f, is := decl.(*ast.FuncDecl); is {
			c.function = functionName(f)
		}
		ast.Inspect(decl, c.visit)
	}
	return c.found, nil
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

type collector struct {
	file, function string
	source         []byte
	files          *token.FileSet
	seen           map[string]int
	found          []mutant
}

func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
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
}

func (c *collector) offset(p token.Pos) int { return c.files.Position(p).Offset }

func (c *collector) text(n ast.Node) string {
	return string(c.source[c.offset(n.Pos()):c.offset(n.End())])
}

// replace adds the change of n. The choice of it goes around where.
func (c *collector) replace(n ast.Node, to string, where ast.Node, choice edit) {
	choice.begin, choice.end = c.offset(where.Pos()), c.offset(where.End())
	m := mutant{
		file: c.file, function: c.function, line: c.files.Position(n.Pos()).Line,
		from: c.text(n), to: to, begin: c.offset(n.Pos()), end: c.offset(n.End()), choice: choice,
	}
	equal := m.name()
	m.again = c.seen[equal]
	c.seen[equal]++
	c.found = append(c.found, m)
}

func (c *collector) condition(e ast.Expr) {
	c.replace(e, "!("+c.text(e)+")", e, edit{before: "(mutantOn(%d) != (", after: "))"})
}

func (c *collector) binary(e *ast.BinaryExpr) {
	left, right := c.text(e.X), c.text(e.Y)
	switch e.Op {
	case token.LAND:
		leave := edit{before: "(mutantOn(%d) || (", after: "))"}
		c.replace(e, left, e.Y, leave)
		c.replace(e, right, e.X, leave)
		return
	case token.LOR:
		leave := edit{before: "(!mutantOn(%d) && (", after: "))"}
		c.replace(e, left, e.Y, leave)
		c.replace(e, right, e.X, leave)
		return
	}
	other, known := map[token.Token][2]string{
		token.LSS: {"<=", "mutantLess"}, token.LEQ: {"<", "mutantLessOrEqual"},
		token.GTR: {">=", "mutantGreater"}, token.GEQ: {">", "mutantGreaterOrEqual"},
		token.ADD: {"-", "mutantAdd"}, token.SUB: {"+", "mutantSubtract"},
	}[e.Op]
	if known {
		operator := c.offset(e.OpPos)
		c.replace(e, left+" "+other[0]+" "+right, e, edit{
			before: other[1] + "(%d, ", after: ")", comma: operator, operator: len(e.Op.String()),
		})
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
		c.replace(last, "nil", last, edit{before: "mutantNil(%d, ", after: ")"})
	}
}

// logCall begins a statement that only logs. Such a statement stays: tests look at the
// logs that operators act on, and not at each line.
const logCall = "logs.From("

// statements leaves out each call, unless the call only logs, and each assignment to an
// existing variable.
func (c *collector) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if !strings.HasPrefix(c.text(s), logCall) {
				c.leaveOut(s)
			}
		case *ast.IncDecStmt, *ast.DeferStmt:
			c.leaveOut(s)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				c.leaveOut(s)
			}
		}
	}
}

func (c *collector) leaveOut(s ast.Stmt) {
	c.replace(s, "{}", s, edit{before: "if !mutantOn(%d) { ", after: " }"})
}
