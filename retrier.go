// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// Retrier retries the calls of one target's connections. It is safe for
// concurrent use, and made by [New].
type Retrier struct {
	policies       atomic.Pointer[policies]
	observer       Observer
	observed       bool
	attemptContext func(ctx context.Context, attempt int) context.Context
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
		random:         rand.Float64,
		previous:       newPreviousAttempts(),
	}
	r.policies.Store(s.policies())
	r.captures.New = func() any { return newCapture() }
	r.calls.New = func() any { return &unaryCall{} }
	return r, nil
}

// Update replaces all policies, those of methods and services too, by what the
// options say; without options, by the default. It may be called at any time:
// calls under way keep the policy that they began with. Options that set anything
// else are errors, and if there is any error nothing is changed.
func (r *Retrier) Update(opts ...Option) error {
	s, err := gather(true, opts)
	if err != nil {
		return err
	}
	r.policies.Store(s.policies())
	return nil
}

// gather applies options, and lists all that are invalid in one error.
func gather(update bool, opts []Option) (*settings, error) {
	s := &settings{update: update, services: map[string]Policy{}, methods: map[string]Policy{}}
	var problems []error
	for i, opt := range opts {
		if opt == nil {
			problems = append(problems, fmt.Errorf("option %d is nil", i))
			continue
		}
		problems = append(problems, opt.apply(s))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("grpcretry: %w", err)
	}
	return s, nil
}

func (s *settings) policies() *policies {
	return &policies{
		fallback: newRule(s.policy),
		services: newRules(s.services),
		methods:  newRules(s.methods),
	}
}

func newRules(policies map[string]Policy) map[string]*rule {
	rules := make(map[string]*rule, len(policies))
	for name, p := range policies {
		rules[name] = newRule(p)
	}
	return rules
}

// DialOptions returns the options that install the Retrier on a connection:
//
//	conn, err := grpc.NewClient(target, append(retrier.DialOptions(), creds)...)
//
// They switch off gRPC's own retries on that connection, so that attempts do not
// multiply. What gRFC A6 calls a transparent retry goes on: a call that the server
// refused unprocessed is sent again once, at once, without being counted.
//
// The interceptors are chained: those of options given before see one call, those
// of options given after see each attempt. Of several Retriers on a connection
// the first one decides, and the others pass its attempts through.
func (r *Retrier) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(r.UnaryClientInterceptor()),
		grpc.WithDisableRetry(),
	}
}

// UnaryClientInterceptor returns the interceptor for unary calls alone. Prefer
// [Retrier.DialOptions], which also keeps gRPC from retrying a second time.
func (r *Retrier) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return r.unary
}

// Policy returns the policy that calls of a method get, with all defaults filled
// in. The method is named as for [WithMethodPolicy]. The policy may be modified
// and used elsewhere.
func (r *Retrier) Policy(method string) Policy {
	p := r.policies.Load().find(method).Policy
	p.Codes = slices.Clone(p.Codes)
	return p
}

// acquire returns a capture for a call.
func (r *Retrier) acquire() *capture {
	c, _ := r.captures.Get().(*capture)
	return c
}

// release takes a capture back that nobody else holds.
func (r *Retrier) release(c *capture) {
	c.forget()
	r.captures.Put(c)
}
