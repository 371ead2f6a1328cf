// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one change of the code.
type mutant struct {
	number int
	pack   *pack
	place  string // file:line:col
	before string
	after  string
	code   string // what stands in place of the site, where its form needs that
	killed bool
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s: %s → %s", m.place, m.before, m.after)
}

// form is how a site is written.
type form int

const (
	// condition is an expression of type bool, made lazy: its operands are
	// evaluated once and in order, whichever mutant is on.
	condition form = iota
	// statement is a simple statement in a list.
	statement
	// post is the statement after each round of a loop.
	post
	// arithmetic is a call in place of an operator.
	arithmetic
	// number is an integer literal.
	number
)

// site is a place in a file that mutants change.
type site struct {
	form       form
	start, end int // offsets in the text
	operator   int // offset, of an arithmetic site
	helper     string
	mutants    []*mutant
	// from and to are its offsets in the instrumented text.
	from, to int
}

// finder collects the sites of a file.
type finder struct {
	*source

	pack  *pack
	last  int // the last mutant's number
	sites map[ast.Node]*site
}

// find looks for the sites of all files, and returns how many mutants there are.
// Their numbers follow the one given.
func (p *pack) find(last int) int {
	first := last
	for _, s := range p.sources {
		if !s.mutate {
			continue
		}
		f := &finder{source: s, pack: p, last: last, sites: map[ast.Node]*site{}}
		ast.PreorderStack(s.tree, nil, f.visit)
		last = f.last
		for _, site := range f.sites {
			s.sites = append(s.sites, site)
		}
		slices.SortFunc(s.sites, func(a, b *site) int {
			if a.start != b.start {
				return a.start - b.start
			}
			return b.end - a.end
		})
	}
	return last - first
}

// visit adds the mutants of one node, and says whether to go below it.
func (f *finder) visit(n ast.Node, stack []ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR // constants, types and imports cannot depend on a mutant
	case *ast.ArrayType:
		return false
	case *ast.IfStmt:
		f.condition(n.Cond, "true")
		f.condition(n.Cond, "false")
	case *ast.CaseClause:
		if s, ok := stack[len(stack)-2].(*ast.SwitchStmt); ok && s.Tag == nil {
			for _, e := range n.List {
				f.condition(e, "false")
			}
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.condition(n, f.slice(n.X))
		}
	case *ast.BasicLit:
		f.literal(n, stack[len(stack)-1])
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			f.negate(e)
		}
		f.remove(n, stack)
	case ast.Stmt:
		f.simple(n, stack)
	}
	return true
}

// neighbours are the operators that a comparison is changed to.
var neighbours = map[token.Token][]token.Token{ //nolint:gochecknoglobals // never changed
	token.LSS: {token.LEQ, token.GEQ},
	token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ},
	token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ},
	token.NEQ: {token.EQL},
}

// opposites are what other operators are changed to.
var opposites = map[token.Token]token.Token{ //nolint:gochecknoglobals // never changed
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.MUL: token.QUO, token.QUO: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

func (f *finder) binary(n *ast.BinaryExpr) {
	for _, op := range neighbours[n.Op] {
		f.condition(n, f.slice(n.X)+" "+op.String()+" "+f.slice(n.Y))
	}
	if n.Op == token.LAND {
		f.condition(n, f.slice(n.X)+" || "+f.slice(n.Y))
	}
	if n.Op == token.LOR {
		f.condition(n, f.operand(n.X)+" && "+f.operand(n.Y))
	}
	op, ok := opposites[n.Op]
	t := f.pack.info.Types[n]
	if !ok || t.Value != nil || !basic(t.Type, types.IsNumeric) {
		return
	}
	s := f.add(n, arithmetic, f.slice(n.X)+" "+op.String()+" "+f.slice(n.Y), "")
	s.helper = helpers[n.Op]
	s.operator = f.offset(n.OpPos)
}

// operand is the text of an operand of "||", fit for "&&".
func (f *finder) operand(e ast.Expr) string {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == token.LOR {
		return "(" + f.slice(e) + ")"
	}
	return f.slice(e)
}

// condition adds a mutant of an expression of type bool.
func (f *finder) condition(e ast.Expr, after string) {
	t := f.pack.info.Types[e]
	_, basic := t.Type.(*types.Basic)
	// In a function literal, recover would do nothing.
	if t.Value != nil || !basic || strings.Contains(f.slice(e), "recover()") {
		return
	}
	f.add(e, condition, after, after)
}

// negate adds the opposite of a returned bool, unless its operator has it.
func (f *finder) negate(e ast.Expr) {
	t := f.pack.info.Types[e]
	if !basic(t.Type, types.IsBoolean) {
		return
	}
	switch e := e.(type) {
	case *ast.Ident:
		switch e.Name {
		case "true":
			f.add(e, condition, "false", "false")
		case "false":
			f.add(e, condition, "true", "true")
		default:
			f.condition(e, "!"+e.Name)
		}
	case *ast.UnaryExpr:
	case *ast.BinaryExpr:
		if neighbours[e.Op] == nil {
			f.condition(e, "!("+f.slice(e)+")")
		}
	default:
		f.condition(e, "!"+f.slice(e))
	}
}

// literal adds the next integer, where a variable could stand too.
func (f *finder) literal(n *ast.BasicLit, parent ast.Node) {
	if n.Kind != token.INT {
		return
	}
	switch p := parent.(type) {
	case *ast.KeyValueExpr:
		if p.Key == n {
			return
		}
	case ast.Expr:
		if f.pack.info.Types[p].Value != nil {
			return
		}
	}
	name, ok := f.typeName(f.pack.info.Types[n].Type)
	if !ok {
		return
	}
	f.add(n, number, n.Value+"+1", "").helper = "mutateNumber[" + name + "]"
}

// typeName returns a type as this file can write it; false if it cannot.
func (f *finder) typeName(t types.Type) (string, bool) {
	if !basic(t, types.IsNumeric) {
		return "", false
	}
	ok := true
	name := types.TypeString(t, func(p *types.Package) string {
		if p == f.pack.types {
			return ""
		}
		for _, spec := range f.tree.Imports {
			if name := f.pack.info.PkgNameOf(spec); name != nil && name.Imported() == p {
				return name.Name()
			}
		}
		ok = false
		return ""
	})
	return name, ok
}

// add adds a mutant of a node, at the site of the node's other mutants.
func (f *finder) add(n ast.Node, form form, after, code string) *site {
	s := f.sites[n]
	if s == nil {
		s = &site{form: form, start: f.offset(n.Pos()), end: f.offset(n.End())}
		f.sites[n] = s
	}
	f.last++
	at := f.pack.fset.Position(n.Pos())
	s.mutants = append(s.mutants, &mutant{
		number: f.last,
		pack:   f.pack,
		place:  fmt.Sprintf("%s:%d:%d", f.name, at.Line, at.Column),
		before: short(f.slice(n)),
		after:  short(after),
		code:   code,
	})
	return s
}

// slice returns the text of a node.
func (f *finder) slice(n ast.Node) string {
	return string(f.text[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) offset(p token.Pos) int { return f.pack.fset.Position(p).Offset }

// short fits code into a line of the report.
func short(code string) string {
	const most = 100
	runes := []rune(strings.Join(strings.Fields(code), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// basic tells whether a type is, beneath its name, one of certain basic types.
func basic(t types.Type, info types.BasicInfo) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&info != 0
}
