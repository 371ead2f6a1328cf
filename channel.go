// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// channel is what a Retrier knows of the methods whose calls gRPC retries itself, in
// the channel. One layer retries a method, never both.
type channel struct {
	rules    map[string]*rule // by "/pkg.Service/Method"; native, all of them
	config   string           // for the connection
	attempts int              // the largest number of a rule's
	resolver bool             // the resolver's config wins over ours
}

// dialOptions installs the channel's part.
func (c *channel) dialOptions() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithDefaultServiceConfig(c.config),
		grpc.WithStatsHandler(attemptCounter{}),
	}
	if c.attempts > maxNativeAttempts {
		options = append(options, grpc.WithMaxCallAttempts(c.attempts))
	}
	if !c.resolver {
		options = append(options, grpc.WithDisableServiceConfig())
	}
	return options
}

// ruleFor returns the rule of a call, for which the caller may have brought a policy of
// its own, which the channel cannot have.
func (c *channel) ruleFor(conn *grpc.ClientConn, method string, r *rule) (*rule, error) {
	if r.own && c.rules[method] != nil {
		return nil, errOwnPolicy
	}
	return c.ruleOf(conn, method, r), nil
}

// ruleOf returns the rule of a call: the channel's own if the method is, or has become,
// the channel's. Methods are given to the channel by options, so that nobody has to be
// asked for a call, except where a resolver decides.
func (c *channel) ruleOf(conn *grpc.ClientConn, method string, r *rule) *rule {
	if native := c.rules[method]; native != nil {
		return native
	}
	if !c.resolver || conn == nil {
		return r
	}
	config := conn.GetMethodConfig(method).RetryPolicy
	if config == nil {
		return r
	}
	p := Policy{MaxAttempts: config.MaxAttempts, Repeat: RepeatAlways, Codes: []codes.Code{}}
	for code := range config.RetryableStatusCodes {
		p.Codes = append(p.Codes, code)
	}
	native := newRule("", p)
	native.native, native.plain = true, false
	return native
}

// owned tells whether gRPC's own retry has a method, by the service config in force.
func owned(conn *grpc.ClientConn, method string) bool {
	return conn != nil && conn.GetMethodConfig(method).RetryPolicy != nil
}

// errOwnPolicy is the error of calls that want a policy of their own where the channel
// has the method.
var errOwnPolicy = status.Error(codes.Internal,
	"grpcretry: WithCallPolicy: the method is one of WithChannelRetry, whose policy cannot be changed for a call")

// attemptCount counts the attempts that gRPC makes of one call.
type attemptCount struct {
	ended, transparent atomic.Int64
}

// attempts returns how many there were, at least one: an attempt that finds no
// connection is not told of.
func (a *attemptCount) attempts() int {
	return int(max(1, a.ended.Load()-a.transparent.Load()))
}

// attemptCountKey is the key of a call's *attemptCount in the contexts of its attempts.
type attemptCountKey struct{}

// counted returns a context whose attempts are counted.
func counted(ctx context.Context) (context.Context, *attemptCount) {
	count := &attemptCount{}
	return context.WithValue(ctx, attemptCountKey{}, count), count
}

// attemptCounter is the stats handler that counts.
type attemptCounter struct{}

// TagRPC implements [stats.Handler].
func (attemptCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (attemptCounter) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch e := event.(type) {
	case *stats.Begin:
		if count, ok := ctx.Value(attemptCountKey{}).(*attemptCount); ok && e.IsTransparentRetryAttempt {
			count.transparent.Add(1)
		}
	case *stats.End:
		if count, ok := ctx.Value(attemptCountKey{}).(*attemptCount); ok {
			count.ended.Add(1)
		}
	}
}

// TagConn implements [stats.Handler].
func (attemptCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (attemptCounter) HandleConn(context.Context, stats.ConnStats) {}

// channelUnary makes a unary call that gRPC retries, and tells of it as of any other. If
// there is something against the call, it fails.
func (r *Retrier) channelUnary(in invocation, rule *rule, sinks *capture, against error) error {
	if against != nil {
		r.pass(sinks)
		return r.reject(in.ctx, in.method, in.opts, against)
	}
	c := r.newUnaryCall(in, rule, sinks)
	defer r.freeUnaryCall(c)
	ctx, count := counted(in.ctx)
	_, start := c.begin()
	err := in.invoker(ctx, in.method, in.req, in.reply, in.conn, sinks.channelOptions(in.opts)...)
	c.ledger.attempts = count.attempts()
	last := c.end(ctx, start, err)
	if last.err == nil {
		return c.run(last)
	}
	v := decide(rule, &c.ledger, last, c.at)
	c.observe(last)
	return c.fail(last, v)
}

// channelOptions returns what a call passes on that gRPC retries.
func (c *capture) channelOptions(opts []grpc.CallOption) []grpc.CallOption {
	own := c.own[:len(c.own)-2] // without what switches gRPC's retry off
	return slices.Clip(slices.Concat(own, forAttempts(opts, true)))
}

// forAttempts returns those of the caller's options that are for attempts. If gRPC
// retries, its buffer is among them.
func forAttempts(opts []grpc.CallOption, native bool) []grpc.CallOption {
	return slices.DeleteFunc(slices.Clone(opts), func(opt grpc.CallOption) bool {
		_, buffer := pointee(opt).(grpc.MaxRetryRPCBufferSizeCallOption)
		return held(opt) && !(native && buffer)
	})
}
