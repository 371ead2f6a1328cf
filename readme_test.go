// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadmeSnippets holds that every Go snippet of the README and of docs stands, line
// by line, in the examples, which are compiled and run.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	indentation := regexp.MustCompile(`(?m)^\t+`)
	flat := indentation.ReplaceAllString(all(t, "example*_test.go", "jina/example*_test.go", "lance/example*_test.go"), "")
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(all(t, "README.md", "docs/*.md"), -1)
	require.NotEmpty(t, snippets)
	for _, snippet := range snippets {
		want := strings.TrimSpace(indentation.ReplaceAllString(snippet[1], ""))
		assert.Contains(t, flat, want)
	}
}

// all returns the contents of all files that match.
func all(t *testing.T, patterns ...string) string {
	t.Helper()
	var content strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // one of this repository's
			require.NoError(t, err)
			content.Write(text)
		}
	}
	return content.String()
}
