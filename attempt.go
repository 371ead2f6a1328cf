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
	// Start is when the attempt began, and Duration how long it took. Both may be
	// zero for the first attempt of a unary call that has neither a deadline nor an
	// Observer, and whose policy has neither a timeout nor a Check: reading the
	// clock would cost every call that succeeds more than all the rest of the suite.
	Start    time.Time
	Duration time.Duration
	// Wait is how long the suite decided to wait before the next attempt; zero
	// if there was none. Once it is over, in an Error and in Observer.Done, it
	// includes the wait for the connection.
	Wait time.Duration
	// Failure is how the attempt failed; nil if it succeeded.
	Failure *Failure
}

// attemptKey is the key under which an attempt's context holds its number.
type attemptKey struct{}

// AttemptFromContext returns the number of the attempt that an interceptor,
// credentials or a balancer is working for, from 2. It is false during the first
// attempt, which runs on the caller's own context, and outside of a call. Like the
// metadata that tells the server, the number stays in the context for other calls
// that are made with it.
func AttemptFromContext(ctx context.Context) (int, bool) {
	number, ok := ctx.Value(attemptKey{}).(int)
	return number, ok
}

// attemptContext is the context of an attempt after the first. It answers for
// the attempt's number and, if outgoing is set, for its outgoing metadata, and
// leaves the rest to the call's context.
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
	if c.outgoing != nil {
		// metadata's own key is not exported, so the question is passed on:
		// outgoing has an answer to no other.
		if value := c.outgoing.Value(key); value != nil {
			return value
		}
	}
	return c.Context.Value(key)
}

// previousAttempts holds, for 1, 2, … attempts before, a context with the metadata
// that says so and with nothing else. All calls without metadata of their own
// share them, since making metadata costs more than the rest of an attempt.
type previousAttempts [8]context.Context

func newPreviousAttempts() *previousAttempts {
	var p previousAttempts
	for i := range p {
		p[i] = onlyPrevious(metadata.MD{}, i+1) //nolint:fatcontext // each is a context of its own
	}
	return &p
}

// onlyPrevious returns a context with nothing but the metadata, in which it sets
// the number of attempts before.
func onlyPrevious(md metadata.MD, n int) context.Context {
	md.Set(previousAttemptsKey, strconv.Itoa(n))
	return metadata.NewOutgoingContext(context.Background(), md)
}

// carried is what outgoing metadata a context has.
type carried int

const (
	carriesUnknown carried = iota
	carriesNone
	carriesMetadata
	carriesPrevious // the caller's own grpc-previous-rpc-attempts among it
)

func carriedBy(ctx context.Context) carried {
	md, ok := metadata.FromOutgoingContext(ctx)
	switch {
	case !ok:
		return carriesNone
	case len(md[previousAttemptsKey]) == 0:
		return carriesMetadata
	default:
		return carriesPrevious
	}
}

// attempt returns the context of attempt number, at least 2, whose outgoing
// metadata tells the server of the attempts before it.
func (p *previousAttempts) attempt(ctx context.Context, number int, has carried) context.Context {
	previous := number - 1
	a := &attemptContext{Context: ctx, number: number}
	switch {
	case has == carriesNone && previous <= len(p):
		a.outgoing = p[previous-1]
	case has == carriesPrevious:
		md, _ := metadata.FromOutgoingContext(ctx) // a copy
		a.outgoing = onlyPrevious(md, previous)
	default:
		a.Context = metadata.AppendToOutgoingContext(ctx, previousAttemptsKey, strconv.Itoa(previous))
	}
	return a
}
