// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The reasons why a call was given up. [Error.Reason] is one of them, an error
// that wraps one of them and says more, or the error of the call's context.
var (
	// ErrExhausted means that all attempts of the policy were used.
	ErrExhausted = errors.New("attempts exhausted")
	// ErrDeadline means that the next attempt would have begun after the call's
	// deadline, so that the call ended at once instead.
	ErrDeadline = errors.New("no time left for another attempt")
	// ErrThrottled means that so many calls failed of late that there are no retries,
	// by the [Throttle] of the Retrier.
	ErrThrottled = errors.New("retries are throttled")
	// ErrPushback means that the server asked for no further attempt, or for a
	// longer wait than the policy allows.
	ErrPushback = errors.New("the server asks not to retry")
	// ErrNotRetryable means that the last failure is not one to retry.
	ErrNotRetryable = errors.New("not retryable")
	// ErrNotRepeatable means that the call may have run and that the policy does
	// not allow to run it twice.
	ErrNotRepeatable = errors.New("the call may have run")
	// ErrCommitted means that a stream without a [Recovery] failed after a part of it
	// was handed over, or any stream after its messages could no longer be kept, so that
	// it could not be replayed.
	ErrCommitted = errors.New("the stream is committed and cannot be replayed")
	// ErrBufferFull means that the messages of a stream did not fit the buffer, and that
	// the buffer says to fail then.
	ErrBufferFull = errors.New("the replay buffer is full")
	// ErrChannelRetries means that gRPC's own retry has the method, by WithChannelRetry
	// or a service config, so that the suite does not make another attempt.
	ErrChannelRetries = errors.New("gRPC's own retry has this method")
	// ErrLocal means that the last failure was made on this side and would be
	// made again.
	ErrLocal = errors.New("failed on this side")
)

// Error is the error of a call that failed after more than one attempt, or whose
// policy allowed a retry that did not come about. Any other call that fails in its
// only attempt returns gRPC's own error as it is.
//
// [status.Code], [status.Convert] and [status.FromError] see through an Error to
// the status of the last failure, with its message and details unchanged. If the
// caller's context ended the call, they see the context's status; the last real
// failure (a server's status, a broken connection, an attempt's timeout) is then in
// the chain, as it is if the last failure was made on this side.
type Error struct {
	// Method is the full method name, like "/pkg.Service/Method".
	Method string
	// Attempts is the call's history, in order: all attempts, or the last 100.
	Attempts []Attempt
	// Reason is why the call was given up.
	Reason error

	result  error // the error whose status the call ends with
	masked  error // the last real failure, where something else took its place
	elapsed time.Duration
	timed   bool // elapsed begins with the first attempt, not with its end
}

// newError makes the error of a call that ends with the verdict on the attempt
// that is its ledger's last.
func newError(l *ledger, v verdict, elapsed time.Duration, timed bool) *Error {
	last := l.last()
	e := &Error{
		Method:   l.method,
		Attempts: l.history(),
		Reason:   v.reason,
		result:   last.err,
		elapsed:  elapsed,
		timed:    timed,
	}
	if v.ended {
		ended := endedStatus(v.reason)
		if !last.endedByCall || last.status.Code() != ended.Code() {
			e.result = ended.Err() // else gRPC's own text says more of the same
		}
	}
	n := len(l.records)
	switch {
	case v.instead != nil:
		e.result = madeLocally(v.instead).err
		e.masked = l.lastReal()
	case last.endedByCall || last.kind == Local:
		if n > 1 {
			e.masked = l.records[n-2].err // real, or it would not have been followed by another
		}
	case v.ended:
		e.masked = last.err
	}
	return e
}

// endedStatus is the status of a call whose context ended with an error.
func endedStatus(err error) *status.Status {
	st := status.FromContextError(err)
	if st.Code() == codes.Unknown { // a context of somebody's own, with an error of its own
		return status.New(codes.Canceled, err.Error())
	}
	return st
}

// Error returns the status, followed by the number of attempts, the time they took
// and the reason for giving up. The time of a first attempt that was not timed is
// left out; see [Attempt].
func (e *Error) Error() string {
	text := fmt.Sprintf("%v (%s: %v", e.GRPCStatus().Err(), e.effort(), e.Reason)
	if e.masked != nil {
		text += "; last failure: " + e.masked.Error()
	}
	return text + ")"
}

// effort says how many attempts there were and how long they took.
func (e *Error) effort() string {
	number := 0
	if n := len(e.Attempts); n > 0 {
		number = e.Attempts[n-1].Number
	}
	elapsed := e.elapsed
	if elapsed > time.Millisecond {
		elapsed = elapsed.Round(time.Millisecond)
	}
	switch {
	case number == 1 && e.timed:
		return fmt.Sprintf("1 attempt, %v", elapsed)
	case number == 1:
		return "1 attempt"
	case e.timed:
		return fmt.Sprintf("%d attempts, %v", number, elapsed)
	default:
		return fmt.Sprintf("%d attempts, %v from the end of the first", number, elapsed)
	}
}

// GRPCStatus returns the status that the call ends with, which is never OK.
func (e *Error) GRPCStatus() *status.Status {
	if e.result == nil {
		return status.New(codes.Unknown, "no attempt failed")
	}
	return statusOf(e.result)
}

// Unwrap returns the reason, the last real failure if there was any, and the error
// that the call ends with if that is another.
func (e *Error) Unwrap() []error {
	if e.masked != nil {
		return []error{e.Reason, e.masked, e.result}
	}
	return []error{e.Reason, e.result}
}
