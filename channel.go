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
		grpc.WithStatsHandler(attemptCounter{c}),
	}
	if c.attempts > maxNativeAttempts {
		options = append(options, grpc.WithMaxCallAttempts(c.attempts))
	}
	if !c.resolver {
		options = append(options, grpc.WithDisableServiceConfig())
	}
	return options
}

// ruleFor returns the rule of a call: the channel's own if the method is, or has become,
// the channel's. Methods are given to the channel by options, so that nobody has to be
// asked for a call, except where a resolver decides: there the first call waits until
// the resolver has spoken, as gRPC would let it wait anyway. A caller may have brought
// a policy of its own, which the channel cannot have.
func (c *channel) ruleFor(ctx context.Context, conn *grpc.ClientConn, method string, r *rule) (*rule, error) {
	native := c.rules[method]
	switch {
	case native != nil && r.own:
		return nil, errOwnPolicy
	case native != nil:
		return native, nil
	case !c.resolver || conn == nil || r.own:
		return r, nil
	}
	awaitResolver(ctx, conn)
	config := conn.GetMethodConfig(method).RetryPolicy
	if config == nil {
		return r, nil
	}
	p := r.Policy // whose Timeout and Check are for the whole call
	p.AttemptTimeout = 0
	p.MaxAttempts, p.Repeat, p.Codes = config.MaxAttempts, RepeatAlways, []codes.Code{}
	for code := range config.RetryableStatusCodes {
		p.Codes = append(p.Codes, code)
	}
	return asNative(newRule(r.origin, p)), nil
}

// asNative marks a rule as one that gRPC runs.
func asNative(r *rule) *rule {
	native := *r
	native.native, native.plain = true, false
	return &native
}

// owned tells whether gRPC's own retry has a method, by the service config in force.
func owned(conn *grpc.ClientConn, method string) bool {
	return conn != nil && conn.GetMethodConfig(method).RetryPolicy != nil
}

// errOwnPolicy is the error of calls that want a policy of their own where the channel
// has the method.
var errOwnPolicy = status.Error(codes.Internal,
	"grpcretry: WithCallPolicy: the method is one of WithChannelRetry, whose policy cannot be changed for a call")

// attemptCount counts the attempts that gRPC makes of one.
type attemptCount struct {
	of                 *channel
	method             string
	ended, transparent atomic.Int64
}

// more returns how many there were beyond the one that was asked for: an attempt that
// finds no connection is not told of.
func (a *attemptCount) more() int {
	return int(max(0, a.ended.Load()-a.transparent.Load()-1))
}

// attemptCountKey is the key of an *attemptCount in the contexts of its attempts.
type attemptCountKey struct{}

// counted returns a context whose attempts of a method are counted.
func (c *channel) counted(ctx context.Context, method string) (context.Context, *attemptCount) {
	count := &attemptCount{of: c, method: method}
	return context.WithValue(ctx, attemptCountKey{}, count), count
}

// attemptCounter is the stats handler that counts, for one of the Retriers that may be
// on a connection.
type attemptCounter struct{ of *channel }

// countOf returns what counts the attempt of a context, if it is this handler's.
func (h attemptCounter) countOf(ctx context.Context) *attemptCount {
	if count, ok := ctx.Value(attemptCountKey{}).(*attemptCount); ok && count != nil && count.of == h.of {
		return count
	}
	return nil
}

// TagRPC implements [stats.Handler]. A context may be used for calls of other methods,
// by an interceptor for one, which are not counted.
func (h attemptCounter) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if count := h.countOf(ctx); count != nil && count.method != info.FullMethodName {
		return context.WithValue(ctx, attemptCountKey{}, (*attemptCount)(nil))
	}
	return ctx
}

// HandleRPC implements [stats.Handler].
func (h attemptCounter) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch e := event.(type) {
	case *stats.Begin:
		if count := h.countOf(ctx); count != nil && e.IsTransparentRetryAttempt {
			count.transparent.Add(1)
		}
	case *stats.End:
		if count := h.countOf(ctx); count != nil {
			count.ended.Add(1)
		}
	}
}

// TagConn implements [stats.Handler].
func (attemptCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (attemptCounter) HandleConn(context.Context, stats.ConnStats) {}

// arrangeNative makes the options of a call that gRPC retries, and of no other.
func (c *capture) arrangeNative(opts []grpc.CallOption) {
	own := c.own[:len(c.own)-2] // without what switches gRPC's retry off
	c.options = slices.Clip(slices.Concat(own, forAttempts(opts, true)))
	c.hasHeader, c.asked.more = true, true
}

// forAttempts returns those of the caller's options that are for attempts. If gRPC
// retries, its buffer is among them.
func forAttempts(opts []grpc.CallOption, native bool) []grpc.CallOption {
	return slices.DeleteFunc(slices.Clone(opts), func(opt grpc.CallOption) bool {
		_, buffer := pointee(opt).(grpc.MaxRetryRPCBufferSizeCallOption)
		return held(opt) && !(native && buffer)
	})
}
