// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import "github.com/seed98143e88/grpcretry/internal/replay"

// WithRandom replaces the source of jitter, so that schedules can be compared.
func WithRandom(r *Retrier, random float64) *Retrier {
	r.random = func() float64 { return random }
	return r
}

// Buffered returns the bytes that all streams of a Retrier keep.
func Buffered(r *Retrier) int64 { return r.buffered.Used() }

// File is what a spill file is, where a test brings its own.
type File = replay.File

// WithFile replaces what makes spill files.
func WithFile(r *Retrier, create func() (File, error)) *Retrier {
	r.disk.Create = create
	return r
}

// Budget is the state of a Throttle.
type Budget struct{ *bucket }

// NewBudget returns a budget that is full.
func NewBudget(t Throttle) Budget { return Budget{newBucket(t)} }

// Succeeded pays back.
func (b Budget) Succeeded() { b.succeeded() }

// Tokens returns the thousandths of tokens that are left.
func (b Budget) Tokens() int64 { return b.tokens.Load() }

// Failed takes.
func (b Budget) Failed() { b.failed() }

// ChannelConfig returns the service config that DialOptions installs for the methods
// of the channel.
func ChannelConfig(r *Retrier) string { return r.channel.config }

// WalkServiceConfig is CheckServiceConfig without gRPC's own word.
func WalkServiceConfig(text string) []Finding {
	check := &configCheck{text: text}
	check.top()
	check.sort()
	return check.sorted()
}

// Lookup finds the policy of a method, as calls do.
func Lookup(r *Retrier, method string) *rule { return r.current().find(method) }
