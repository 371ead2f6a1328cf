// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestSchedule holds, in virtual time and with ==, when attempts are made: laws 5
// (no wait that cannot help) and 6 (the server's word wins).
func TestSchedule(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	busy := testserver.Fail(codes.Unavailable, "busy")
	five := grpcretry.Policy{MaxAttempts: 5}
	for _, row := range []struct {
		name    string
		policy  grpcretry.Policy
		random  float64 // middle if zero
		timeout time.Duration
		script  []testserver.Step
		starts  []time.Duration
		elapsed time.Duration
		code    codes.Code
		reason  error // nil if the error is not an Error
	}{
		{
			name:   "backoff doubles",
			script: []testserver.Step{busy.Times(2)},
			starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms,
		},
		{
			name:   "no wait after the last attempt",
			script: []testserver.Step{busy.Forever()},
			starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrExhausted,
		},
		{
			name:   "backoff is capped",
			policy: grpcretry.Policy{MaxAttempts: 6, Backoff: grpcretry.Backoff{Initial: 100 * ms, Max: 250 * ms, Multiplier: 3}},
			script: []testserver.Step{busy.Times(5)},
			starts: []time.Duration{0, 100 * ms, 350 * ms, 600 * ms, 850 * ms, 1100 * ms}, elapsed: 1100 * ms,
		},
		{
			name:   "jitter shortens by a fifth",
			random: 1e-18,
			script: []testserver.Step{busy.Times(2)},
			starts: []time.Duration{0, 80 * ms, 240 * ms}, elapsed: 240 * ms,
		},
		{
			name:   "jitter lengthens beyond the cap",
			policy: grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: 100 * ms, Max: 100 * ms, Jitter: 1}},
			random: 0.75,
			script: []testserver.Step{busy.Times(2)},
			starts: []time.Duration{0, 150 * ms, 300 * ms}, elapsed: 300 * ms,
		},
		{
			name:   "no wait at all",
			policy: grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: -1}},
			script: []testserver.Step{busy.Times(2)},
			starts: []time.Duration{0, 0, 0},
		},
		{
			name: "delay function",
			policy: grpcretry.Policy{Backoff: grpcretry.Backoff{
				Delay: func(attempt int, last grpcretry.Failure, random float64) time.Duration {
					if attempt == 2 {
						return -time.Hour
					}
					return time.Duration(attempt)*time.Second + time.Duration(len(last.Status.Message())) + time.Duration(random*10)
				},
			}},
			script: []testserver.Step{busy.Times(2)},
			starts: []time.Duration{0, time.Second + 4 + 5, time.Second + 4 + 5}, elapsed: time.Second + 4 + 5,
		},
		{
			name:   "pushback is exact and restarts the backoff",
			policy: five, random: 0.9,
			script: []testserver.Step{busy.Pushback("250"), busy.Pushback("0"), busy, busy.Pushback("30")},
			starts: []time.Duration{0, 250 * ms, 250 * ms, 366 * ms, 396 * ms}, elapsed: 396 * ms,
		},
		{
			name:   "RetryInfo is exact and restarts the backoff",
			policy: five, random: 0.9,
			script: []testserver.Step{busy, busy.RetryInfo(400 * ms), busy.RetryInfo(0), busy},
			starts: []time.Duration{0, 116 * ms, 516 * ms, 516 * ms, 632 * ms}, elapsed: 632 * ms,
		},
		{
			name:   "pushback beats RetryInfo",
			script: []testserver.Step{busy.RetryInfo(time.Second).Pushback("50")},
			starts: []time.Duration{0, 50 * ms}, elapsed: 50 * ms,
		},
		{
			name:   "RetryInfo without delay is none",
			script: []testserver.Step{busy.Details(&errdetails.RetryInfo{})},
			starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms,
		},
		{
			name:   "RetryInfo is negative",
			script: []testserver.Step{busy.RetryInfo(-1)},
			starts: []time.Duration{0},
			code:   codes.Unavailable, reason: grpcretry.ErrPushback,
		},
		{
			name:   "RetryInfo is invalid",
			script: []testserver.Step{busy.Details(&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 1, Nanos: -1}})},
			starts: []time.Duration{0},
			code:   codes.Unavailable, reason: grpcretry.ErrPushback,
		},
		{
			name:   "pushback is longer than MaxServerDelay",
			script: []testserver.Step{busy.Pushback("60001")},
			starts: []time.Duration{0},
			code:   codes.Unavailable, reason: grpcretry.ErrPushback,
		},
		{
			name:   "RetryInfo is longer than MaxServerDelay",
			policy: grpcretry.Policy{MaxServerDelay: time.Second},
			script: []testserver.Step{busy.RetryInfo(time.Second + 1)},
			starts: []time.Duration{0},
			code:   codes.Unavailable, reason: grpcretry.ErrPushback,
		},
		{
			name:   "pushback is as long as MaxServerDelay",
			script: []testserver.Step{busy.Pushback("60000")},
			starts: []time.Duration{0, time.Minute}, elapsed: time.Minute,
		},
		{
			name:   "pushback does not make a code retryable",
			script: []testserver.Step{testserver.Fail(codes.NotFound, "none").Pushback("10")},
			starts: []time.Duration{0},
			code:   codes.NotFound,
		},
		{
			name:   "pushback in the header is none",
			script: []testserver.Step{busy.Header("grpc-retry-pushback-ms", "-1")},
			starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms,
		},
		{
			name:    "no wait that does not fit the deadline (public fault 43)",
			timeout: 250 * ms,
			script:  []testserver.Step{busy.Forever()},
			starts:  []time.Duration{0, 100 * ms}, elapsed: 100 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrDeadline,
		},
		{
			name:    "a wait until the very deadline does not fit",
			timeout: 100 * ms,
			script:  []testserver.Step{busy.Forever()},
			starts:  []time.Duration{0},
			code:    codes.Unavailable, reason: grpcretry.ErrDeadline,
		},
		{
			name:    "pushback beyond the deadline",
			timeout: time.Second,
			script:  []testserver.Step{busy.Pushback("5000")},
			starts:  []time.Duration{0},
			code:    codes.Unavailable, reason: grpcretry.ErrDeadline,
		},
		{
			name:   "Timeout counts as the deadline",
			policy: grpcretry.Policy{Timeout: 250 * ms},
			script: []testserver.Step{busy.Forever()},
			starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrDeadline,
		},
		{
			name:   "Timeout ends an attempt",
			policy: grpcretry.Policy{Timeout: time.Second},
			script: []testserver.Step{busy, testserver.Hang()},
			starts: []time.Duration{0, 100 * ms}, elapsed: time.Second,
			code: codes.DeadlineExceeded, reason: context.DeadlineExceeded,
		},
		{
			name:    "the caller's deadline ends an attempt",
			timeout: time.Second,
			script:  []testserver.Step{busy, testserver.Hang()},
			starts:  []time.Duration{0, 100 * ms}, elapsed: time.Second,
			code: codes.DeadlineExceeded, reason: context.DeadlineExceeded,
		},
		{
			name:    "the caller's deadline ends the only attempt",
			timeout: time.Second,
			script:  []testserver.Step{testserver.Hang()},
			starts:  []time.Duration{0}, elapsed: time.Second,
			code: codes.DeadlineExceeded,
		},
		{
			name:   "AttemptTimeout ends each attempt",
			policy: grpcretry.Policy{AttemptTimeout: time.Second, Codes: []codes.Code{}},
			script: []testserver.Step{testserver.Hang().Forever()},
			starts: []time.Duration{0, 1100 * ms, 2300 * ms}, elapsed: 3300 * ms,
			code: codes.DeadlineExceeded, reason: grpcretry.ErrExhausted,
		},
		{
			name:   "AttemptTimeout spares a faster attempt",
			policy: grpcretry.Policy{AttemptTimeout: time.Second},
			script: []testserver.Step{testserver.OK().Delay(2 * time.Second), testserver.OK().Delay(999 * ms)},
			starts: []time.Duration{0, 1100 * ms}, elapsed: 2099 * ms,
		},
		{
			name:    "AttemptTimeout beyond the deadline does nothing",
			policy:  grpcretry.Policy{AttemptTimeout: time.Second},
			timeout: 500 * ms,
			script:  []testserver.Step{testserver.Hang()},
			starts:  []time.Duration{0}, elapsed: 500 * ms,
			code: codes.DeadlineExceeded,
		},
		{
			name:   "one attempt is none too many",
			policy: grpcretry.Policy{MaxAttempts: 1},
			script: []testserver.Step{busy.Forever()},
			starts: []time.Duration{0},
			code:   codes.Unavailable,
		},
		{
			name:   "an unlisted code",
			script: []testserver.Step{testserver.Fail(codes.NotFound, "none")},
			starts: []time.Duration{0},
			code:   codes.NotFound,
		},
		{
			name:   "an unlisted code at the second attempt",
			script: []testserver.Step{busy, testserver.Fail(codes.NotFound, "none")},
			starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms,
			code: codes.NotFound, reason: grpcretry.ErrNotRetryable,
		},
		{
			name:   "a listed code",
			policy: grpcretry.Policy{Codes: []codes.Code{codes.NotFound}},
			script: []testserver.Step{testserver.Fail(codes.NotFound, "none"), busy},
			starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrNotRetryable,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, row.policy)
				if row.random != 0 {
					grpcretry.WithRandom(r.retrier, row.random)
				}
				r.server.Script(read, row.script...)
				ctx := t.Context()
				if row.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
					defer cancel()
				}
				start := time.Now()
				var trailer metadata.MD
				_, err := r.call(ctx, read, grpc.Trailer(&trailer))

				assert.Equal(t, row.elapsed, time.Since(start), "elapsed")
				assert.Equal(t, row.starts, r.starts(), "starts")
				assert.Equal(t, row.code, status.Code(err), "%v", err)
				var retryError *grpcretry.Error
				if assert.Equal(t, row.reason != nil, errors.As(err, &retryError), "%v", err) && row.reason != nil {
					assert.ErrorIs(t, err, row.reason)
				}
				r.assertOneLedger(t, trailer, err)
			})
		})
	}
}
