// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// streamAttempt is one attempt of a stream. Unlike a capture it is never used
// again: gRPC may write to it after everybody has let go of the stream.
type streamAttempt struct {
	results // written by gRPC before done is closed

	err  error         // that gRPC reported, before done is closed
	done chan struct{} // closed when gRPC reported the end

	inner  grpc.ClientStream
	ctx    context.Context
	cancel context.CancelFunc
	start  time.Time
	opened time.Time     // when it was a stream, if anybody wants to know
	count  *attemptCount // of those that it is, if gRPC may retry; else nil

	timer   *time.Timer            // of Policy.AttemptTimeout; nil without
	expired atomic.Pointer[expiry] // which timeout of the policy ended it
	unwatch func() bool            // ends what watches the call's context for it

	// The rest is under the stream's lock.
	sent     int  // how many of the input's messages it was given, or need not be
	pumping  bool // a pump owns its sending side
	broken   bool // its sending side has ended
	answered bool // there was a response, or the header was asked for
	paid     bool // it has paid back to the retry budget
}

// expiry is a timeout that an attempt ran into.
type expiry struct {
	what  string
	after time.Duration
}

// options returns what the attempt passes to gRPC, which may retry it if it is native.
// onEnd is called at its end.
func (a *streamAttempt) options(callers []grpc.CallOption, native bool, onEnd func()) []grpc.CallOption {
	options := make([]grpc.CallOption, 0, len(callers)+6)
	options = append(options,
		&callOption{nested: true},
		grpc.Header(&a.header),
		grpc.Peer(&a.peer),
		grpc.Trailer(&a.trailer),
		grpc.OnFinish(func(err error) {
			select {
			case <-a.done: // a retry below ends more than once; the first end counts
			default:
				a.err = err
				close(a.done)
				onEnd()
			}
		}),
	)
	if !native {
		// As for unary calls; an inner interceptor may hide Context, which else
		// keeps gRPC from replaying.
		options = append(options, grpc.MaxRetryRPCBufferSize(0))
	}
	return slices.Clip(append(options, callers...))
}

// ended tells whether gRPC reported the attempt's end.
func (a *streamAttempt) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// failed tells whether gRPC reported that the attempt failed.
func (a *streamAttempt) failed() bool { return a.ended() && a.err != nil }

// hollow tells whether gRPC reported a good end of what no server ended: there is no
// such end without a header and without a trailer, which hold a content-type at
// least. Header reports it of a stream that was still to be sent when its connection
// broke. RecvMsg, which gRPC says has the error, has it.
func (a *streamAttempt) hollow() bool {
	return a.ended() && a.err == nil && a.header == nil && len(a.trailer) == 0
}

// reportWait is how long a report may come after the end that it is about.
const reportWait = 100 * time.Millisecond

// await waits for gRPC's report of an end that an operation has met. Where several
// operations meet it, one of them reports, and the others return before. The wait
// is bounded, since an interceptor below may have dropped the option.
func (a *streamAttempt) await() {
	if a.ended() {
		return
	}
	timer := time.NewTimer(reportWait)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
	}
}

// limit cancels the attempt after d, unless the timer is stopped before.
func (a *streamAttempt) limit(what string, d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { a.expire(what, d) })
}

// expire cancels the attempt, since it ran into a timeout.
func (a *streamAttempt) expire(what string, after time.Duration) {
	a.expired.CompareAndSwap(nil, &expiry{what, after})
	a.cancel()
}

// stop ends what belongs to the attempt.
func (a *streamAttempt) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.unwatch != nil {
		a.unwatch()
	}
	a.cancel()
}

// likely tells whether err stands for the end that gRPC reported. Of two operations
// that meet an end each may get an error of its own, with the same status.
func likely(err, reported error) bool {
	return reported != nil && reflect.ValueOf(reported).Comparable() && errors.Is(err, reported)
}

// cause returns the error that stands for the attempt's end: a timeout of the
// policy's shows as a cancellation.
func (a *streamAttempt) cause(err error) error {
	expired := a.expired.Load()
	if code := statusOf(err).Code(); expired != nil && (code == codes.Canceled || code == codes.DeadlineExceeded) {
		return status.Errorf(codes.DeadlineExceeded, "%s of %v exceeded", expired.what, expired.after)
	}
	return err
}

// lasted returns how long an attempt that ends now was a stream, up to the timeout that it
// ran into.
func (a *streamAttempt) lasted(now time.Time) time.Duration {
	if a.opened.IsZero() {
		return 0
	}
	lasted := now.Sub(a.opened)
	if expired := a.expired.Load(); expired != nil {
		lasted -= expired.after
	}
	return lasted
}
