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
	in := invocation{ctx, method, req, reply, conn, invoker, opts}
	sinks := r.acquire()
	rule := sinks.ruleOf(r.policies.Load(), method)
	if own := sinks.take(opts); own != nil {
		if rule = own.rule; rule == nil {
			r.release(sinks)
			return invoker(ctx, method, req, reply, conn, opts...)
		}
		if own.err != nil {
			results{}.serve(opts, 0, false)
			finish(opts, own.err)
			return own.err
		}
	}
	if sinks.wantHeader || rule.Retryable != nil {
		sinks.captureHeader()
	}
	if !rule.plain || r.attemptContext != nil {
		return r.retryUnary(in, rule, sinks)
	}
	var start time.Time
	if _, bounded := ctx.Deadline(); bounded || r.observed {
		start = time.Now()
	}
	if err := invoker(ctx, method, req, reply, conn, sinks.attemptOptions()...); err != nil {
		return r.retryUnaryFrom(in, rule, sinks, start, err)
	}
	if sinks.held {
		sinks.serve(opts, 1, false)
		finish(opts, nil)
	}
	r.release(sinks)
	return nil
}

// unaryCall is a unary call that is retried. It belongs to the caller's goroutine.
type unaryCall struct {
	invocation

	retrier *Retrier
	rule    *rule
	sinks   *capture
	ledger  ledger
	start   time.Time // of the first attempt, or when it failed if it was not timed
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
			if err := c.wait(v.wait, last.kind); err != nil {
				v = verdict{reason: err, ended: true, missed: true}
			}
		}
		if v.reason != nil {
			return c.fail(last, v)
		}
		c.ledger.waited(v)
		c.renew()
		last = c.attempt()
	}
	c.observe(last)
	if c.sinks.held {
		last.serve(c.opts, c.ledger.attempts, false)
	}
	c.done(nil)
	c.retrier.release(c.sinks)
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
	return c.end(ctx, start, c.invoker(ctx, c.method, c.req, c.reply, c.conn, c.sinks.attemptOptions()...))
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
	c.at = c.moment(now)
	r := record{start: start}
	if start.IsZero() {
		start = now
	}
	r.duration = now.Sub(start)
	if c.start.IsZero() {
		c.start = start
	}
	if err == nil && c.rule.Check != nil {
		if err = c.rule.Check(c.reply); err != nil {
			r.refused = true
			reset(c.reply)
		}
	}
	r.reported = c.sinks.reported.Load()
	if err == nil || r.refused || r.reported {
		r.results = c.sinks.results
	}
	if err != nil {
		r.judge(err, c.at.ended != nil, ended(ctx, now) != nil)
		r.listed = r.refused || c.rule.lists(r.status.Code())
	}
	return c.ledger.end(r)
}

// wait waits before the next attempt, and returns the error of the call's context
// if that ends first.
func (c *unaryCall) wait(d time.Duration, after Kind) error {
	c.waited = d > 0
	if err := sleep(c.ctx, d); err != nil {
		return err
	}
	if after == Connect && c.conn != nil && c.rule.ConnectWait > 0 {
		limit := c.rule.ConnectWait
		if c.rule.AttemptTimeout > 0 {
			limit = min(limit, c.rule.AttemptTimeout)
		}
		awaitReady(c.ctx, c.conn, limit)
		c.waited = true
	}
	return c.ctx.Err()
}

// moment returns what decide may know at a time.
func (c *unaryCall) moment(now time.Time) moment {
	deadline, _ := c.ctx.Deadline()
	return moment{now: now, deadline: deadline, ended: ended(c.ctx, now), random: c.retrier.random()}
}

// renew makes the reply and the sinks ready for another attempt.
func (c *unaryCall) renew() {
	reset(c.reply)
	if c.ledger.last().reported {
		c.sinks.clear()
		return
	}
	// Whoever cut the attempt short may still be writing to these sinks.
	c.sinks = c.retrier.acquire()
	c.sinks.take(c.opts)
	if c.sinks.wantHeader || c.rule.Retryable != nil {
		c.sinks.captureHeader()
	}
}

// fail ends the call with the verdict on its last attempt. The capture is left
// to the garbage collector, since an attempt that failed may still write to it.
func (c *unaryCall) fail(last *record, v verdict) error {
	err := last.err
	if c.ledger.attempts > 1 || v.missed {
		err = newError(&c.ledger, v, time.Since(c.start))
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

// sleep waits, and returns the error of the context if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err()
}

// reset empties a reply that an attempt may have filled in part.
func reset(reply any) {
	v := reflect.ValueOf(reply)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return // nothing that an attempt could have filled
	}
	if r, ok := reply.(interface{ Reset() }); ok {
		r.Reset()
		return
	}
	v.Elem().SetZero()
}
