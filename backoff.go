// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"math"
	"time"
)

// Defaults of [Backoff]; the jitter is gRFC A6's.
const (
	defaultInitialBackoff    = 100 * time.Millisecond
	defaultMaxBackoff        = 5 * time.Second
	defaultBackoffMultiplier = 2
	defaultBackoffJitter     = 0.2
)

// Backoff says how long to wait after a failed attempt when the server has not
// said it. The wait after the n-th failure is
//
//	min(Initial × Multiplier^(n-1), Max) × (1 ± Jitter)
//
// where n counts the failures since the call began, or since the server last
// set a wait of its own. The zero Backoff is 100 ms, doubled each time, at most
// 5 s, ±20 %.
type Backoff struct {
	// Initial is the wait after the first failure. Zero means 100 ms, or Max
	// where that is shorter. A negative value means no wait at all.
	Initial time.Duration

	// Max is the longest wait before jitter is applied, so that a wait may
	// exceed it by the jitter. Zero means 5 s, or Initial where that is longer.
	Max time.Duration

	// Multiplier is the growth of the wait from one failure to the next. Zero
	// means 2; other values below 1 are invalid.
	Multiplier float64

	// Jitter is the part of the wait, from 0 to 1, by which it is randomly
	// shortened or lengthened. Zero means 0.2; a negative value means none.
	Jitter float64

	// Delay, if set, replaces the formula and with it all other fields. It is
	// given the number of the attempt that failed, from 1, or since the last
	// ResetAfter, how it failed, and a random number in [0, 1). A negative result means no wait. It must be safe
	// for concurrent use.
	Delay func(attempt int, last Failure, random float64) time.Duration
}

func (b Backoff) withDefaults() Backoff {
	if b.Initial == 0 {
		b.Initial = defaultInitialBackoff
		if b.Max > 0 {
			b.Initial = min(b.Initial, b.Max)
		}
	}
	if b.Max == 0 {
		b.Max = max(defaultMaxBackoff, b.Initial)
	}
	if b.Multiplier == 0 {
		b.Multiplier = defaultBackoffMultiplier
	}
	if b.Jitter == 0 {
		b.Jitter = defaultBackoffJitter
	}
	return b
}

// problems lists every field that cannot be used, with its value.
func (b Backoff) problems() []error {
	var problems []error
	if b.Max < 0 {
		problems = append(problems, invalid("Backoff.Max", b.Max, "must not be negative"))
	} else if b.Max > 0 && b.Initial > b.Max {
		rule := fmt.Sprintf("must not exceed Backoff.Max of %v", b.Max)
		problems = append(problems, invalid("Backoff.Initial", b.Initial, rule))
	}
	if b.Multiplier != 0 && !(b.Multiplier >= 1 && b.Multiplier <= math.MaxFloat64) { // false for NaN too
		problems = append(problems, invalid("Backoff.Multiplier", b.Multiplier, "must be a number of at least 1"))
	}
	if !(b.Jitter >= -math.MaxFloat64 && b.Jitter <= 1) {
		problems = append(problems, invalid("Backoff.Jitter", b.Jitter, "must be a number of at most 1"))
	}
	return problems
}

// wait is the formula: the time to wait after the given number of failures,
// at least 1, with a random number in [0, 1).
func (b Backoff) wait(failures int, random float64) time.Duration {
	if b.Initial < 0 {
		return 0
	}
	// In floating point the power may become +Inf, which min then caps: no
	// number of failures can overflow.
	wait := min(float64(b.Initial)*math.Pow(b.Multiplier, float64(failures-1)), float64(b.Max))
	if b.Jitter > 0 {
		wait *= 1 + b.Jitter*(2*random-1)
	}
	if wait >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(wait)
}
