// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import "time"

// ResetAfter says when a stream that was recovered counts as well again: from then on it
// has all of Policy.MaxAttempts, MaxConnect, MaxLost and MaxAnswered, of which the attempt
// under way is the first, and its backoff begins anew. So when that attempt fails,
// MaxAttempts - 1 others may follow. Either field suffices. What is reported counts on. The
// zero ResetAfter means never: the limits are those of the stream's whole life.
type ResetAfter struct {
	// Responses is how many responses the caller must have been given since the stream
	// began, or counted as well for the last time. Those that [Skip] drops do not
	// count, nor do those of an [Acked] stream that answer no request. Zero means that
	// their number does not matter.
	Responses int

	// Quiet is how long an attempt must have lasted before it failed. The timeout of the
	// policy by which it ended does not count. Zero means that it does not matter.
	Quiet time.Duration
}

// reached tells whether a stream counts as well that was given so many responses, and
// whose attempt lasted so long.
func (r ResetAfter) reached(responses int, lasted time.Duration) bool {
	return r.Responses > 0 && responses >= r.Responses || r.Quiet > 0 && lasted >= r.Quiet
}
