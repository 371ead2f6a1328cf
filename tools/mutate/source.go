// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what go list says of a package.
type listed struct {
	Dir        string
	ImportPath string
	Name       string
	Export     string
	GoFiles    []string
}

// source is one file of a package.
type source struct {
	path  string // absolute
	name  string // as the report shows it
	text  []byte
	tree  *ast.File
	sites []*site // nil if the file is not to be mutated
	// instrumented is the text with its sites.
	instrumented []byte
	mutate       bool
}

// pack is a package with files to mutate.
type pack struct {
	listed

	fset     *token.FileSet
	importer types.Importer
	info     *types.Info
	types    *types.Package
	sources  []*source
}

// load finds the packages of the targets and reads them.
func load(ctx context.Context, b *bench) ([]*pack, error) {
	wanted := map[string]bool{}
	var patterns, dirs []string
	for _, target := range b.targets {
		if strings.HasSuffix(target, ".go") {
			path, err := filepath.Abs(filepath.Join(b.dir, target))
			if err != nil {
				return nil, fmt.Errorf("file %s: %w", target, err)
			}
			wanted[path] = true
			dirs = append(dirs, filepath.Dir(path))
			continue
		}
		patterns = append(patterns, target)
	}
	if len(patterns) > 0 {
		whole, err := b.list(ctx, patterns...)
		if err != nil {
			return nil, err
		}
		for _, l := range whole {
			dirs = append(dirs, l.Dir)
			for _, name := range l.GoFiles {
				wanted[filepath.Join(l.Dir, name)] = true
			}
		}
	}
	// The packages that the helper file imports are among those to know.
	all, err := b.list(ctx, append([]string{"-deps", "-export", "os", "strconv", "syscall"}, dirs...)...)
	if err != nil {
		return nil, err
	}
	return read(b, all, wanted)
}

// read parses and checks the packages with wanted files.
func read(b *bench, all []listed, wanted map[string]bool) ([]*pack, error) {
	exports := map[string]string{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	var packages []*pack
	for _, l := range all {
		p := &pack{listed: l, fset: token.NewFileSet()}
		p.importer = importer.ForCompiler(p.fset, "gc", lookup)
		for _, name := range l.GoFiles {
			s := &source{path: filepath.Join(l.Dir, name)}
			s.name, s.mutate = b.relative(s.path), wanted[s.path]
			delete(wanted, s.path)
			p.sources = append(p.sources, s)
		}
		if !slices.ContainsFunc(p.sources, func(s *source) bool { return s.mutate }) {
			continue
		}
		if err := p.parse(); err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	for path := range wanted {
		return nil, fmt.Errorf("file %s: no package has it", path)
	}
	return packages, nil
}

// parse reads the files of the package and works out their types.
func (p *pack) parse() error {
	var trees []*ast.File
	for _, s := range p.sources {
		text, err := os.ReadFile(s.path)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		s.text = text
		if s.tree, err = parser.ParseFile(p.fset, s.path, text, parser.SkipObjectResolution); err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		trees = append(trees, s.tree)
	}
	p.info = &types.Info{
		Types:     map[ast.Expr]types.TypeAndValue{},
		Defs:      map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{},
	}
	checked, err := (&types.Config{Importer: p.importer}).Check(p.ImportPath, p.fset, trees, p.info)
	if err != nil {
		return fmt.Errorf("types: %w", err)
	}
	p.types = checked
	return nil
}

// mutants lists the mutants of all files.
func (p *pack) mutants() []*mutant {
	var list []*mutant
	for _, s := range p.sources {
		for _, site := range s.sites {
			list = append(list, site.mutants...)
		}
	}
	return list
}

// list runs go list.
func (b *bench) list(ctx context.Context, args ...string) ([]listed, error) {
	fields := "-json=Dir,ImportPath,Name,Export,GoFiles"
	out, err := b.output(b.command(ctx, b.dir, "go", append([]string{"list", fields}, args...)...))
	if err != nil {
		return nil, err
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) { //nolint:musttag // the names are go list's
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

// relative shortens a path for the report.
func (b *bench) relative(path string) string {
	dir, err := filepath.Abs(b.dir)
	if err != nil {
		return path
	}
	short, err := filepath.Rel(dir, path)
	if err != nil {
		return path
	}
	return short
}
