// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	t.Parallel()
	binary := make([]byte, 3_000_000)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(binary)
	for name, row := range map[string]struct {
		content []byte
		calls   string
	}{
		"text":           {bytes.Repeat([]byte("a line of text\n"), 800), "calls: 44, retried: 17, wrong: 0; 12000 bytes and 800 lines confirmed\n"},
		"empty":          {nil, "calls: 5, retried: 4, wrong: 0; 0 bytes and 0 lines confirmed\n"},
		"binary":         {binary, "wrong: 0; 3000000 bytes and "},
		"one long line":  {bytes.Repeat([]byte("x"), 5_000_000), "calls: 81, retried: 29, wrong: 0; 5000000 bytes and 0 lines confirmed\n"},
		"no end of line": {[]byte("one\ntwo"), "calls: 5, retried: 4, wrong: 0; 7 bytes and 1 lines confirmed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(path, row.content, 0o600))
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				require.NoError(t, run(t.Context(), &out, path), "%s", &out)
				assert.Contains(t, out.String(), row.calls)
			})
		})
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	missing := filepath.Join(t.TempDir(), "missing")
	assert.ErrorContains(t, run(t.Context(), &out, missing), "cannot send the file: open "+missing)
	assert.ErrorContains(t, run(t.Context(), &out, t.TempDir()), "is not a regular file")
	assert.Empty(t, out.String())
}

// TestReportFindsFaults shows that the checks of the report can fail.
func TestReportFindsFaults(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := newReport(&out)
	r.begin("unary 1")
	r.batch([]byte("a\n"), digest(1, []byte("b\n")), nil, nil)
	assert.ErrorContains(t, r.close(1), "1 of 1 calls went wrong")
	assert.Contains(t, out.String(), "the answer is wrong: ")
	assert.Contains(t, out.String(), ", but the trailer reports [] attempts")

	r = newReport(&out)
	r.begin("upload")
	r.attempts++
	assert.ErrorContains(t, r.close(2), "counted 1 attempts, 0 of them lost and 0 never sent, but 2 arrived")
}
