// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

func TestRun(t *testing.T) {
	t.Parallel()
	for orders, text := range map[int]string{
		0:    "0 orders were executed and answered, each once; 1 attempts, the server was killed 0 times\n",
		100:  "100 orders were executed and answered, each once; 1 attempts, the server was killed 0 times\n",
		2001: "2001 orders were executed and answered, each once; 9 attempts, the server was killed 8 times\n",
	} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, orders))
		assert.Equal(t, text, out.String())
	}
}

// TestReceiptsRefuse shows that the checks of the answers can fail.
func TestReceiptsRefuse(t *testing.T) {
	t.Parallel()
	r := newReceipts(2)
	for _, row := range []struct {
		key     string
		receipt int64
		text    string
	}{
		{"order 1", 1, ""},
		{"order 1", 1, "order 1 was answered, and was not placed or has its answer"},
		{"order 2", 2, "order 2 was answered, and was not placed or has its answer"},
		{"order 0", 1, "order 0 got receipt 1, which another order has"},
		{"order 0", 3, "order 0 got receipt 3 of 2 orders"},
		{"order 0", 2, ""},
	} {
		err := r.add(&testv1.Response{Key: row.key, Count: row.receipt})
		if row.text == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, row.text)
		}
	}
	assert.Empty(t, r.missing)
}
