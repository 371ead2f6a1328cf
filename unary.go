// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"reflect"
	"time"

	"google.golang.org/grpc"
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
		return refuse(opts, errNotMade)
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
	if r.special || !rule.plain {
		return r.unarySpecial(invocation{ctx, method, req, reply, conn, invoker, opts}, rule, guarded, sinks)
	}
	sinks.arrange(opts, guarded || rule.MaxAttempts == 1 || rule.Retryable != nil)
	var start time.Time
	if _, bounded := ctx.Deadline(); bounded || r.observed {
		start = time.Now()
	}
	if err := invoker(ctx, method, req, reply, conn, sinks.options...); err != nil {
		in := invocation{ctx, method, req, reply, conn, invoker, opts}
		return r.retryUnaryFrom(in, rule, sinks, start, err)
	}
	if sinks.asked.held || r.budget != nil {
		r.succeeded(sinks, conn, opts)
	}
	r.release(sinks, conn)
	return nil
}

// succeeded serves what somebody wants of a call whose first attempt succeeded.
func (r *Retrier) succeeded(sinks *capture, conn *grpc.ClientConn, opts []grpc.CallOption) {
	r.budget.succeeded()
	if sinks.asked.held {
		var got results
		if sinks.trusted(nil, conn) {
			got = sinks.results
		}
		got.serve(opts, 1, false)
		finish(opts, nil)
	}
}

// unarySpecial makes a unary call whose first attempt is more than a call of the
// invoker.
func (r *Retrier) unarySpecial(in invocation, rule *rule, guarded bool, sinks *capture) error {
	if r.channel != nil {
		var err error
		if rule, err = r.channel.ruleFor(in.ctx, in.conn, in.method, rule); err != nil {
			r.pass(sinks)
			return r.reject(in.ctx, in.method, in.opts, err)
		}
		if rule.native {
			sinks.arrangeNative(in.opts)
			return r.retryUnary(in, rule, sinks)
		}
	}
	sinks.arrange(in.opts, guarded || rule.MaxAttempts == 1 || rule.Retryable != nil)
	return r.retryUnary(in, rule, sinks)
}

// reject fails a call before its first attempt.
func (r *Retrier) reject(ctx context.Context, method string, opts []grpc.CallOption, err error) error {
	_ = refuse(opts, err)
	if r != nil && r.observer.Done != nil {
		r.observer.Done(ctx, method, nil, err)
	}
	return err
}

// refuse serves the options of a call that fails before its first attempt.
func refuse(opts []grpc.CallOption, err error) error {
	results{}.serve(opts, 0, false)
	finish(opts, err)
	return err
}

// unaryCall is a unary call that is retried. It belongs to the caller's goroutine.
type unaryCall struct {
	call

	req, reply any
	invoker    grpc.UnaryInvoker
	sinks      *capture
}

// keptRecords is for how many records a pooled call keeps the memory.
const keptRecords = 8

func (r *Retrier) newUnaryCall(in invocation, rule *rule, sinks *capture) *unaryCall {
	c, _ := r.calls.Get().(*unaryCall)
	records := c.ledger.records
	*c = unaryCall{
		call: call{
			retrier: r,
			rule:    rule,
			conn:    in.conn,
			opts:    in.opts,
			ctx:     in.ctx,
			ledger:  ledger{method: in.method, records: records},
		},
		req:     in.req,
		reply:   in.reply,
		invoker: in.invoker,
		sinks:   sinks,
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
	*c = unaryCall{call: call{ledger: ledger{records: records[:0]}}}
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
		// Without a connection there is no gRPC below that could go on writing.
		reported := last.reported || c.conn == nil
		if v := c.next(last); v.reason != nil {
			return c.fail(last, v)
		}
		c.renew(reported)
		last = c.attempt()
	}
	c.observe(last)
	c.payBack()
	if c.sinks.asked.held {
		last.serve(c.opts, c.ledger.attempts, false)
	}
	c.done(nil)
	c.retrier.release(c.sinks, c.conn)
	return nil
}

// attempt makes the next attempt and returns its record.
func (c *unaryCall) attempt() *record {
	number, start := c.begin()
	ctx, cancel, err := c.attemptContext(number, start, c.rule.AttemptTimeout, false)
	if err != nil {
		return c.local(start, err)
	}
	defer cancel() // a superseded attempt ends now, whatever still holds on to it
	if channel := c.retrier.channel; channel != nil {
		// gRPC's own retry may have a part in it before its stream exists.
		counted, count := channel.counted(ctx, c.ledger.method)
		err := c.invoker(counted, c.ledger.method, c.req, c.reply, c.conn, c.sinks.options...)
		c.ledger.attempts += count.more()
		return c.end(ctx, start, err)
	}
	return c.end(ctx, start, c.invoker(ctx, c.ledger.method, c.req, c.reply, c.conn, c.sinks.options...))
}

// end takes down the attempt that ran on ctx and has just returned err.
func (c *unaryCall) end(ctx context.Context, start time.Time, err error) *record {
	now := time.Now()
	r := c.measured(start, now)
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
	return c.judged(r, ended(ctx, now) != nil, now, err)
}

// renew makes the reply and the sinks ready for another attempt. From now on the
// header is captured, which tells a refused stream from a status that says so.
func (c *unaryCall) renew(reported bool) {
	reset(c.reply)
	if reported {
		c.sinks.clear()
	} else {
		// Whoever cut the attempt short may still be writing to these sinks.
		c.sinks = c.retrier.acquire()
		c.sinks.take(c.opts)
	}
	if !reported || !c.sinks.hasHeader {
		c.sinks.arrange(c.opts, true)
	}
}

// fail ends the call with the verdict on its last attempt. The capture is left
// to the garbage collector, since an attempt that failed may still write to it.
func (c *unaryCall) fail(last *record, v verdict) error {
	err := c.failure(last, v)
	last.serve(c.opts, c.ledger.attempts, true)
	c.done(err)
	return err
}

// reset empties a reply that an attempt may have filled in part. One that is not a
// message is left alone: only its codec knows what to do with it.
func reset(reply any) {
	if r, ok := reply.(interface{ Reset() }); ok && !reflect.ValueOf(reply).IsZero() {
		r.Reset()
	}
}
