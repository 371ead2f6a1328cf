// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"go/ast"
	"go/token"
	"go/types"
)

const deleted = "(deleted)"

// simple adds the mutants of a simple statement: one without it, and one with the
// opposite operator.
func (f *finder) simple(n ast.Stmt, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.IncDecStmt:
		f.swap(n, n.X, n.Tok, nil, stack)
		f.remove(n, stack)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE || blank(n.Lhs) {
			return
		}
		f.swap(n, n.Lhs[0], n.Tok, n.Rhs, stack)
		f.remove(n, stack)
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		if !ok {
			return
		}
		// A function may end with a panic, but not with a panic under a condition.
		if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != "panic" {
			f.remove(n, stack)
		}
	case *ast.DeferStmt:
		f.remove(n, stack)
	}
}

// swap adds the opposite of an assignment by an operator.
func (f *finder) swap(n ast.Stmt, left ast.Expr, operator token.Token, right []ast.Expr, stack []ast.Node) {
	op, ok := opposites[operator]
	if !ok || !basic(f.pack.info.Types[left].Type, types.IsNumeric) {
		return
	}
	code := f.slice(left) + op.String()
	if len(right) > 0 {
		code = f.slice(left) + " " + op.String() + " " + f.slice(right[0])
	}
	loop, ok := stack[len(stack)-1].(*ast.ForStmt)
	switch {
	case ok && loop.Post == n:
		f.add(n, post, code, code)
	case inList(n, stack):
		f.add(n, statement, code, code)
	}
}

// remove adds a mutant without the statement.
func (f *finder) remove(n ast.Stmt, stack []ast.Node) {
	if !inList(n, stack) {
		return
	}
	block, inBlock := stack[len(stack)-1].(*ast.BlockStmt)
	var branch *ast.IfStmt
	if inBlock {
		branch, _ = stack[len(stack)-2].(*ast.IfStmt)
	}
	plain := branch != nil && branch.Else == nil
	if plain && len(block.List) == 1 {
		return // the condition that is forced to false is the same
	}
	// Elsewhere the end of a function might be left without its return.
	if _, ok := n.(*ast.ReturnStmt); ok && !plain {
		return
	}
	f.add(n, statement, deleted, "")
}

// inList tells whether a statement stands in a list of statements.
func inList(n ast.Stmt, stack []ast.Node) bool {
	switch parent := stack[len(stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != n
	}
	return false
}

// blank tells whether nothing is assigned to.
func blank(left []ast.Expr) bool {
	for _, e := range left {
		if name, ok := e.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}
