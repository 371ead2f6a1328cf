// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/internal/replay"
)

// Retrier retries calls. It is made by [New], safe for concurrent use, and may
// serve any number of connections; targets that need different policies need a
// Retrier each. One that New did not make, or nil, fails all its calls with
// INTERNAL.
type Retrier struct {
	policies       atomic.Pointer[policies]
	observer       Observer
	observed       bool
	special        bool // no attempt is nothing but a call of the invoker
	attemptContext func(ctx context.Context, attempt int) context.Context
	wrap           func(ctx context.Context, method string, reason, err error) error
	buffer         Buffer
	buffered       *replay.Account
	disk           replay.Disk
	budget         *bucket        // nil for any number of retries
	config         *serviceConfig // of WithServiceConfig; nil without
	channel        *channel       // nil if gRPC retries nothing
	random         func() float64 // in [0, 1)
	previous       *previousAttempts
	captures       sync.Pool // of *capture
	calls          sync.Pool // of *unaryCall
}

// New returns a Retrier. If options are invalid, the error lists every one of
// them with its value.
func New(opts ...Option) (*Retrier, error) {
	s, err := gather(false, opts)
	if err != nil {
		return nil, err
	}
	r := &Retrier{
		observer:       s.observer,
		observed:       s.observer.Attempt != nil || s.observer.Done != nil,
		attemptContext: s.attemptContext,
		wrap:           s.wrap,
		buffer:         s.buffer.withDefaults(),
		random:         rand.Float64,
		previous:       newPreviousAttempts(),
		config:         s.config,
	}
	r.buffered = replay.NewAccount(r.buffer.Total)
	r.disk = replay.Disk{Limit: r.buffer.Disk, Create: replay.TempFile}
	if s.throttle != nil {
		r.budget = newBucket(*s.throttle)
	}
	policies := s.policies()
	r.policies.Store(policies)
	if len(s.channel) > 0 {
		if r.channel, err = newChannel(s, policies); err != nil {
			return nil, fmt.Errorf("grpcretry: %w", err)
		}
	}
	r.special = r.channel != nil || r.attemptContext != nil
	r.captures.New = func() any { return newCapture() }
	r.calls.New = func() any { return &unaryCall{} }
	return r, nil
}

// Update replaces all policies, those of methods and services too, by what the
// options say; without options, by the default. It may be called at any time:
// calls under way keep the policy that they began with. Methods of [WithChannelRetry]
// keep theirs, and timeouts of [WithServiceConfig] stay where a policy has none. Options
// that set anything else are errors, and if there is any error nothing is changed.
func (r *Retrier) Update(opts ...Option) error {
	if r.current() == nil {
		return errNotMade
	}
	s, err := gather(true, opts)
	if err != nil {
		return err
	}
	for name := range s.methods {
		if r.channel != nil && r.channel.rules["/"+name] != nil {
			return fmt.Errorf("grpcretry: WithMethodPolicy(%q): "+
				"the channel has the method, and its policy cannot be updated", name)
		}
	}
	s.config = r.config // its timeouts are still in force
	r.policies.Store(s.policies())
	return nil
}

// gather applies options, and lists all that are invalid in one error.
func gather(update bool, opts []Option) (*settings, error) {
	s := &settings{update: update, services: map[string]namedPolicy{}, methods: map[string]namedPolicy{}}
	var problems []error
	for i, opt := range opts {
		if opt == nil {
			problems = append(problems, fmt.Errorf("option %d is nil", i))
			continue
		}
		problems = append(problems, opt.apply(s))
	}
	if s.resolver && len(s.channel) == 0 {
		problems = append(problems, errors.New("WithResolverConfig: there is no WithChannelRetry that it is for"))
	}
	problems = append(problems, s.throttleOfConfig())
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("grpcretry: %w", err)
	}
	return s, nil
}

// throttleOfConfig takes over the throttle of a service config, if there is no other.
func (s *settings) throttleOfConfig() error {
	if s.throttle != nil || s.config == nil || s.config.throttling == nil {
		return nil
	}
	t := Throttle(*s.config.throttling)
	if t.TokenRatio > 0 {
		t.TokenRatio = max(t.TokenRatio, 1.0/tokenScale) // gRPC takes less
	}
	s.throttle = &t
	if err := t.problems(); err != nil {
		return fmt.Errorf("WithServiceConfig: retryThrottling: %w", err)
	}
	return nil
}

func (s *settings) policies() *policies {
	p := &policies{
		fallback: s.policy.rule(),
		services: newRules(s.services),
		methods:  newRules(s.methods),
	}
	s.config.limit(p)
	return p
}

func newRules(policies map[string]namedPolicy) map[string]*rule {
	rules := make(map[string]*rule, len(policies))
	for name, p := range policies {
		rules[name] = p.rule()
	}
	return rules
}

// DialOptions returns the options that install the Retrier on a connection:
//
//	conn, err := grpc.NewClient(target, append(retrier.DialOptions(), creds)...)
//
// They switch off gRPC's own retries on that connection, except for the methods of
// [WithChannelRetry], so that attempts do not multiply. What gRFC A6 calls a transparent
// retry goes on: a call that the server refused unprocessed is sent again once, at once,
// without being counted.
//
// The interceptors are chained: chained ones of options given before see one call,
// those of options given after see each attempt. (What grpc.WithUnaryInterceptor
// and grpc.WithStreamInterceptor install always comes before all chained ones.) A stats handler sees attempts.
// Of several Retriers on a connection the first one decides, and the others pass
// its attempts through.
func (r *Retrier) DialOptions() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(r.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(r.StreamClientInterceptor()),
	}
	switch {
	case r.current() != nil && r.channel != nil:
		return append(options, r.channel.dialOptions()...)
	case r.current() != nil && r.config != nil:
		options = append(options, grpc.WithDefaultServiceConfig(r.config.withoutRetries().String()))
	}
	return append(options, grpc.WithDisableRetry())
}

// UnaryClientInterceptor returns the interceptor for unary calls alone. Prefer
// [Retrier.DialOptions], which also keeps gRPC from retrying a second time.
func (r *Retrier) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return r.unary
}

// StreamClientInterceptor returns the interceptor for streams alone. Prefer
// [Retrier.DialOptions].
func (r *Retrier) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return r.stream
}

// Policy returns the policy that calls of a method get, with all defaults filled
// in. The method is named as for [WithMethodPolicy]. The policy may be modified
// and used elsewhere.
func (r *Retrier) Policy(method string) Policy {
	policies := r.current()
	if policies == nil {
		return Policy{}.withDefaults()
	}
	p := policies.find(method).Policy
	if r.channel != nil {
		if native := r.channel.rules["/"+strings.TrimPrefix(method, "/")]; native != nil {
			p = native.Policy
		}
	}
	p.Codes = slices.Clone(p.Codes)
	return p
}

// errNotMade is the error of all calls through a Retrier that New did not make.
var errNotMade = status.Error(codes.Internal, "grpcretry: the Retrier was not made by New")

// current returns the policies in force; nil if New did not make the Retrier.
func (r *Retrier) current() *policies {
	if r == nil {
		return nil
	}
	return r.policies.Load()
}

// acquire returns a capture for a call.
func (r *Retrier) acquire() *capture {
	c, _ := r.captures.Get().(*capture)
	return c
}

// release takes the capture of a call back that succeeded, unless an interceptor
// below may still use it. Without a connection there is no gRPC that could.
func (r *Retrier) release(c *capture, conn *grpc.ClientConn) {
	if c.trusted(nil, conn) && c.intact() {
		c.forget()
		r.captures.Put(c)
	}
}

// pass takes back the capture of a call that passes through and never saw it.
func (r *Retrier) pass(c *capture) {
	c.forget()
	r.captures.Put(c)
}
