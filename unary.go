// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"reflect"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// invocation is a unary call as its caller made it.
type invocation struct {
	ctx        context.Context
	method     string
	req, reply any
	conn       *grpc.ClientConn
	invoker    grpc.UnaryInvoker
	opts       []grpc.CallOption
}

// unary is the unary interceptor. A call whose policy asks for nothing special
// makes its first attempt right here; if that succeeds, it has cost no allocation
// and, without a deadline, no look at the clock.
func (r *Retrier) unary(
	ctx context.Context, method string, req, reply any,
	conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	policies := r.current()
	if policies == nil {
		return errNotMade
	}
	sinks := r.acquire()
	rule, guarded := sinks.ruleOf(policies, method)
	if own := sinks.take(opts); own != nil {
		if rule = own.rule; rule == nil {
			r.pass(sinks)
			return invoker(ctx, method, req, reply, conn, opts...)
		}
		if own.err != nil {
			r.pass(sinks)
			return r.reject(ctx, method, opts, own.err)
		}
		guarded = policies.guards(rule, method)
	}
	sinks.arrange(opts, guarded || rule.MaxAttempts == 1 || rule.Retryable != nil)
	if !rule.plain || r.attemptContext != nil {
		return r.retryUnary(invocation{ctx, method, req, reply, conn, invoker, opts}, rule, sinks)
	}
	var start time.Time
	if _, bounded := ctx.Deadline(); bounded || r.observed {
		start = time.Now()
	}
	if err := invoker(ctx, method, req, reply, conn, sinks.options...); err != nil {
		in := invocation{ctx, method, req, reply, conn, invoker, opts}
		return r.retryUnaryFrom(in, rule, sinks, start, err)
	}
	if sinks.asked.held {
		var got results
		if sinks.trusted(nil, conn) {
			got = sinks.results
		}
		got.serve(opts, 1, false)
		finish(opts, nil)
	}
	r.release(sinks, conn)
	return nil
}

// reject fails a call before its first attempt.
func (r *Retrier) reject(ctx context.Context, method string, opts []grpc.CallOption, err error) error {
	results{}.serve(opts, 0, false)
	finish(opts, err)
	if r.observer.Done != nil {
		r.observer.Done(ctx, method, nil, err)
	}
	return err
}

// unaryCall is a unary call that is retried. It belongs to the caller's goroutine.
type unaryCall struct {
	invocation

	retrier *Retrier
	rule    *rule
	sinks   *capture
	ledger  ledger
	start   time.Time // of the first attempt, or its end if untimed
	untimed bool      // nobody read the clock when the first attempt began
	at      moment    // when the last attempt ended
	waited  bool      // time has passed since then
	carried carried   // by ctx
}

// keptRecords is for how many records a pooled call keeps the memory.
const keptRecords = 8

func (r *Retrier) newUnaryCall(in invocation, rule *rule, sinks *capture) *unaryCall {
	c, _ := r.calls.Get().(*unaryCall)
	records := c.ledger.records
	*c = unaryCall{
		invocation: in,
		retrier:    r,
		rule:       rule,
		sinks:      sinks,
		ledger:     ledger{method: in.method, records: records},
	}
	return c
}

// freeUnaryCall takes a call back, without anything of it but memory.
func (r *Retrier) freeUnaryCall(c *unaryCall) {
	records := c.ledger.records
	if cap(records) > keptRecords {
		records = nil
	}
	clear(records)
	*c = unaryCall{ledger: ledger{records: records[:0]}}
	r.calls.Put(c)
}

// retryUnary makes a unary call.
func (r *Retrier) retryUnary(in invocation, rule *rule, sinks *capture) error {
	call := r.newUnaryCall(in, rule, sinks)
	defer r.freeUnaryCall(call)
	if rule.Timeout > 0 {
		ctx, cancel := context.WithTimeout(in.ctx, rule.Timeout)
		defer cancel()
		call.ctx = ctx
	}
	return call.run(call.attempt())
}

// retryUnaryFrom goes on with a unary call whose first attempt has failed.
func (r *Retrier) retryUnaryFrom(in invocation, rule *rule, sinks *capture, start time.Time, err error) error {
	call := r.newUnaryCall(in, rule, sinks)
	defer r.freeUnaryCall(call)
	call.ledger.begin()
	return call.run(call.end(in.ctx, start, err))
}

// run makes attempts, the first of which has ended, until one succeeds or none
// may follow.
func (c *unaryCall) run(last *record) error {
	for last.err != nil {
		v := decide(c.rule, &c.ledger, last, c.at)
		if v.resend {
			c.renew()
			c.ledger.again()
			last = c.attempt()
			continue
		}
		last.wait = v.wait
		c.observe(last)
		if v.reason == nil {
			v = c.wait(last, v)
		}
		if v.reason != nil {
			return c.fail(last, v)
		}
		c.ledger.waited(v)
		c.renew()
		last = c.attempt()
	}
	c.observe(last)
	if c.sinks.asked.held {
		last.serve(c.opts, c.ledger.attempts, false)
	}
	c.done(nil)
	c.retrier.release(c.sinks, c.conn)
	return nil
}

// attempt makes the next attempt and returns its record.
func (c *unaryCall) attempt() *record {
	number := c.ledger.begin()
	start := c.at.now
	if start.IsZero() || c.waited {
		start, c.waited = time.Now(), false
	}
	ctx, cancel, err := c.attemptContext(number, start)
	if err != nil {
		c.at = c.moment(time.Now())
		return c.ledger.end(record{
			start:   start,
			outcome: outcome{err: err, status: status.Convert(err), kind: Local},
		})
	}
	defer cancel() // a superseded attempt ends now, whatever still holds on to it
	return c.end(ctx, start, c.invoker(ctx, c.method, c.req, c.reply, c.conn, c.sinks.options...))
}

// attemptContext returns the context of an attempt that starts now. That of the
// first is the call's own, as long as nobody asked for anything else.
func (c *unaryCall) attemptContext(number int, now time.Time) (context.Context, context.CancelFunc, error) {
	ctx := c.ctx
	if c.retrier.attemptContext != nil {
		if ctx = c.retrier.attemptContext(ctx, number); ctx == nil {
			return nil, nil, status.Errorf(codes.Internal,
				"grpcretry: WithAttemptContext's function returned nil for attempt %d", number)
		}
	}
	cancel := context.CancelFunc(func() {})
	deadline, bounded := ctx.Deadline()
	switch timeout := c.rule.AttemptTimeout; {
	case timeout > 0 && !(bounded && deadline.Sub(now) <= timeout):
		ctx, cancel = context.WithTimeout(ctx, timeout)
	case number > 1:
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

// end takes down the attempt that ran on ctx and has just returned err.
func (c *unaryCall) end(ctx context.Context, start time.Time, err error) *record {
	now := time.Now()
	r := record{start: start}
	if start.IsZero() {
		start, c.untimed = now, true
	}
	r.duration = now.Sub(start)
	if c.start.IsZero() {
		c.start = start
	}
	r.reported = c.sinks.reported(err)
	if c.sinks.trusted(err, c.conn) {
		r.results = c.sinks.results
	}
	if err == nil && c.rule.Check != nil {
		if err = c.rule.Check(c.reply); err != nil {
			r.refused = true
			reset(c.reply)
			now = time.Now()
		}
	}
	c.at = c.moment(now)
	if err != nil {
		r.judge(err, c.at.ended != nil, ended(ctx, now) != nil)
		r.listed = r.refused || c.rule.lists(r.status.Code())
	}
	return c.ledger.end(r)
}

// wait waits before the next attempt. It returns a verdict with a reason if the
// call's context ends first, or if the policy's or the observer's own functions
// took so long that the wait no longer fits.
func (c *unaryCall) wait(after *record, v verdict) verdict {
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
		err = c.ctx.Err()
	}
	if err != nil {
		return verdict{reason: err, ended: true, missed: true}
	}
	return v
}

// moment returns what decide may know at a time.
func (c *unaryCall) moment(now time.Time) moment {
	deadline, _ := c.ctx.Deadline()
	return moment{now: now, deadline: deadline, ended: ended(c.ctx, now), random: c.retrier.random()}
}

// renew makes the reply and the sinks ready for another attempt. From now on the
// header is captured, which tells a refused stream from a status that says so.
func (c *unaryCall) renew() {
	reset(c.reply)
	if c.ledger.last().reported {
		c.sinks.clear()
	} else {
		// Whoever cut the attempt short may still be writing to these sinks.
		c.sinks = c.retrier.acquire()
		c.sinks.take(c.opts)
	}
	if !c.sinks.hasHeader {
		c.sinks.arrange(c.opts, true)
	}
}

// fail ends the call with the verdict on its last attempt. The capture is left
// to the garbage collector, since an attempt that failed may still write to it.
func (c *unaryCall) fail(last *record, v verdict) error {
	err := last.err
	if c.ledger.attempts > 1 || v.missed {
		err = newError(&c.ledger, v, time.Since(c.start), !c.untimed)
	}
	last.serve(c.opts, c.ledger.attempts, true)
	c.done(err)
	return err
}

// observe tells the observer of an attempt that ended.
func (c *unaryCall) observe(r *record) {
	if hook := c.retrier.observer.Attempt; hook != nil && (r.err != nil || r.number > 1) {
		hook(c.ctx, c.method, c.ledger.attempt(r))
	}
}

// done tells the caller's options and the observer that the call is over.
func (c *unaryCall) done(err error) {
	finish(c.opts, err)
	if hook := c.retrier.observer.Done; hook != nil && (err != nil || c.ledger.attempts > 1) {
		hook(c.ctx, c.method, c.ledger.history(), err)
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

// reset empties a reply that an attempt may have filled in part. One that is not a
// message is left alone: only its codec knows what to do with it.
func reset(reply any) {
	if r, ok := reply.(interface{ Reset() }); ok && !reflect.ValueOf(reply).IsZero() {
		r.Reset()
	}
}
