// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBackoffWait(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct {
		name     string
		backoff  Backoff
		failures int
		random   float64
		want     time.Duration
	}{
		{"first", Backoff{}, 1, 0.5, 100 * ms},
		{"second", Backoff{}, 2, 0.5, 200 * ms},
		{"capped", Backoff{}, 7, 0.5, 5 * time.Second},
		{"lowest jitter", Backoff{}, 1, 0, 80 * ms},
		{"highest jitter", Backoff{}, 1, 1, 120 * ms},
		{"jitter exceeds the cap", Backoff{}, 100, 1, 6 * time.Second},
		{"no jitter", Backoff{Jitter: -0.1}, 1, 1, 100 * ms},
		{"full jitter", Backoff{Jitter: 1}, 1, 0, 0},
		{"no wait", Backoff{Initial: -1}, 3, 1, 0},
		{"constant", Backoff{Initial: 10 * ms, Multiplier: 1}, 50, 0.5, 10 * ms},
		{"short Max lowers the default of Initial", Backoff{Max: 30 * ms}, 1, 0.5, 30 * ms},
		{"long Initial raises the default of Max", Backoff{Initial: time.Minute}, 3, 0.5, time.Minute},
		{"peers' fault 1.4-9: no overflow at 38", Backoff{Max: time.Hour}, 38, 0.5, time.Hour},
		{"peers' fault 1.4-9: no overflow at 40", Backoff{Max: time.Hour}, 40, 0.5, time.Hour},
		{"peers' fault 1.4-9: no overflow ever", Backoff{Max: time.Hour}, math.MaxInt, 0.5, time.Hour},
		{"peers' fault 1.4-10: jitter does not overflow", Backoff{Initial: math.MaxInt64}, 1, 1, math.MaxInt64},
		{"the longest wait does not overflow", Backoff{Initial: math.MaxInt64, Jitter: -1}, 1, 0.5, math.MaxInt64},
		{"one nanosecond", Backoff{Initial: 1, Jitter: -1}, 1, 0.5, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, row.backoff.withDefaults().wait(row.failures, row.random))
		})
	}
}

// TestBackoffDefaults holds that the default of Initial stays within Max, and that
// of Max is not below Initial.
func TestBackoffDefaults(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct{ initial, longest, wantInitial, wantLongest time.Duration }{
		{0, 0, 100 * ms, 5 * time.Second},
		{0, 1, 1, 1},
		{0, 100 * ms, 100 * ms, 100 * ms},
		{0, time.Minute, 100 * ms, time.Minute},
		{1, 0, 1, 5 * time.Second},
		{time.Minute, 0, time.Minute, time.Minute},
		{-1, 0, -1, 5 * time.Second},
		{-1, 1, -1, 1},
	} {
		b := Backoff{Initial: row.initial, Max: row.longest}
		assert.Empty(t, b.problems(), "%+v", b)
		want := Backoff{Initial: row.wantInitial, Max: row.wantLongest, Multiplier: 2, Jitter: 0.2}
		assert.Equal(t, want, b.withDefaults(), "%+v", b)
	}
	assert.Len(t, Backoff{Initial: 2, Max: 1}.problems(), 1)
	assert.Len(t, Backoff{Max: -1}.problems(), 1)
}

// FuzzBackoff holds that no valid backoff, however odd, gives a wait below zero or
// beyond Max and its jitter.
func FuzzBackoff(f *testing.F) {
	f.Add(int64(0), int64(0), 0.0, 0.0, 1, 0.5)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.MaxFloat64, 1.0, math.MaxInt, 0.999)
	f.Add(int64(-5), int64(1), 1.5, -3.0, 2, 0.0)
	f.Fuzz(func(t *testing.T, initial, longest int64, multiplier, jitter float64, failures int, random float64) {
		b := Backoff{Initial: time.Duration(initial), Max: time.Duration(longest), Multiplier: multiplier, Jitter: jitter}
		if b.problems() != nil || failures < 1 || !(random >= 0 && random < 1) {
			return
		}
		b = b.withDefaults()
		wait := b.wait(failures, random)
		limit := float64(b.Max) * (1 + max(0, b.Jitter))
		if wait < 0 || float64(wait) > limit {
			t.Errorf("%+v waits %v after %d failures", b, wait, failures)
		}
	})
}
