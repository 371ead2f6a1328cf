// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", 3*inMemory))
	wanted := regexp.MustCompile(`3145728 bytes arrived, sha256 [0-9a-f]+…; 3 attempts, the server was killed 2 times\n`)
	assert.Len(t, wanted.FindAllString(out.String(), -1), 2, "%s", &out)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestRunSmallFiles(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "x"} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, path, 0))
		assert.Contains(t, out.String(), "a reader that is read once: ")
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	missing := filepath.Join(t.TempDir(), "missing")
	assert.ErrorContains(t, run(t.Context(), &out, missing, 0), "cannot send the file: open "+missing)
	assert.ErrorContains(t, run(t.Context(), &out, t.TempDir(), 0), "cannot send the file: read ")
	assert.Empty(t, out.String())
}
