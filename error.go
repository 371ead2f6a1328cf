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
	// ErrPushback means that the server asked for no further attempt, or for a
	// longer wait than the policy allows.
	ErrPushback = errors.New("the server asks not to retry")
	// ErrNotRetryable means that the last failure is not one to retry.
	ErrNotRetryable = errors.New("not retryable")
	// ErrNotRepeatable means that the call may have run and that the policy does
	// not allow to run it twice.
	ErrNotRepeatable = errors.New("the call may have run")
	// ErrLocal means that the last failure was made on this side and would be
	// made again.
	ErrLocal = errors.New("failed on this side")
)

// Error is the error of a call that failed after more than one attempt, or whose
// policy allowed a retry that did not come about. A call that fails in its only
// attempt returns gRPC's own error as it is.
//
// [status.Code], [status.Convert] and [status.FromError] see through an Error to
// the status of the last real failure, with its message and details unchanged;
// if the caller's context ended the call, they see the context's status.
type Error struct {
	// Method is the full method name, like "/pkg.Service/Method".
	Method string
	// Attempts is the call's history, in order: all attempts, or the last 100.
	Attempts []Attempt
	// Reason is why the call was given up.
	Reason error

	result  error // the error whose status the call ends with
	masked  error // the last real failure, where the end of the context took its place
	elapsed time.Duration
}

// newError makes the error of a call that ends with the verdict on the attempt
// that is its ledger's last.
func newError(l *ledger, v verdict, elapsed time.Duration) *Error {
	last := l.last()
	e := &Error{
		Method:   l.method,
		Attempts: l.history(),
		Reason:   v.reason,
		result:   last.err,
		elapsed:  elapsed,
	}
	if !v.ended {
		return e
	}
	ended := status.FromContextError(v.reason)
	if !last.endedByCall || last.status.Code() != ended.Code() {
		e.result = ended.Err() // else gRPC's own text says more of the same
	}
	switch n := len(l.records); {
	case !last.endedByCall:
		e.masked = last.err
	case n > 1:
		e.masked = l.records[n-2].err
	}
	return e
}

// Error returns the status, followed by the attempts, the time they took and the
// reason for giving up.
func (e *Error) Error() string {
	number, noun := 0, "attempts"
	if n := len(e.Attempts); n > 0 {
		number = e.Attempts[n-1].Number
	}
	if number == 1 {
		noun = "attempt"
	}
	elapsed := e.elapsed
	if elapsed > time.Millisecond {
		elapsed = elapsed.Round(time.Millisecond)
	}
	text := fmt.Sprintf("%v (%d %s, %v: %v", e.GRPCStatus().Err(), number, noun, elapsed, e.Reason)
	if e.masked != nil {
		text += "; last failure: " + e.masked.Error()
	}
	return text + ")"
}

// GRPCStatus returns the status that the call ends with, which is never OK.
func (e *Error) GRPCStatus() *status.Status {
	if e.result == nil {
		return status.New(codes.Unknown, "no attempt failed")
	}
	return statusOf(e.result)
}

// Unwrap returns the reason and the last real failure.
func (e *Error) Unwrap() []error {
	if e.masked != nil {
		return []error{e.Reason, e.masked}
	}
	return []error{e.Reason, e.result}
}
