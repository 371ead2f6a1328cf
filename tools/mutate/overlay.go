// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
)

// variable is the environment variable that holds the number of the mutant.
const variable = "GRPCRETRY_MUTANT"

// helperFile is the file that is added to each package. The limit is for mutants
// that allocate without end.
const helperFile = `package %s

import (
	"os"
	"strconv"
	"syscall"
)

var mutateActive = func() int {
	_ = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 4 << 30, Max: 4 << 30})
	n, _ := strconv.Atoi(os.Getenv("` + variable + `"))
	return n
}()

type mutateNumeric interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64 | ~complex64 | ~complex128
}

func mutateNumber[T mutateNumeric](n int, a T) T {
	if mutateActive == n {
		return a + 1
	}
	return a
}
`

// helpers are the functions that stand for an operator.
var helpers = map[token.Token]string{ //nolint:gochecknoglobals // never changed
	token.ADD: "mutateAdd", token.SUB: "mutateSub", token.MUL: "mutateMul", token.QUO: "mutateQuo",
}

// helperText returns the file that is added to a package.
func helperText(name string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, helperFile, name)
	for op, helper := range helpers {
		fmt.Fprintf(&out, "\nfunc %s[T mutateNumeric](n int, a, b T) T {\n\tif mutateActive == n {\n\t\treturn a %v b\n\t}\n"+
			"\treturn a %v b\n}\n", helper, opposites[op], op)
	}
	return out.Bytes()
}

// instrument writes the sites into the files. Sites that do not compile are
// dropped; it returns how many mutants are lost with them.
func (p *pack) instrument() (int, error) {
	for dropped := 0; ; {
		for _, s := range p.sources {
			s.render()
		}
		bad, err := p.check()
		if err != nil {
			return 0, err
		}
		if len(bad) == 0 {
			return dropped, nil
		}
		for _, s := range p.sources {
			var good []*site
			for _, site := range s.sites {
				if bad[site] {
					dropped += len(site.mutants)
					continue
				}
				good = append(good, site)
			}
			s.sites = good
		}
	}
}

// render writes the instrumented text.
func (s *source) render() {
	var out bytes.Buffer
	rest := s.sites
	var copyTo func(at, end int)
	copyTo = func(at, end int) {
		for len(rest) > 0 && rest[0].start < end {
			site := rest[0]
			rest = rest[1:]
			out.Write(s.text[at:site.start])
			site.from = out.Len()
			prefix, suffix := site.wrap()
			out.WriteString(prefix)
			if site.form == arithmetic {
				copyTo(site.start, site.operator)
				out.WriteByte(',')
				copyTo(site.operator+1, site.end)
			} else {
				copyTo(site.start, site.end)
			}
			out.WriteString(suffix)
			site.to = out.Len()
			at = site.end
		}
		out.Write(s.text[at:end])
	}
	copyTo(0, len(s.text))
	s.instrumented = out.Bytes()
}

// wrap returns what stands before and after a site's own text. There is no new
// line in it, so that traces show the true ones.
func (s *site) wrap() (prefix, suffix string) {
	var cases strings.Builder
	for _, m := range s.mutants {
		if s.form == condition {
			fmt.Fprintf(&cases, "case %d: return %s; ", m.number, m.code)
		} else {
			fmt.Fprintf(&cases, "case %d: %s; ", m.number, m.code)
		}
	}
	switch s.form {
	case condition:
		return "func() bool { switch mutateActive { " + cases.String() + "}; return ", " }()"
	case statement:
		return "switch mutateActive { " + cases.String() + "default: ", " }"
	case post:
		return "func() { switch mutateActive { " + cases.String() + "default: ", " } }()"
	default:
		return fmt.Sprintf("%s(%d, ", s.helper, s.mutants[0].number), ")"
	}
}

// check works out the types of the instrumented files, and returns the sites that
// are in the way.
func (p *pack) check() (map[*site]bool, error) {
	bad := map[*site]bool{}
	var unknown []error
	fset := token.NewFileSet()
	files := map[string]*source{}
	helper, err := parser.ParseFile(fset, "helper", helperText(p.Name), 0)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	trees := []*ast.File{helper}
	for _, s := range p.sources {
		tree, err := parser.ParseFile(fset, s.path, s.instrumented, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse the instrumented file: %w", err)
		}
		trees = append(trees, tree)
		files[s.path] = s
	}
	config := &types.Config{Importer: p.importer, Error: func(err error) {
		if problem, ok := errors.AsType[types.Error](err); ok {
			at := fset.Position(problem.Pos)
			if site := files[at.Filename].siteAt(at.Offset); site != nil {
				bad[site] = true
				return
			}
		}
		unknown = append(unknown, err)
	}}
	_, _ = config.Check(p.ImportPath, fset, trees, nil) // its errors are in bad and unknown
	if len(bad) == 0 && len(unknown) > 0 {
		return nil, fmt.Errorf("types of the instrumented files: %w", errors.Join(unknown...))
	}
	return bad, nil
}

// siteAt returns the innermost site at an offset of the instrumented text.
func (s *source) siteAt(offset int) *site {
	var found *site
	if s == nil {
		return nil
	}
	for _, site := range s.sites {
		if site.from <= offset && offset < site.to {
			found = site // inner sites follow outer ones
		}
	}
	return found
}

// overlay writes the instrumented files, and the file that puts them in place.
func (b *bench) overlay(packages []*pack) (string, error) {
	replace := map[string]string{}
	write := func(path string, text []byte) error {
		copied := filepath.Join(b.temp, fmt.Sprintf("%d.go", len(replace)))
		replace[path] = copied
		return os.WriteFile(copied, text, 0o600)
	}
	for _, p := range packages {
		if err := write(filepath.Join(p.Dir, "mutate_helper.go"), helperText(p.Name)); err != nil {
			return "", fmt.Errorf("overlay: %w", err)
		}
		for _, s := range p.sources {
			if err := write(s.path, s.instrumented); err != nil {
				return "", fmt.Errorf("overlay: %w", err)
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	path := filepath.Join(b.temp, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	return path, nil
}
