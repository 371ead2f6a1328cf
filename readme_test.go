// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadmeSnippets holds that every Go snippet of the README stands, line by
// line, in the examples, which are compiled and run.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	indentation := regexp.MustCompile(`(?m)^\t+`)
	flat := indentation.ReplaceAllString(string(examples), "")
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, snippets)
	for _, snippet := range snippets {
		want := strings.TrimSpace(indentation.ReplaceAllString(snippet[1], ""))
		assert.Contains(t, flat, want)
	}
}
