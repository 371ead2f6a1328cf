// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry"
)

// Option says what a [RetryConfig] does not.
type Option interface {
	apply(s *suite) error
}

type optionFunc func(*suite) error

func (f optionFunc) apply(s *suite) error { return f(s) }

// WithReads names methods, "pkg.Service/Method" or "pkg.Service" for all of a service,
// that may be repeated whatever became of them, as those are that are declared with an
// idempotency_level. A method's name beats its service's.
func WithReads(names ...string) Option {
	return optionFunc(func(s *suite) error { return s.name("WithReads", names, true) })
}

// WithWrites names methods that change something, as all are that are not declared with
// an idempotency_level. A method's name beats its service's.
func WithWrites(names ...string) Option {
	return optionFunc(func(s *suite) error { return s.name("WithWrites", names, false) })
}

// WithText says which status a failure has whose message, or a string in whose details,
// matches a regular expression. It counts in place of the status of the code. Of several
// that match the first counts; those that every suite has come after them.
func WithText(pattern string, status int) Option {
	return optionFunc(func(s *suite) error {
		compiled, err := regexp.Compile(pattern)
		switch {
		case err != nil:
			return fmt.Errorf("WithText(%q, %d): %w", pattern, status, err)
		case status < lowestStatus || status > highestStatus:
			return fmt.Errorf("WithText(%q, %d): a status of a failure is from %d to %d",
				pattern, status, lowestStatus, highestStatus)
		}
		s.texts = append(s.texts, text{compiled, status})
		return nil
	})
}

// WithAttemptTimeout bounds each attempt, as LanceDB's read timeout does: of a stream until
// its first response, and then each receive. The default is no bound.
func WithAttemptTimeout(d time.Duration) Option {
	return optionFunc(func(s *suite) error {
		if s.attemptTimeout = d; d < 0 {
			return fmt.Errorf("WithAttemptTimeout(%v): it must not be negative", d)
		}
		return nil
	})
}

// WithConnectWait makes a retry wait for the connection, after its backoff, if the attempt
// before found none; see [grpcretry.Policy]. The default is that it does not, as with
// LanceDB.
func WithConnectWait(d time.Duration) Option {
	return optionFunc(func(s *suite) error {
		if s.connectWait = d; d <= 0 {
			return fmt.Errorf("WithConnectWait(%v): it must be positive", d)
		}
		return nil
	})
}

// WithObserver sets the hooks that are told of attempts. The default is none.
func WithObserver(o grpcretry.Observer) Option {
	return optionFunc(func(s *suite) error {
		s.observer = o
		return nil
	})
}

// WithBuffer bounds what is kept of streams of requests; see [grpcretry.WithBuffer].
func WithBuffer(b grpcretry.Buffer) Option {
	return optionFunc(func(s *suite) error {
		s.retrier = append(s.retrier, grpcretry.WithBuffer(b))
		return nil
	})
}

// WithThrottle sets a retry budget for all calls; see [grpcretry.WithThrottle]. The default
// is none.
func WithThrottle(t grpcretry.Throttle) Option {
	return optionFunc(func(s *suite) error {
		s.retrier = append(s.retrier, grpcretry.WithThrottle(t))
		return nil
	})
}

// suite is what the calls of a connection share.
type suite struct {
	config

	named, declared kinds
	texts           []text // the user's
	builtIn         []text
	attemptTimeout  time.Duration
	connectWait     time.Duration
	observer        grpcretry.Observer
	retrier         []grpcretry.Option
}

// DialOptions returns the options that install retries under a config on a connection.
// They are those of a [grpcretry.Retrier], whose [grpcretry.Retrier.DialOptions] says
// more, and interceptors before them that give calls their ids. Of several Retriers on a
// connection the first one decides, so that there should be no other before.
//
// The environment is read here, once. The error names every field, variable or option
// that cannot be used, with its value.
func DialOptions(retries RetryConfig, opts ...Option) ([]grpc.DialOption, error) {
	s, err := newSuite(retries, opts)
	if err != nil {
		return nil, fmt.Errorf("lance: %w", err)
	}
	retrier, err := grpcretry.New(append(s.retrier, s.options()...)...)
	if err != nil {
		return nil, fmt.Errorf("lance: %w", err)
	}
	return append([]grpc.DialOption{
		grpc.WithChainUnaryInterceptor(s.unary),
		grpc.WithChainStreamInterceptor(s.stream),
	}, retrier.DialOptions()...), nil
}

func newSuite(retries RetryConfig, opts []Option) (*suite, error) {
	resolved, err := retries.resolve()
	problems := []error{err}
	s := &suite{config: resolved, named: kinds{}, declared: declaredReads(), builtIn: texts(), connectWait: -1}
	for i, opt := range opts {
		if opt == nil {
			problems = append(problems, fmt.Errorf("option %d is nil", i))
			continue
		}
		problems = append(problems, opt.apply(s))
	}
	return s, errors.Join(problems...)
}

// name says of methods what they are. Whether there are such methods the Retrier says.
func (s *suite) name(option string, names []string, read bool) error {
	if len(names) == 0 {
		return fmt.Errorf("%s: no name is given", option)
	}
	var problems []error
	for _, name := range names {
		canonical := name
		if strings.Count(name, "/") == 2 { // "/pkg.Service/Method", as generated code has it
			canonical = strings.TrimPrefix(name, "/")
		}
		if before, said := s.named[canonical]; said && before != read {
			problems = append(problems, fmt.Errorf("%s(%q): it is named as the opposite, too", option, name))
		}
		s.named[canonical] = read
	}
	return errors.Join(problems...)
}

// options returns the suite as options of a Retrier.
func (s *suite) options() []grpcretry.Option {
	read, write := s.policy(true), s.policy(false)
	options := []grpcretry.Option{
		grpcretry.WithPolicy(write),
		grpcretry.WithAttemptContext(attemptContext),
		grpcretry.WithObserver(s.observed()),
		grpcretry.WithErrorWrapper(wrap),
	}
	for name := range s.declared {
		if s.reads(name) {
			options = append(options, grpcretry.WithMethodPolicy(name, read))
		}
	}
	for name, reads := range s.named {
		policy := write
		if reads {
			policy = read
		}
		options = append(options, grpcretry.WithMethodPolicy(name, policy))
	}
	return options
}

// policy returns the policy of reads, or of writes.
func (s *suite) policy(read bool) grpcretry.Policy {
	policy := grpcretry.Policy{
		MaxAttempts: max(s.request, 1),
		MaxConnect:  max(s.connect, 1),
		MaxLost:     max(s.read, 1),
		// What a write may have done is not for Repeat to decide: 409 and 429 say that it
		// has not.
		Repeat:         grpcretry.RepeatAlways,
		AttemptTimeout: s.attemptTimeout,
		IdleTimeout:    s.attemptTimeout,
		ConnectWait:    s.connectWait,
		Retryable:      func(f grpcretry.Failure) bool { return s.retries(f, read) },
		Backoff: grpcretry.Backoff{Delay: func(attempt int, _ grpcretry.Failure, random float64) time.Duration {
			return s.wait(attempt, random)
		}},
	}
	if !read {
		policy.MaxLost = 1
	}
	return policy
}

// retries tells whether a failure is one to retry.
func (s *suite) retries(f grpcretry.Failure, read bool) bool {
	m := s.meaningOf(f.Status)
	switch {
	case !read && (f.Kind != grpcretry.Answered || len(f.Header) > 0):
		return false // behind a header there may have been an answer
	case !read && m.mayHaveRun(f.Status.Code()):
		return false
	case f.Kind == grpcretry.Lost && m.by == byCode && madeByGRPC(f.Status):
		return true // nobody answered
	}
	return s.lists(m)
}
