// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIdentities(t *testing.T) {
	t.Parallel()
	for _, ids := range []identities{{}, {1, math.MaxUint64 - 3}, {math.MaxUint64, math.MaxUint64}, newIdentities()} {
		seen := map[string]bool{}
		for number := range 10 {
			id := ids.of(number)
			assert.Len(t, id, 32)
			assert.False(t, seen[id])
			seen[id] = true
			got, ours := ids.number(id)
			assert.True(t, ours)
			assert.Equal(t, number, got)
		}
		for _, other := range []string{
			"", "x", strings.Repeat("x", 32), newIdentities().of(0), strings.ToUpper(ids.of(0)) + "0", ids.of(0) + " ", ids.of(-1),
			strings.Repeat("g", 16) + ids.of(0)[16:], "-" + ids.of(0)[1:], ids.of(0)[:16] + "+" + ids.of(0)[17:],
		} {
			_, ours := ids.number(other)
			assert.False(t, ours, other)
		}
	}
}

func TestOwed(t *testing.T) {
	t.Parallel()
	o := &owed{ids: newIdentities(), requests: map[int]*request{}}
	for number := range 3 {
		o.add(&request{number: number})
	}
	r, err := o.answered(o.ids.of(1))
	require.NoError(t, err)
	assert.Equal(t, 1, r.number)
	_, err = o.answered(o.ids.of(1))
	require.EqualError(t, err, "the gateway answered request 2 twice")
	for _, id := range []string{"", "x", o.ids.of(3), o.ids.of(-1)} {
		_, err = o.answered(id)
		require.ErrorContains(t, err, "the gateway answered a request that was not sent: the request_id is ")
	}
	n, first := o.left()
	assert.Equal(t, 2, n)
	assert.Zero(t, first.number)
}
