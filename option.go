// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Option configures a [Retrier]. Of two options that set the same thing the
// later one counts.
type Option interface {
	apply(*settings) error
}

// settings is what options write and [New] reads.
type settings struct {
	update bool // only policies may be set

	policy         namedPolicy
	services       map[string]namedPolicy
	methods        map[string]namedPolicy
	buffer         Buffer
	throttle       *Throttle
	config         *serviceConfig // the user's
	channel        []string       // names of methods that gRPC retries
	resolver       bool
	observer       Observer
	attemptContext func(ctx context.Context, attempt int) context.Context
	wrap           func(ctx context.Context, method string, reason, err error) error
}

// namedPolicy is a policy and the option that it came from.
type namedPolicy struct {
	origin string
	policy Policy
}

func (p namedPolicy) rule() *rule {
	if p.origin == "" {
		return newRule("", p.policy)
	}
	return newRule(" in "+p.origin, p.policy)
}

type optionFunc func(*settings) error

func (f optionFunc) apply(s *settings) error { return f(s) }

// mustBeNew is the error of an option that Update cannot change.
func (s *settings) mustBeNew(option string) error {
	if s.update {
		return fmt.Errorf("%s: only policies can be updated", option)
	}
	return nil
}

// WithPolicy sets the policy of every method that has none of its own. The
// default is the zero [Policy].
func WithPolicy(p Policy) Option {
	return optionFunc(func(s *settings) error {
		s.policy = namedPolicy{"WithPolicy", p}
		return problemsOf("WithPolicy", p)
	})
}

// WithMethodPolicy sets the policy of one method, "pkg.Service/Method" or the
// constant that generated code has for it (like Greeter_SayHello_FullMethodName),
// or of all methods of a service, "pkg.Service". A method's policy replaces its
// service's, and that the default; nothing is merged. A method that its service,
// if linked into the program, does not have is an error; the name of a service that
// is not linked cannot be checked. [Retrier.Policy] tells what a method gets.
func WithMethodPolicy(name string, p Policy) Option {
	return optionFunc(func(s *settings) error {
		origin := fmt.Sprintf("WithMethodPolicy(%q)", name)
		problems := problemsOf(origin, p)
		canonical, err := checkName(name)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", origin, err), problems)
		}
		if err := suitsLinked(canonical, p.Recovery); err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", origin, err))
		}
		if strings.Contains(canonical, "/") {
			s.methods[canonical] = namedPolicy{origin, p}
		} else {
			s.services[canonical] = namedPolicy{origin, p}
		}
		return problems
	})
}

// suitsLinked returns why a method, if its generated code is linked into the program,
// cannot have a Recovery; nil if it can. A service may have methods of all kinds.
func suitsLinked(name string, r Recovery) error {
	if method := linkedMethod(name); method != nil {
		return r.suits(name, method.IsStreamingClient(), method.IsStreamingServer())
	}
	return nil
}

// WithChannelRetry leaves methods to gRPC's own retry, which runs their policies in the
// channel: for calls that shall be retried without an interceptor. Names are those of
// [WithMethodPolicy]; a service means its unary and server-streaming methods. A method
// must be linked, may not be a stream of requests, its policy must allow to repeat it,
// and have no field that gRPC cannot honour. The default is none.
//
// gRPC does less for these methods than the suite for others: a failure that it gave up
// on has another text, and now and then another status, UNKNOWN with "EOF", where an
// attempt ended while it was sent again; one after the server's headers is not retried,
// whoever has seen them; [Error] has no history but the number of
// attempts and the last failure, a google.rpc.RetryInfo is not obeyed, waits exceed
// deadlines, and what was sent beyond 256 KiB is not sent again
// ([grpc.MaxRetryRPCBufferSize]). The function of [WithAttemptContext] is asked once for
// a call. Attempts are counted by a stats handler, some allocations for every call of
// the connection.
//
// [Retrier.DialOptions], without which nobody retries these methods, then installs a
// default service config, merged with that of [WithServiceConfig], and ignores the
// resolver's unless [WithResolverConfig] is given. A grpc.WithDefaultServiceConfig of
// your own that comes after replaces it; give it to WithServiceConfig instead. With
// grpc.WithDisableRetry, or another Retrier on the connection, gRPC retries nothing.
// Methods of an xDS target are not covered. A [Throttle] is given to the channel too,
// which has a bucket of its own for them. [Retrier.Update] does not change them.
func WithChannelRetry(names ...string) Option {
	return optionFunc(func(s *settings) error {
		s.channel = append(s.channel, names...)
		if len(names) == 0 {
			return errors.New("WithChannelRetry: no name is given")
		}
		return s.mustBeNew("WithChannelRetry")
	})
}

// WithResolverConfig lets the service configs of the resolver win over that of
// [WithChannelRetry], which needs it. What they give a retryPolicy to, gRPC retries, and
// the suite does not, streams of requests excepted, and calls with a policy of their
// own; attempts, codes and waits are then theirs, while Policy.Timeout and Check stay. A
// call on a connection that is not connected yet waits for the resolver first. The
// [Recovery] of a policy has no effect on the server streams that they have, which are
// committed to their first response. The default is to ignore them.
func WithResolverConfig() Option {
	return optionFunc(func(s *settings) error {
		s.resolver = true
		return s.mustBeNew("WithResolverConfig")
	})
}

// WithServiceConfig takes over a gRPC service config, so that what a program has in
// grpc.WithDefaultServiceConfig runs on the suite. A retryPolicy becomes the policy of
// its names, as [WithMethodPolicy] sets it, with [RepeatAlways], since its author wanted
// it repeated, and with at most 5 attempts, as gRPC has it. If there is any retryPolicy,
// then a name without one is not retried; methods that the config does not name get the
// Retrier's default. A timeout becomes Policy.Timeout where a policy has none.
// retryThrottling becomes the [Throttle] unless [WithThrottle] is given. All else, like
// waitForReady, sizes, and the balancing, is left to gRPC: [Retrier.DialOptions]
// installs the config without what the suite took over.
//
// A config that gRPC refuses is an error, and so are a hedgingPolicy, a timeout of zero,
// keys that stand twice, a retryThrottling that is no [Throttle], and a second config;
// [CheckServiceConfig] finds all else that is not what it seems.
func WithServiceConfig(text string) Option {
	return optionFunc(func(s *settings) error {
		config, err := takeServiceConfig(text)
		if err != nil {
			return fmt.Errorf("WithServiceConfig: %w", err)
		}
		if s.config != nil {
			return errors.New("WithServiceConfig: there are two of them; make one of both")
		}
		s.config = config
		config.apply(s)
		return s.mustBeNew("WithServiceConfig")
	})
}

// WithBuffer bounds the input of streams that is kept for replay. The default is
// the zero [Buffer].
func WithBuffer(b Buffer) Option {
	return optionFunc(func(s *settings) error {
		s.buffer = b
		return errors.Join(b.problems(), s.mustBeNew("WithBuffer"))
	})
}

// WithThrottle sets the retry budget of all calls. The default is none. Methods of
// [WithChannelRetry] have a budget of the same size in the channel; what that refuses
// fails with [ErrChannelRetries].
func WithThrottle(t Throttle) Option {
	return optionFunc(func(s *settings) error {
		s.throttle = &t
		err := t.problems()
		if err != nil {
			err = fmt.Errorf("WithThrottle: %w", err)
		}
		return errors.Join(err, s.mustBeNew("WithThrottle"))
	})
}

// WithObserver sets the hooks that are told of attempts and of failed calls. The
// default is none.
func WithObserver(o Observer) Option {
	return optionFunc(func(s *settings) error {
		s.observer = o
		return s.mustBeNew("WithObserver")
	})
}

// WithAttemptContext sets a function that makes the context of every attempt, the
// first too, out of the call's context and the attempt's number, from 1: for a
// request id or a trace of each attempt's own. What it returns must derive from
// the context that it is given, so that the caller's cancellation and all timeouts
// reach the attempt; nil fails the call with INTERNAL. It must be safe for
// concurrent use.
func WithAttemptContext(f func(ctx context.Context, attempt int) context.Context) Option {
	return optionFunc(func(s *settings) error {
		s.attemptContext = f
		if f == nil {
			return errors.New("WithAttemptContext: the function is nil")
		}
		return s.mustBeNew("WithAttemptContext")
	})
}

// WithErrorWrapper sets a function that wraps the errors with which calls fail, for suites
// that tell of them in other words. It is given the reason why the call was given up (see
// [Error.Reason]), also where there is no [Error], and the error that the caller would get,
// and is called once for a failed call, before [Observer.Done] and grpc.OnFinish are told
// of its result. That must wrap the error, so that its status and history stay; a result
// that does not, nil among them, has no effect. It must be safe for concurrent use. Calls
// that fail before their first attempt are not wrapped.
func WithErrorWrapper(wrap func(ctx context.Context, method string, reason, err error) error) Option {
	return optionFunc(func(s *settings) error {
		s.wrap = wrap
		if wrap == nil {
			return errors.New("WithErrorWrapper: the function is nil")
		}
		return s.mustBeNew("WithErrorWrapper")
	})
}

// problemsOf joins the problems of a policy, each with its origin in front.
func problemsOf(origin string, p Policy) error {
	problems := p.problems()
	for i, problem := range problems {
		problems[i] = fmt.Errorf("%s: %w", origin, problem)
	}
	return errors.Join(problems...)
}

// callOption is what the call options of the suite are for gRPC, which ignores
// them. If a call has several, the last one counts.
type callOption struct {
	grpc.EmptyCallOption

	rule   *rule // the call's own; nil to pass the call through
	err    error // why the rule cannot be used
	nested bool  // this is an attempt of another Retrier on the same connection
}

// or returns the one of two options of a call that counts: the later, unless the
// earlier says that the call is an attempt.
func (o *callOption) or(later *callOption) *callOption {
	if o != nil && o.nested {
		return o
	}
	return later
}

// WithCallPolicy gives one call its own policy in place of the method's, all
// fields of it. A policy with invalid fields fails the call before its first
// attempt, with INTERNAL and the fields' names. The option may be made once and
// used for many calls, also at the same time; where no [Retrier] is installed it
// has no effect. Of several such options, [Disable] among them, the last counts.
func WithCallPolicy(p Policy) grpc.CallOption {
	if err := problemsOf("WithCallPolicy", p); err != nil {
		return &callOption{rule: &rule{}, err: status.Error(codes.Internal, "grpcretry: "+err.Error())}
	}
	rule := namedPolicy{"WithCallPolicy", p}.rule()
	rule.own = true
	return &callOption{rule: rule}
}

// Disable passes one call through as if no [Retrier] were installed: it is not
// retried, and no attempts are reported.
func Disable() grpc.CallOption {
	return &callOption{}
}
