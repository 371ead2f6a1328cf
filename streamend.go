// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// finish ends the call. What its result is, and who is to be told, is found out
// without the lock, since functions of the caller's own take part. It needs the
// lock.
func (s *stream) finish(result func() (*record, error)) {
	s.over = true
	s.forget()
	s.forgetResponses()
	s.changed.Broadcast()
	s.later(func() {
		known := false
		defer func() {
			if !known {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.collapse()
			}
		}()
		last, err := result()
		known = true
		s.conclude(last, err)
	})
}

// errPanicked is the result of a call that collapsed.
var errPanicked = status.Error(codes.Internal, "grpcretry: a hook or a function of the policy panicked")

// collapse ends a call in which a function of the caller's own panicked. It needs
// the lock.
func (s *stream) collapse() {
	s.over, s.concluded, s.result = true, true, errPanicked
	s.forget()
	s.forgetResponses()
	s.release()
	s.changed.Broadcast()
}

// finished ends a call whose committed attempt has ended. It needs the lock.
func (s *stream) finished(a *streamAttempt) {
	switch {
	case s.over:
	case a.failed():
		s.abandon(a, a.err)
	default:
		s.succeed(a)
	}
}

// succeed ends a call that has all that it asked for, even if a timeout or the caller
// ended the attempt meanwhile. It needs the lock.
func (s *stream) succeed(a *streamAttempt) {
	if s.over {
		return
	}
	s.finish(func() (*record, error) {
		now := time.Now()
		s.recount(a)
		r := s.measured(a.start, now)
		if a.ended() {
			r.reported, r.results = true, a.results
		}
		a.stop()
		s.payBack()
		return s.judged(r, false, now, nil), nil
	})
}

// abandon ends the call with an attempt that failed, without another. It needs the
// lock.
func (s *stream) abandon(a *streamAttempt, err error) {
	committed := s.committed
	s.finish(func() (*record, error) {
		last := s.end(a, err)
		s.at.committed = committed && !(s.rule.native && last.header == nil) // or gRPC had not committed it
		v := decide(s.rule, &s.ledger, last, s.at)
		if v.reason == nil { // it would go on, but cannot
			v = verdict{reason: ErrCommitted, missed: true}
		}
		switch {
		case !errors.Is(v.reason, ErrCommitted):
		case s.cause != nil:
			v.reason = fmt.Errorf("%w: %w", ErrCommitted, s.cause)
		case committed && s.recovery == nil && s.desc.ServerStreams:
			v.reason = fmt.Errorf("%w: a part of it was handed over, and there is no Policy.Recovery", ErrCommitted)
		}
		s.observe(last)
		return last, s.failure(last, v)
	})
}

// fail ends the call with an error that was made here. It needs the lock.
func (s *stream) fail(a *streamAttempt, err error, v verdict) {
	s.finish(func() (*record, error) {
		if a.failed() { // which nobody had noticed yet
			last := s.end(a, a.err)
			s.observe(last)
			return last, s.failure(last, verdict{reason: v.reason, instead: err, missed: true})
		}
		a.stop()
		last := s.local(a.start, err)
		s.observe(last)
		// A bare context error has a code only if we give it one.
		v.missed = v.missed || last.status.Code() != status.Code(last.err)
		return last, s.failure(last, v)
	})
}

// conclude serves the caller's options, and tells the observer.
func (s *stream) conclude(last *record, err error) {
	s.mu.Lock()
	s.made = s.ledger.attempts
	s.result = err
	if err == nil {
		s.result = io.EOF
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.concluded = true
		s.changed.Broadcast()
		s.mu.Unlock()
	}()
	s.release()
	if err == nil {
		s.observe(last)
	}
	last.serve(s.opts, s.ledger.attempts, true)
	s.done(err)
}

// outcome returns the result of a call that is over, once it is concluded: another
// goroutine, gRPC's own for one, may be about to do that.
func (s *stream) outcome() error {
	s.mu.Lock()
	defer s.unlock()
	for !s.concluded {
		s.changed.Wait()
	}
	return s.result
}

// outcomeOr returns err, or the result in its place if the call is over and failed:
// never a clean end where an operation met an error. It waits as outcome does.
func (s *stream) outcomeOr(err error) error {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		if result := s.outcome(); !errors.Is(result, io.EOF) {
			return result
		}
	}
	return err
}
