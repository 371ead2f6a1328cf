// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// module writes a module of one package, and returns its directory.
func module(t *testing.T, code, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.com/calc\n\ngo 1.26.0\n",
		"calc.go":      "package calc\n\n" + code,
		"calc_test.go": "package calc\n\nimport \"testing\"\n\n" + test,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// leavesNothing gives the test a temporary directory that must be empty in the end.
func leavesNothing(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Empty(t, left)
	})
}

// TestRun tries a function whose boundary no test looks at, and whose loop does not
// end with one of the mutants.
func TestRun(t *testing.T) {
	leavesNothing(t)
	dir := module(t, `func large(n int) bool { return n > 3 }

func count(n int) int {
	i := n - n
	for i < n {
		i++
	}
	return i
}
`, `func TestAll(t *testing.T) {
	if large(1) || !large(5) || count(3) != 3 {
		t.Fail()
	}
}
`)
	var stdout, stderr bytes.Buffer
	o := options{dir: dir, targets: []string{"calc.go"}, also: ".", first: "None", least: 90, parallel: 2, timeout: time.Second / 2}
	err := run(t.Context(), o, &stdout, &stderr)
	require.ErrorIs(t, err, errSurvivors, stderr.String())
	assert.Equal(t, `  mutants  killed  survived  percent  file
        8       6         2     75.0  calc.go
calc.go:3:33: n > 3 → n >= 3
calc.go:3:37: 3 → 3+1
`, stdout.String())
	assert.Contains(t, stderr.String(), "timed out", stderr.String())
}

// canceller is a log that ends the run when a text is written to it.
type canceller struct {
	text   string
	cancel context.CancelCauseFunc
}

func (c canceller) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		time.AfterFunc(200*time.Millisecond, func() { c.cancel(assert.AnError) })
	}
	return len(p), nil
}

// TestRunStops ends a run in the middle of a test that would never end.
func TestRunStops(t *testing.T) {
	leavesNothing(t)
	dir := module(t, `func wait(n int) {
	for n > 0 {
	}
}
`, "func TestWait(t *testing.T) { wait(0) }\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := options{dir: dir, targets: []string{"calc.go"}, parallel: 1, timeout: time.Minute, verbose: true}
	err := run(ctx, o, io.Discard, canceller{"pass in", cancel})
	assert.ErrorIs(t, err, assert.AnError)
}

// TestRunRefuses holds what ends a run before it has begun.
func TestRunRefuses(t *testing.T) {
	leavesNothing(t)
	dir := module(t, "func one() int { return 1 }\n", "func TestOne(t *testing.T) { t.Log(one()); t.Fail() }\n")
	for target, want := range map[string]string{
		"calc.go":      "without a mutant the tests of example.com/calc fail",
		"none.go":      "none.go: no package has it",
		"calc_test.go": "calc_test.go: no package has it",
		"./none":       "go: exit status 1",
	} {
		o := options{dir: dir, targets: []string{target}, parallel: 1, timeout: time.Minute}
		assert.ErrorContains(t, run(t.Context(), o, io.Discard, io.Discard), want)
	}
	assert.ErrorContains(t, parse([]string{"-p", "0", "calc.go"}, io.Discard, nil), "-p of at least 1")
	assert.ErrorContains(t, parse(nil, io.Discard, nil), "a file or package")
}

// TestMutants lists the mutants of every kind of code. That the instrumented text
// is sound is checked by its types.
func TestMutants(t *testing.T) {
	leavesNothing(t)
	rows := []struct {
		name, code string
		dropped    int
		want       []string
	}{
		{"comparisons", "func f(a, b int) bool { return a <= b }", 0, []string{"a <= b → a < b", "a <= b → a > b"}},
		{"equality with nil", "func f(a error) bool { return a == nil }", 0, []string{"a == nil → a != nil"}},
		{"and", "func f(a, b, c bool) bool { return a && (b || c) }", 0, []string{"a && (b || c) → !(a && (b || c))", "a && (b || c) → a || (b || c)", "b || c → b && c"}},
		{"or", "func f(a, b, c bool) bool { return a || b || c }", 0, []string{
			"a || b || c → !(a || b || c)", "a || b || c → (a || b) && c", "a || b → a && b",
		}},
		{"not", "func f(a bool) bool { return !a }", 0, []string{"!a → a"}},
		{"returned booleans", "func f(a func() bool, b bool) (bool, bool, bool) { return a(), b, true }", 0, []string{"a() → !a()", "b → !b", "true → false"}},
		{"named booleans are not bool", "type no bool\n\nfunc f(a no) no { return a }", 0, nil},
		{"arithmetic", "func f(a, b float64) float64 { return 2*a - b }", 0, []string{"2*a - b → 2*a + b", "2*a → 2 / a", "2 → 2+1"}},
		{"strings are no numbers", "func f(a string) string { return a + a }", 0, nil},
		{"assignment", "func f(a *int) {\n\t*a = *a\n\t*a += *a\n\t*a--\n\t_ = a\n}", 0, []string{
			"*a = *a → (deleted)", "*a += *a → *a -= *a", "*a += *a → (deleted)", "*a-- → *a++", "*a-- → (deleted)",
		}},
		{"loops", "func f(a int) {\n\tfor ; a > a; a++ {\n\t}\n}", 0, []string{"a > a → a >= a", "a > a → a <= a", "a++ → a--"}},
		{"calls", "func f(a func()) {\n\ta()\n\tdefer a()\n\tpanic(a)\n}", 0, []string{"a() → (deleted)", "defer a() → (deleted)"}},
		{"conditions", "func f(a func(), b bool) {\n\tif b {\n\t\ta()\n\t}\n\tif b {\n\t\ta()\n\t\treturn\n\t}\n}", 0, []string{
			"b → true", "b → false", "b → true", "b → false", "a() → (deleted)", "return → (deleted)",
		}},
		{"returns that must stay", "func f(b bool) int {\n\tif b {\n\t\treturn f(b)\n\t} else {\n\t\tf(b)\n\t\treturn f(b)\n\t}\n}", 0, []string{
			"b → true", "b → false", "f(b) → (deleted)",
		}},
		{"cases", "func f(a, b bool) {\n\tswitch {\n\tcase a, b:\n\t}\n\tswitch a {\n\tcase b:\n\t}\n}", 0, []string{"a → false", "b → false"}},
		{"recover", "func f() {\n\tif recover() != nil {\n\t}\n}", 0, nil},
		{"constants", "const a, b = 1 + 1, 2 < 1\n\nvar c = [3]int{2: 4 * a}\n\ntype d [5]int\n\nfunc f() bool { return b && a < 3 }", 0, nil},
		{"numbers of a type", "import \"time\"\n\nfunc f(a time.Duration, b []int) []int { return b[a/7:] }", 0, []string{"a/7 → a * 7", "7 → 7+1"}},
		{"dropped where they do not compile", "func f(a int) int {\n\tfor bool := 5 * a; bool < a; bool++ {\n\t}\n\treturn a\n}", 2, []string{
			"5 * a → 5 / a", "5 → 5+1", "bool++ → bool--",
		}},
	}
	dir := module(t, "", "")
	for i, row := range rows {
		path := filepath.Join(dir, fmt.Sprintf("row%02d", i), "row.go")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("package row\n\n"+row.code), 0o600))
	}
	b := &bench{options: options{dir: dir, targets: []string{"./row..."}}, temp: t.TempDir()}
	packages, err := load(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, packages, len(rows))
	for _, p := range packages {
		var i int
		_, err := fmt.Sscanf(filepath.Base(p.Dir), "row%d", &i)
		require.NoError(t, err)
		p.find(0)
		dropped, err := p.instrument()
		require.NoError(t, err, rows[i].name)
		assert.Equal(t, rows[i].dropped, dropped, rows[i].name)
		var got []string
		for _, m := range p.mutants() {
			_, change, _ := strings.Cut(m.String(), " ")
			got = append(got, change)
		}
		assert.Equal(t, rows[i].want, got, rows[i].name)
	}
}
