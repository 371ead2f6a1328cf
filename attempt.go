// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// Attempt is one attempt of a call, as an [Observer] and an [Error] see it.
type Attempt struct {
	// Number counts the attempts of the call, from 1.
	Number int
	// Start is when the attempt began, and Duration how long it took. Both are
	// zero for the first attempt of a call that has neither a deadline nor a
	// timeout nor an Observer: reading the clock would cost every call that
	// succeeds more than all the rest of the suite.
	Start    time.Time
	Duration time.Duration
	// Wait is how long the suite decided to wait before the next attempt; zero
	// if there was none. A wait for the connection, if any, comes on top.
	Wait time.Duration
	// Failure is how the attempt failed; nil if it succeeded.
	Failure *Failure
}

// attemptKey is the key under which an attempt's context holds its number.
type attemptKey struct{}

// AttemptFromContext returns the number of the attempt that an interceptor,
// credentials or a balancer is working for, from 2. It is false during the first
// attempt, which runs on the caller's own context, and outside of a call.
func AttemptFromContext(ctx context.Context) (int, bool) {
	number, ok := ctx.Value(attemptKey{}).(int)
	return number, ok
}

// attemptContext is the context of an attempt after the first. It answers for
// the attempt's number and for its outgoing metadata, and leaves the rest to the
// call's context.
type attemptContext struct {
	context.Context

	number   int
	outgoing context.Context // holds the outgoing metadata and nothing else
}

// Value implements [context.Context].
func (c *attemptContext) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return c.number
	}
	// metadata's own key is not exported, so the question is passed on: outgoing
	// has an answer to no other.
	if value := c.outgoing.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

// outgoing holds, for 1, 2, … attempts before, a context with the metadata that
// says so, and with nothing else. All calls that have no metadata of their own
// share them, since making metadata costs more than the rest of an attempt.
type outgoing [8]context.Context

func newOutgoing() *outgoing {
	var o outgoing
	for i := range o {
		o[i] = previousAttempts(metadata.MD{}, i+1) //nolint:fatcontext // each is a context of its own
	}
	return &o
}

// previousAttempts returns a context with nothing but the metadata, in which it
// sets the number of attempts before.
func previousAttempts(md metadata.MD, n int) context.Context {
	md.Set(previousAttemptsKey, strconv.Itoa(n))
	return metadata.NewOutgoingContext(context.Background(), md)
}

// attempt returns the context of attempt number, at least 2, whose outgoing
// metadata tells the server of the attempts before it.
func (o *outgoing) attempt(ctx context.Context, number int) context.Context {
	previous := number - 1
	a := &attemptContext{Context: ctx, number: number}
	if md, ok := metadata.FromOutgoingContext(ctx); ok || previous > len(o) {
		if md == nil {
			md = metadata.MD{}
		}
		a.outgoing = previousAttempts(md, previous) // md is a copy
	} else {
		a.outgoing = o[previous-1]
	}
	return a
}
