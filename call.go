// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"reflect"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call is how far a call has come, unary or stream: its attempts, what it may
// still do, and whom it tells. It is used by one goroutine at a time.
type call struct {
	retrier *Retrier
	rule    *rule
	conn    *grpc.ClientConn
	opts    []grpc.CallOption
	ctx     context.Context // the caller's, ended by Policy.Timeout too
	ledger  ledger
	start   time.Time // of the first attempt, or its end if untimed
	untimed bool      // nobody read the clock when the first attempt began
	at      moment    // when the last attempt ended
	waited  bool      // time has passed since then
	carried carried   // by ctx
	alone   bool      // gRPC's own retry has no part in it once there is a stream
}

// begin counts the next attempt, and returns its number and when it starts.
func (c *call) begin() (number int, start time.Time) {
	start = c.at.now
	if start.IsZero() || c.waited {
		start, c.waited = time.Now(), false
	}
	return c.ledger.begin(), start
}

// attemptContext returns the context of an attempt that starts now. That of the
// first is the call's own, as long as nobody asked for anything else.
func (c *call) attemptContext(
	number int, now time.Time, timeout time.Duration, cancelable bool,
) (context.Context, context.CancelFunc, error) {
	ctx := c.ctx
	if c.retrier.attemptContext != nil {
		if ctx = c.retrier.attemptContext(ctx, number); ctx == nil {
			return nil, nil, status.Errorf(codes.Internal,
				"grpcretry: WithAttemptContext's function returned nil for attempt %d", number)
		}
	}
	cancel := context.CancelFunc(func() {})
	deadline, bounded := ctx.Deadline()
	switch {
	case timeout > 0 && !(bounded && deadline.Sub(now) <= timeout):
		ctx, cancel = context.WithTimeout(ctx, timeout)
	case number > 1 || cancelable:
		ctx, cancel = context.WithCancel(ctx)
	}
	if number > 1 {
		if c.carried == carriesUnknown || c.retrier.attemptContext != nil {
			c.carried = carriedBy(ctx)
		}
		ctx = c.retrier.previous.attempt(ctx, number, c.carried)
	}
	return ctx, cancel, nil
}

// local adds the record of an attempt that failed here: it could not even begin, or
// its input could not go on.
func (c *call) local(start time.Time, err error) *record {
	now := time.Now()
	c.at = c.moment(now)
	r := c.measured(start, now)
	r.outcome = madeLocally(err)
	return c.ledger.end(r)
}

// measured returns the record of an attempt that ends now.
func (c *call) measured(start, now time.Time) record {
	r := record{start: start}
	if start.IsZero() {
		start, c.untimed = now, true
	}
	r.duration = now.Sub(start)
	if c.start.IsZero() {
		c.start = start
	}
	return r
}

// judged adds the record of an attempt that ended at a time, and failed if err is
// not nil. over tells whether the attempt's context had ended by then.
func (c *call) judged(r record, over bool, now time.Time, err error) *record {
	c.at = c.moment(now)
	if err != nil {
		r.judge(err, c.at.ended != nil, over)
		r.listed = r.refused || c.rule.lists(r.status.Code())
		c.charge(&r)
		if c.retrier.channel != nil {
			c.askOwner(&r)
		}
	}
	return c.ledger.end(r)
}

// charge takes what a failure costs the retry budget: one that the policy would retry,
// or whose server asks for no retry. One that is made again without being counted costs
// nothing, nor does one that no server has to do with.
func (c *call) charge(r *record) {
	if c.retrier.budget == nil || c.rule.native || c.rule.MaxAttempts == 1 ||
		r.kind == Local || r.unprocessed && !c.ledger.resent {
		return
	}
	if r.listed || r.demand().stop != "" || c.rule.retries(&c.ledger, r) {
		c.retrier.budget.failed()
	}
	c.at.throttled = c.retrier.budget.refuses()
}

// payBack pays back to the retry budget what a success does.
func (c *call) payBack() {
	if !c.rule.native {
		c.retrier.budget.succeeded()
	}
}

// askOwner asks which layer retries the method, since a service config may have changed
// that. Calls that succeed need not know.
func (c *call) askOwner(r *record) {
	c.at.owned = !(c.alone && r.stream()) && owned(c.conn, c.ledger.method)
	if notice := c.retrier.observer.Notice; notice != nil && c.conn != nil && c.at.owned != c.rule.native {
		text := "has no retryPolicy for this method of WithChannelRetry, so that nobody retries it"
		if c.at.owned {
			text = "has a retryPolicy for this method, so that the suite does not retry it"
		}
		notice(c.ctx, c.ledger.method, "the service config in force "+text)
	}
}

// next decides what follows a failed attempt, tells the observer, and waits if
// another attempt is to be made: then the verdict has no reason.
func (c *call) next(last *record) verdict {
	v := decide(c.rule, &c.ledger, last, c.at)
	if v.resend {
		c.ledger.again()
		return v
	}
	last.wait = v.wait
	c.observe(last)
	if v.reason == nil {
		v = c.wait(last, v)
	}
	if v.reason == nil {
		c.ledger.waited(v)
	}
	return v
}

// wait waits before the next attempt. It returns a verdict with a reason if the
// call's context ends first, or if the policy's or the observer's own functions
// took so long that the wait no longer fits.
func (c *call) wait(after *record, v verdict) verdict {
	if c.retrier.observed || c.rule.Retryable != nil || c.rule.Backoff.Delay != nil {
		c.at = c.moment(time.Now())
		if reason := c.rule.overlong(v.wait, demand{}, c.at); reason != nil {
			after.wait = 0
			if c.at.ended != nil {
				return verdict{reason: c.at.ended, ended: true, missed: true}
			}
			return verdict{reason: reason, missed: true}
		}
	}
	c.waited = v.wait > 0
	err := sleep(c.ctx, c.conn, v.wait)
	if err == nil && after.kind == Connect && c.conn != nil && c.rule.ConnectWait > 0 {
		limit := c.rule.ConnectWait
		if c.rule.AttemptTimeout > 0 {
			limit = min(limit, c.rule.AttemptTimeout)
		}
		start := time.Now()
		awaitReady(c.ctx, c.conn, limit)
		after.wait += time.Since(start)
		c.waited = true
		err = ended(c.ctx, time.Now())
	}
	if err != nil {
		return verdict{reason: err, ended: true, missed: true}
	}
	return v
}

// moment returns what decide may know at a time.
func (c *call) moment(now time.Time) moment {
	deadline, _ := c.ctx.Deadline()
	return moment{now: now, deadline: deadline, ended: ended(c.ctx, now), random: c.retrier.random()}
}

// failure returns the error of the call, whose last attempt failed with the verdict.
func (c *call) failure(last *record, v verdict) error {
	err := last.err
	if c.ledger.attempts > 1 || v.missed {
		err = newError(&c.ledger, v, time.Since(c.start), !c.untimed)
	}
	if wrap := c.retrier.wrap; wrap != nil {
		if wrapped := wrap(c.ctx, c.ledger.method, v.reason, err); wrappedIn(wrapped, err) && !passesForEnd(wrapped) {
			return wrapped
		}
	}
	return err
}

// wrappedIn tells whether an error is another, or is wrapped in it. Of one that cannot be compared, as
// an interceptor may return it, nobody knows.
func wrappedIn(outer, err error) bool {
	return outer != nil && reflect.ValueOf(err).Comparable() && errors.Is(outer, err)
}

// observe tells the observer of an attempt that ended.
func (c *call) observe(r *record) {
	if hook := c.retrier.observer.Attempt; hook != nil && (r.err != nil || r.number > 1) {
		hook(c.ctx, c.ledger.method, c.ledger.attempt(r))
	}
}

// done tells the caller's options and the observer that the call is over.
func (c *call) done(err error) {
	finish(c.opts, err)
	if hook := c.retrier.observer.Done; hook != nil && (err != nil || c.ledger.attempts > 1) {
		hook(c.ctx, c.ledger.method, c.ledger.history(), err)
	}
}

// ended returns the error of a context that is over at a time. A deadline that
// has been reached counts before the context's own timer has noticed: the
// server's timer may be the first of the two.
func ended(ctx context.Context, now time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !now.Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
