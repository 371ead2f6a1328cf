// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	t.Parallel()
	for events, text := range map[int64]string{
		1:    "1 events came, each once and in order; 1 attempts, the server was killed 0 times\n",
		7:    "7 events came, each once and in order; 4 attempts, the server was killed 3 times\n",
		1005: "1005 events came, each once and in order; 6 attempts, the server was killed 5 times\n",
	} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, events))
		assert.Equal(t, text, out.String())
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	assert.EqualError(t, run(t.Context(), &out, 0), "cannot watch 0 events; it must be at least 1")
	assert.Empty(t, out.String())
}
