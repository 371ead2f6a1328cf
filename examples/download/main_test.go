// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, 4<<20))
	assert.Regexp(t, `^4194304 bytes arrived, sha256 [0-9a-f]+…; 4 attempts, the server was killed 3 times\n$`, out.String())
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestRunSmallContents(t *testing.T) {
	for size, text := range map[int64]string{
		0:         "0 bytes arrived, sha256 e3b0c44298fc1c14…; 1 attempts, the server was killed 0 times\n",
		1:         "1 bytes arrived, sha256 189f40034be7a199…; 4 attempts, the server was killed 3 times\n", // before it was sent
		chunkSize: "65536 bytes arrived, sha256 ",
	} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, size))
		assert.Contains(t, out.String(), text, "%d bytes", size)
	}
}

func TestCursors(t *testing.T) {
	one, other := newServer([]byte("one")), newServer([]byte("other"))
	for _, row := range []struct {
		cursor string
		offset int64
		code   codes.Code
	}{
		{"", 0, codes.OK},
		{one.cursor(2), 2, codes.OK},
		{one.cursor(3), 3, codes.OK},
		{one.cursor(4), 0, codes.InvalidArgument},
		{one.cursor(-1), 0, codes.InvalidArgument},
		{"?", 0, codes.InvalidArgument},
		{one.cursor(2) + "AAAA", 0, codes.InvalidArgument},
		{other.cursor(2), 0, codes.FailedPrecondition},
	} {
		offset, err := one.offset(row.cursor)
		assert.Equal(t, row.code, status.Code(err), "%q: %v", row.cursor, err)
		assert.Equal(t, row.offset, offset, "%q", row.cursor)
	}
}
