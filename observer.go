// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import "context"

// Observer is told what becomes of calls, for logs and metrics. Each hook may be
// nil. Attempt and Done are not called for a call whose first attempt succeeds. Hooks run
// on the caller's goroutine, or for a stream on the one that finds its attempt
// ended: a slow hook is a slow call. They must be safe for concurrent use, must not
// modify what they are given, and must not use the stream that they are told of. Nor may
// they panic: of a stream that its caller has cancelled, they may run on a goroutine of
// gRPC's, where a panic ends the program.
type Observer struct {
	// Attempt is called after each attempt, once it is decided what comes next
	// and before the wait for it.
	Attempt func(ctx context.Context, method string, attempt Attempt)
	// Commit is called when the replay of a stream is given up before its first
	// response, or its [Recovery] after that: what is to be kept did not fit the buffer,
	// could not be copied, or Context was called. That may be so of a stream that then
	// succeeds.
	Commit func(ctx context.Context, method string, cause error)
	// Done is called at the end of every call that failed or took more than one
	// attempt, with all its attempts (the last 100 of them) and the error that
	// the caller gets.
	Done func(ctx context.Context, method string, attempts []Attempt, err error)
	// Notice is called with what is worth a line in a log: that a service config has
	// changed who retries a method, when a call of it has failed.
	Notice func(ctx context.Context, method string, text string)
}
