// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queued is what a model of a queue knows of a message.
type queued struct {
	place int
	key   string
	size  int64
}

// TestQueue holds a queue against a model, through random walks: what is added, removed
// in any order, and read anew each time, while it changes.
func TestQueue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 0))
		account := NewAccount(math.MaxInt64)
		q := NewQueue(&Allowance{Memory: math.MaxInt64, Account: account})
		var model []queued
		place, read, used := 0, 0, int64(0) // read: the place behind what was read since the last Rewind
		for range 400 {
			switch random.IntN(10) {
			case 0:
				q.Rewind()
				read = 0
			case 1, 2:
				for range random.IntN(50) {
					rest := slices.DeleteFunc(slices.Clone(model), func(m queued) bool { return m.place < read })
					m, behind, ok := q.Read()
					require.Equal(t, len(rest) > 0, ok, "seed %d", seed)
					if !ok {
						break
					}
					require.Equal(t, rest[0].place, m, "seed %d", seed)
					require.Equal(t, rest[0].place+1, behind, "seed %d", seed)
					read = behind
				}
			case 3, 4, 5:
				if len(model) > 0 {
					i := random.IntN(min(len(model), 1+random.IntN(100)))
					if model[i].key == "" {
						q.Remove("")
						continue // it stays
					}
					q.Remove(model[i].key)
					require.False(t, q.Has(model[i].key))
					used -= model[i].size + int64(len(model[i].key)) + entryOverhead
					model = slices.Delete(model, i, i+1)
				}
				q.Remove("unknown")
			default:
				for range random.IntN(12) {
					m := queued{place, strconv.Itoa(place), random.Int64N(1000)}
					if random.IntN(50) == 0 {
						m.key = ""
					}
					require.True(t, q.Reserve(m.key, m.size))
					q.Add(m.place, m.key, m.size, m.place)
					require.Equal(t, m.key != "", q.Has(m.key))
					used += m.size + int64(len(m.key)) + entryOverhead
					model = append(model, m)
					place++
				}
			}
			keyed := slices.DeleteFunc(slices.Clone(model), func(m queued) bool { return m.key == "" })
			require.Equal(t, len(model), q.Len())
			require.Equal(t, len(keyed), q.Keys())
			if len(keyed) > 0 {
				require.Equal(t, keyed[0].key, q.First())
			} else {
				require.Empty(t, q.First())
			}
			require.Equal(t, used, account.Used())
		}
		q.Free()
		assert.Zero(t, account.Used())
		assert.Zero(t, q.Len())
		_, _, more := q.Read()
		assert.False(t, more)
		assert.Empty(t, q.First())
		assert.False(t, q.Reserve("a", 0), "nothing fits what was freed")
		q.Remove("a")
		q.Rewind()
		q.Free()
		assert.Zero(t, account.Used())
	}
}

// TestQueueBounds: a message is charged its key and its entry too.
func TestQueueBounds(t *testing.T) {
	t.Parallel()
	account := NewAccount(2000)
	allowance := &Allowance{Memory: 1000, Account: account}
	q := NewQueue(allowance)
	assert.False(t, q.Reserve("key", 1000-3-entryOverhead+1))
	assert.Zero(t, account.Used())
	assert.True(t, q.Reserve("key", 1000-3-entryOverhead))
	assert.EqualValues(t, 1000, account.Used())
	assert.False(t, New(allowance).Reserve(1), "one allowance for all")
	q.Unreserve("key", 1000-3-entryOverhead)
	assert.Zero(t, account.Used())
	assert.True(t, New(allowance).Reserve(1000))
}

// TestQueueForgets: what many messages took is not held on to when they are gone.
func TestQueueForgets(t *testing.T) {
	t.Parallel()
	q := NewQueue(&Allowance{Memory: math.MaxInt64, Account: NewAccount(math.MaxInt64)})
	require.True(t, q.Reserve("never", 1))
	q.Add(0, "never", 1, 0)
	for round := range 3 {
		for i := range 10 * keptEntries {
			key := strconv.Itoa(i)
			require.True(t, q.Reserve(key, 1))
			q.Add(i, key, 1, i)
		}
		many := q.byKey
		for i := range 10 * keptEntries {
			q.Remove(strconv.Itoa(i))
		}
		assert.Equal(t, keptEntries, q.spares, "round %d", round)
		spares := 0
		for e := q.spare; e != nil; e = e.next {
			spares++
			assert.Equal(t, entry{next: e.next}, *e, "it holds no message")
		}
		assert.Equal(t, keptEntries, spares)
		many["x"] = nil
		assert.False(t, q.Has("x"), "another map")
		assert.True(t, q.Has("never"))
	}
}

// TestAllowanceOfTheDisk: buffers of one allowance share the disk too.
func TestAllowanceOfTheDisk(t *testing.T) {
	t.Parallel()
	allowance := &Allowance{Account: NewAccount(0), Disk: Disk{1000, func() (File, error) { return &memory{}, nil }}}
	first, second := New(allowance), New(allowance)
	require.NoError(t, spillBytes(first, make([]byte, 600)))
	require.ErrorIs(t, spillBytes(second, make([]byte, 600)), ErrFull)
	first.Free()
	require.NoError(t, spillBytes(second, make([]byte, 600)))
	second.Free()
	assert.Zero(t, allowance.disk)
}

// TestQueueSteady: a queue that messages pass through allocates nothing, and shrinks its
// map only when it has become much too large.
func TestQueueSteady(t *testing.T) { //nolint:paralleltest // counts allocations
	q := NewQueue(&Allowance{Memory: math.MaxInt64, Account: NewAccount(math.MaxInt64)})
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	add := func(i int) {
		require.True(t, q.Reserve(keys[i], 1))
		q.Add(i, keys[i], 1, nil)
	}
	for i := range 100 {
		add(i)
	}
	next := 100
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		q.Remove(keys[(next-100)%200])
		add(next % 200)
		next++
	}))
	before := q.byKey
	for q.Keys() > 100/8+1 {
		q.Remove(q.First())
	}
	before["x"] = nil
	assert.True(t, q.Has("x"), "not yet")
	delete(before, "x")
	q.Remove(q.First())
	before["x"] = nil
	assert.False(t, q.Has("x"), "now")
	assert.Equal(t, 100/8, q.Keys())
}

// TestSwap: what takes the place of others is taken for the difference.
func TestSwap(t *testing.T) {
	t.Parallel()
	account := NewAccount(100)
	assert.True(t, account.Swap(0, 60))
	assert.False(t, account.Swap(60, 101))
	assert.EqualValues(t, 60, account.Used())
	assert.True(t, account.Swap(60, 100))
	assert.True(t, account.Swap(100, 0))
	assert.Zero(t, account.Used())
}

// TestReadMany reads all that a Fill offers before the next.
func TestReadMany(t *testing.T) {
	t.Parallel()
	b := New(&Allowance{Memory: math.MaxInt64, Account: NewAccount(math.MaxInt64)})
	for i := range 3 * Batch {
		require.True(t, b.Reserve(1))
		b.Append(i)
	}
	var r Reader
	read := 0
	for n := r.Fill(b); n > 0; n = r.Fill(b) {
		for range n {
			m, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, read, m)
			read++
		}
	}
	assert.Equal(t, 3*Batch, read)
}
