// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
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

	timer    *time.Timer // of Policy.AttemptTimeout; nil without
	timedOut atomic.Bool // Policy.AttemptTimeout or IdleTimeout ended it

	// The rest is under the stream's lock.
	sent    int  // how many of the buffered messages it was given
	pumping bool // a pump owns its sending side
	broken  bool // its sending side has ended
}

// options returns what the attempt passes to gRPC. onEnd is called at its end.
func (a *streamAttempt) options(callers []grpc.CallOption, onEnd func()) []grpc.CallOption {
	options := make([]grpc.CallOption, 0, len(callers)+5)
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

// limit cancels the attempt after d, unless stop comes first.
func (a *streamAttempt) limit(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		a.timedOut.Store(true)
		a.cancel()
	})
}

// stop ends what belongs to the attempt.
func (a *streamAttempt) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.cancel()
}

// cause returns the error that stands for the attempt's end: a timeout of the
// policy's shows as a cancellation.
func (a *streamAttempt) cause(err error, what string, d time.Duration) error {
	if code := status.Code(err); a.timedOut.Load() && (code == codes.Canceled || code == codes.DeadlineExceeded) {
		return status.Errorf(codes.DeadlineExceeded, "%s of %v exceeded", what, d)
	}
	return err
}
