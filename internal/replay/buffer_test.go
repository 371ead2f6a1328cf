// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRead reads buffers of every length around the edges of the pieces, that grow
// while they are read.
func TestRead(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, firstPiece - 1, firstPiece, firstPiece + 1, firstPiece + piece, firstPiece + piece + 1, 3 * piece} {
		for _, step := range []int{1, 7, 64, 3 * piece} {
			b := New(&Allowance{Memory: math.MaxInt64, Account: NewAccount(math.MaxInt64)})
			var r Reader
			read := 0
			for from := 0; from <= length; from += step {
				for i := range min(step, length-from) {
					require.True(t, b.Reserve(1))
					b.Append(from + i)
				}
				for n := r.Fill(b); n > 0; n = r.Fill(b) {
					assert.Equal(t, n, r.Fill(b), "nothing has changed")
					m, err := r.Next()
					require.NoError(t, err)
					require.Equal(t, read, m)
					read++
				}
			}
			assert.Equal(t, length, read)
			assert.Equal(t, length, b.Len())
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	account := NewAccount(100)
	first, second := New(&Allowance{Memory: 60, Account: account}), New(&Allowance{Memory: 60, Account: account})
	assert.True(t, first.Reserve(60))
	assert.False(t, first.Reserve(1), "its own bound")
	assert.False(t, second.Reserve(41), "the bound of all")
	assert.True(t, second.Reserve(40))
	assert.EqualValues(t, 100, account.Used())
	first.Free()
	first.Free()
	assert.EqualValues(t, 40, account.Used())
	assert.False(t, first.Reserve(1), "nothing fits what was freed")
	assert.Zero(t, first.Used())
	assert.True(t, second.Reserve(20))
	second.Free()
	assert.Zero(t, account.Used())

	for _, limit := range []int64{0, -1, math.MinInt64} {
		assert.False(t, New(&Allowance{Memory: limit, Account: account}).Reserve(1), "limit %d", limit)
	}
	huge := New(&Allowance{Memory: math.MaxInt64, Account: NewAccount(math.MaxInt64)})
	assert.True(t, huge.Reserve(math.MaxInt64))
	assert.False(t, huge.Reserve(1))
}

// TestAccountIsShared reserves and frees from many goroutines: the account must
// never exceed its limit, and be empty in the end.
func TestAccountIsShared(t *testing.T) {
	t.Parallel()
	account := NewAccount(1000)
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 1000 {
				b := New(&Allowance{Memory: 300, Account: account})
				for b.Reserve(50) {
					b.Append(nil)
				}
				b.Free()
			}
		})
	}
	users.Wait()
	assert.Zero(t, account.Used())
}

func BenchmarkAppend(b *testing.B) {
	account := NewAccount(math.MaxInt64)
	b.ReportAllocs()
	for b.Loop() {
		buffer := New(&Allowance{Memory: math.MaxInt64, Account: account})
		for range 10_000 {
			buffer.Reserve(24)
			buffer.Append(nil)
		}
		buffer.Free()
	}
}
