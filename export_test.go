// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

// WithRandom replaces the source of jitter, so that schedules can be compared.
func WithRandom(r *Retrier, random float64) *Retrier {
	r.random = func() float64 { return random }
	return r
}

// Buffered returns the bytes that all streams of a Retrier keep.
func Buffered(r *Retrier) int64 { return r.buffered.Used() }
