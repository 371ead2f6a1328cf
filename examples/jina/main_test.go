// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry/jina"
)

// killedTwice is what is said of a Post of some calls that lived through two deaths.
func killedTwice(doing string, calls int) string {
	return fmt.Sprintf(`(?m)^%s: %d calls, \d+ attempts, of which \d+ found nobody and \d+ arrived; the gateway was killed 2 times$`,
		doing, calls)
}

func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, ""), "%s", &out)
	text := out.String()
	assert.Contains(t, text, "200 text files\n")
	assert.Contains(t, text, "\"part 2/123.txt\" is empty\n"+
		"199 files were indexed, 1 are empty; 51 words were searched for, and found 3943 times\n")
	assert.Regexp(t, killedTwice("indexing", 1), text)
	assert.Contains(t, text, "and 3 arrived")
	assert.Regexp(t, killedTwice("searching", 26), text)
	assert.Equal(t, 10, strings.Count(text, "indexing: ")-1, "lines of progress:\n%s", text)
	assert.Contains(t, text, "\nindexing: 200 of 200, the gateway was killed 2 times\n")
	assert.Contains(t, text, "\nsearching: 51 of 51, the gateway was killed 4 times\n")
	assert.NotContains(t, text, "\r")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// write writes a file of a folder.
func write(tb testing.TB, dir, name, text string) {
	tb.Helper()
	require.NoError(tb, writeFile(filepath.Join(dir, name), text))
}

func TestRunFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for number := range 10 {
		write(t, dir, fmt.Sprintf("%d.txt", number), strings.Repeat("Hello, hello WORLD. ", number+1))
	}
	write(t, dir, "empty", "")
	write(t, dir, "nothing", " \n")
	write(t, dir, "sub/folder/été.txt", "world übermäßig 42")
	write(t, dir, "latin1", "\xe9t\xe9")
	write(t, dir, "binary", "a\x00b")
	write(t, dir, "large", strings.Repeat("a", maxFile+1))
	require.NoError(t, os.Symlink("0.txt", filepath.Join(dir, "link")))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, dir), "%s", &out)
	assert.Regexp(t, `^skipping "binary": it is not a text in UTF-8
skipping "large": it has more than 1048576 bytes
skipping "latin1": it is not a text in UTF-8
skipping "link": it is not a regular file
13 text files
(indexing: .*\n)*(searching: .*\n)*"empty" is empty
12 files were indexed, 1 are empty; 5 words were searched for, and found 168 times
indexing: 1 calls, \d+ attempts, of which \d+ found nobody and 3 arrived; the gateway was killed 2 times
searching: 3 calls, 3 attempts, of which 0 found nobody and 3 arrived; the gateway was killed 0 times
$`, out.String())
}

func TestRunUnreadable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	write(t, dir, "a", "word")
	write(t, dir, "secret", "word")
	write(t, dir, "secrets/b", "word")
	require.NoError(t, os.Chmod(filepath.Join(dir, "secret"), 0))
	require.NoError(t, os.Chmod(filepath.Join(dir, "secrets"), 0))
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(dir, "secrets"), 0o700) //nolint:gosec // a folder, which is to be removed
	})
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, dir), "%s", &out)
	assert.Contains(t, out.String(), `skipping "secret": `)
	assert.Contains(t, out.String(), `skipping "secrets": `)
	assert.Contains(t, out.String(), "\n1 text files\n")
	assert.Contains(t, out.String(), "\n1 files were indexed, 0 are empty; 2 words were searched for, and found 1 times\n")
}

func TestRunSmallFolders(t *testing.T) {
	t.Parallel()
	for files := range 7 {
		dir := t.TempDir()
		for number := range files {
			write(t, dir, fmt.Sprint(number), "word")
		}
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, dir), "%s", &out)
		assert.Contains(t, out.String(), fmt.Sprintf("\n%d files were indexed, 0 are empty; %d words were searched for, "+
			"and found %d times\nindexing: %d calls, ", files, min(files, 1)+1, files, min(files, 1)))
	}
}

func TestRunRefuses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	large := t.TempDir()
	for number := range maxFolder/maxFile + 1 {
		write(t, large, fmt.Sprint(number), strings.Repeat("a", maxFile))
	}
	assert.ErrorContains(t, run(t.Context(), io.Discard, file), "cannot open the folder: ")
	assert.ErrorContains(t, run(t.Context(), io.Discard, filepath.Join(file, "missing")), "cannot open the folder: ")
	assert.EqualError(t, run(t.Context(), io.Discard, large), "cannot list the folder: it has more than 16777216 bytes of text")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, run(ctx, io.Discard, ""), context.Canceled)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestFolderChanges shows that a file that goes while it is awaited ends the Post.
func TestFolderChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a", "word")
	write(t, dir, "b", "word")
	files, err := openFolder(dir, io.Discard)
	require.NoError(t, err)
	defer files.close()
	require.NoError(t, os.Remove(filepath.Join(dir, "b")))
	gateway, err := startGateway(newIndex(), func() {})
	require.NoError(t, err)
	defer gateway.close()
	client, err := dial(gateway, io.Discard)
	require.NoError(t, err)
	defer client.close()
	_, err = client.index(t.Context(), files)
	assert.ErrorIs(t, err, jina.ErrBadClientInput)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, `cannot read "b": `)
}

func TestProgressOnTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true, doing: "indexing"}
	p.show(jina.Progress{Requests: 1, Documents: 1, Total: 10}, 0)
	p.show(jina.Progress{Requests: 2, Documents: 10, Total: 10}, 1)
	p.end()
	p.end()
	assert.Equal(t, "\rindexing:  1 of 10, the gateway was killed 0 times\rindexing: 10 of 10, the gateway was killed 1 times\n", out.String())
}

// TestPutAgain shows that nothing is left of what a file was.
func TestPutAgain(t *testing.T) {
	t.Parallel()
	x := newIndex()
	for range 2 {
		x.put("a", "two one two")
	}
	assert.Equal(t, map[string]int{"a": 2}, x.find("two"))
	x.put("a", "one")
	assert.Empty(t, x.find("two"))
	assert.Equal(t, map[string]map[string]int{"a": {"one": 1}}, x.all())
}

// TestChecksFail shows that each check can.
func TestChecksFail(t *testing.T) {
	t.Parallel()
	t.Run("index", func(t *testing.T) {
		t.Parallel()
		files := truth{"a": {"word": 2}, "empty": nil}
		for text, spoil := range map[string]func(x *indexed, index map[string]map[string]int){
			"":                                  func(*indexed, map[string]map[string]int) {},
			"1 documents were drawn of 2 files": func(x *indexed, _ map[string]map[string]int) { x.drawn = 1 },
			`"a" was answered 2 times`:          func(x *indexed, _ map[string]map[string]int) { x.answered["a"] = 2 },
			`"a" is empty: false, and the indexer says true`:     func(x *indexed, _ map[string]map[string]int) { x.empty = append(x.empty, "a") },
			`"a" is empty: false, and in the index: false`:       func(_ *indexed, index map[string]map[string]int) { delete(index, "a") },
			`"empty" is empty: true, and the indexer says false`: func(x *indexed, _ map[string]map[string]int) { x.empty = nil },
			`"empty" is empty: true, and in the index: true`:     func(_ *indexed, index map[string]map[string]int) { index["empty"] = nil },
			`the index has other words of "a" than the file`:     func(_ *indexed, index map[string]map[string]int) { index["a"] = map[string]int{"word": 1} },
			"1 files were indexed that there are not":            func(_ *indexed, index map[string]map[string]int) { index["b"] = nil },
			"2 files were indexed that there are not":            func(x *indexed, _ map[string]map[string]int) { x.answered["b"], x.answered["c"] = 1, 1 },
		} {
			x := &indexed{drawn: 2, answered: map[string]int{"a": 1, "empty": 1}, empty: []string{"empty"}}
			index := map[string]map[string]int{"a": {"word": 2}}
			spoil(x, index)
			if err := x.check(files, index); text == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, text)
			}
		}
	})
	t.Run("search", func(t *testing.T) {
		t.Parallel()
		files := truth{"a": {"word": 2}}
		f := &found{queries: []string{"word", absent}, results: map[string]map[string]int{"word": {"a": 2}, absent: {}}}
		assert.NoError(t, f.check(files))
		f.results["more"] = nil
		assert.EqualError(t, f.check(files), "3 words have results, of 2")
		delete(f.results, "more")
		f.results["word"]["a"] = 1
		assert.EqualError(t, f.check(files), `the result of "word" is map[a:1], not map[a:2]`)
		delete(f.results, absent)
		assert.ErrorContains(t, f.check(files), `the result of "no-word" is map[], not map[]`)
	})
	t.Run("calls", func(t *testing.T) {
		t.Parallel()
		good := calls{ended: 1, attempts: 5, seen: seen{doomed: 2, kills: 2, missed: 2, arrived: 3}}
		require.NoError(t, good.check("indexing", 1))
		require.NoError(t, (&indexed{calls: good}).checkStream())
		for text, spoil := range map[string]func(c *calls){
			"2 calls ended, not 1":                                func(c *calls) { c.ended = 2 },
			"1 trailers do not say how many attempts there were":  func(c *calls) { c.add(metadata.MD{}) },
			"the gateway was killed 1 times, not 2":               func(c *calls) { c.kills = 1 },
			"1 attempts found nobody, after 2 deaths":             func(c *calls) { c.missed = 1 },
			"of 5 attempts 2 found nobody, but 4 arrived":         func(c *calls) { c.arrived = 4 },
			"of 5 attempts 2 found nobody, but 0 arrived":         func(c *calls) { c.arrived = 0 },
			"1 calls made 2 attempts, though there were 2 deaths": func(c *calls) { c.attempts = 2 },
		} {
			bad := good
			spoil(&bad)
			assert.ErrorContains(t, bad.check("indexing", 1), "indexing: "+text)
		}
		good.arrived = 4
		assert.ErrorContains(t, (&indexed{calls: good}).checkStream(), "4 attempts arrived, not 3, one behind each death")
	})
}
