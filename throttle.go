// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"math"
	"sync/atomic"
)

// Throttle is a retry budget, the token bucket of gRFC A6. A [Retrier] has one for all
// its calls, unary and streams, whatever their policies. The bucket is full at first.
// Each failure with a code that its policy lists takes a token, as does a server that
// asks not to retry; each success puts a part of one back. While the bucket is half
// empty or more, there are no retries: a call that would be retried fails with
// [ErrThrottled] and its last status. A stream with a [Recovery] also puts a part back with
// the first response of each further attempt, since it may have no end. Nothing but calls changes the bucket; gRPC's
// own fills up with every update of the resolver's.
type Throttle struct {
	// MaxTokens is what the bucket holds, above 0 and at most 1000.
	MaxTokens float64
	// TokenRatio is what a success puts back, at least 0.001. As gRFC A6 has it, no
	// more than three decimal places count.
	TokenRatio float64
}

// tokenScale is how many parts a token has: the smallest ratio is one of them.
const tokenScale = 1000

func (t Throttle) problems() error {
	var errs []error
	if !(t.MaxTokens > 0 && t.MaxTokens <= 1000) {
		errs = append(errs, invalid("MaxTokens", t.MaxTokens, "must be above 0 and at most 1000"))
	}
	if !(t.TokenRatio >= 1.0/tokenScale && t.TokenRatio < math.Inf(1)) {
		errs = append(errs, invalid("TokenRatio", t.TokenRatio, "must be a number of at least 0.001"))
	}
	return errors.Join(errs...)
}

// bucket is the state of a Throttle, without locks. Its methods may be called on nil,
// which throttles nothing.
type bucket struct {
	full, ratio int64 // in parts of tokens
	tokens      atomic.Int64
}

func newBucket(t Throttle) *bucket {
	b := &bucket{
		full: int64(math.Round(t.MaxTokens * tokenScale)),
		// No success puts back more than all. What is added makes up for decimals that
		// have no exact form, like 0.29.
		ratio: int64(min(t.TokenRatio, t.MaxTokens)*tokenScale + 1e-6),
	}
	b.tokens.Store(b.full)
	return b
}

// succeeded puts back what a success does.
func (b *bucket) succeeded() {
	// Most buckets are full, and then all that calls share is read only.
	if b == nil || b.tokens.Load() == b.full {
		return
	}
	b.add(b.ratio)
}

// failed takes what a failure does.
func (b *bucket) failed() {
	if b != nil {
		b.add(-tokenScale)
	}
}

// add changes the tokens. Of calls that end at the same time each adds at once, and the
// last sees to it that no more are in the bucket than it holds, nor less than none.
func (b *bucket) add(parts int64) {
	tokens := b.tokens.Add(parts)
	for within := min(max(tokens, 0), b.full); tokens != within; within = min(max(tokens, 0), b.full) {
		if b.tokens.CompareAndSwap(tokens, within) {
			return
		}
		tokens = b.tokens.Load()
	}
}

// refuses tells whether there must be no retry now.
func (b *bucket) refuses() bool {
	return b != nil && 2*b.tokens.Load() <= b.full
}
