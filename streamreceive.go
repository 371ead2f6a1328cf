// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"io"
	"reflect"
	"time"

	"google.golang.org/grpc/metadata"
)

// RecvMsg implements [grpc.ClientStream].
func (s *stream) RecvMsg(m any) error {
	if a := s.receiving.Load(); a != nil {
		if s.watched {
			return s.receive(a, m, s.rule.IdleTimeout)
		}
		if err := a.inner.RecvMsg(m); err != nil {
			return s.ended(a, err)
		}
		return nil
	}
	for again := false; ; again = true {
		s.mu.Lock()
		a, goesOn := s.current()
		into, idle := m, time.Duration(0)
		if s.responded { // what the caller has in m stays, unless there is more for it
			idle = s.rule.IdleTimeout
			if s.recovery != nil && s.recovery.drops() {
				into = fresh(m)
			}
		} else if again {
			reset(m)
		}
		s.unlock()
		if !goesOn {
			return s.outcome()
		}
		if mine, err := s.receiveFrom(a, into, idle); mine {
			return err
		}
	}
}

// fresh returns another message of a message's type.
func fresh(m any) any {
	if message, isProto := asProto(m); isProto {
		return message.ProtoReflect().New().Interface()
	}
	if t := reflect.TypeOf(m); t != nil && t.Kind() == reflect.Pointer {
		return reflect.New(t.Elem()).Interface()
	}
	return m
}

// receiveFrom receives from an attempt of a stream that is not committed, and tells
// whether what it returns is the caller's.
func (s *stream) receiveFrom(a *streamAttempt, m any, idle time.Duration) (mine bool, err error) {
	s.receivers.Add(1)
	defer func() {
		s.receivers.Add(-1)
		if s.whole.Err() != nil { // which was left to us
			s.mu.Lock()
			defer s.unlock()
			if s.attempt == a && !s.restarting {
				s.orphaned(a)
			}
		}
	}()
	err = s.receiveWithin(a, m, idle)
	last := err != nil || !s.desc.ServerStreams // there is no second response
	if last {
		a.await()
	}
	if !s.received(a, m, err) {
		return false, nil
	}
	if last {
		err = s.outcomeOr(err) // the caller may rely on its options from now on
	}
	return true, err
}

// receiveWithin is RecvMsg of an attempt, which may block as long as idle says, if that
// is not zero.
func (s *stream) receiveWithin(a *streamAttempt, m any, idle time.Duration) error {
	if idle > 0 {
		if acked, ok := s.recovery.(*acknowledging); ok && s.receiving.Load() == nil {
			timer := acked.limit(a, idle)
			defer timer.stop()
		} else {
			timer := a.limit("IdleTimeout", idle)
			defer timer.Stop()
		}
	}
	return a.inner.RecvMsg(m)
}

// received takes down what an attempt of a stream that is not committed received, and
// returns true if that is for the caller. Else the call is over, or there is more to be
// received.
func (s *stream) received(a *streamAttempt, m any, err error) bool {
	if err == nil && s.recovery != nil {
		return s.recovery.received(a, m)
	}
	s.mu.Lock()
	defer s.unlock()
	if s.attempt != a || s.restarting {
		return false
	}
	if errors.Is(err, io.EOF) && a.failed() {
		err = a.err
	}
	switch {
	case s.over:
		return err == nil // a message in hand is worth more than the end of the context
	case err == nil:
		if !s.desc.ServerStreams {
			s.succeed(a)
		}
		s.answered(a)
		return true
	case errors.Is(err, io.EOF):
		if s.recovery != nil {
			if err := s.recovery.ended(a); err != nil {
				s.fail(a, err, verdict{reason: ErrNotRetryable, missed: true})
				return false
			}
		}
		s.commit(a, nil)
		s.finished(a) // even if an interceptor below keeps gRPC's report from us
		return true
	}
	s.restart(a, err)
	return false
}

// receive is RecvMsg after the first response, with an IdleTimeout, or of a stream
// that has but one response.
func (s *stream) receive(a *streamAttempt, m any, idle time.Duration) error {
	if err := s.receiveWithin(a, m, idle); err != nil {
		return s.ended(a, err)
	}
	if !s.desc.ServerStreams {
		a.await()
		s.mu.Lock()
		s.succeed(a)
		s.unlock()
		return s.outcomeOr(nil)
	}
	return nil
}

// ended returns the error of a stream that ended after its first response.
func (s *stream) ended(a *streamAttempt, err error) error {
	a.await()
	s.mu.Lock()
	switch {
	case s.over:
	case errors.Is(err, io.EOF):
		s.finished(a)
	default:
		s.abandon(a, err)
	}
	s.unlock()
	return s.outcomeOr(err)
}

// Header implements [grpc.ClientStream].
func (s *stream) Header() (metadata.MD, error) {
	for {
		s.mu.Lock()
		a, goesOn := s.current()
		streamless := s.streamless
		s.unlock()
		if streamless {
			return nil, nil //nolint:nilnil // as gRPC does; RecvMsg tells why
		}
		md, err := a.inner.Header()
		if md == nil {
			a.await()
		}
		if !goesOn || s.headed(a, md, err) {
			return md, err
		}
	}
}

// headed takes down what an attempt gave as its header, and returns true if that is
// for the caller.
func (s *stream) headed(a *streamAttempt, md metadata.MD, err error) bool {
	s.mu.Lock()
	defer s.unlock()
	switch {
	case s.attempt != a || s.restarting:
		return false
	case s.over || err != nil:
	case md != nil && s.recovery != nil:
	case md != nil:
		s.answered(a)
	case a.failed():
		return !s.restart(a, a.err)
	case a.ended() && !a.hollow() && s.recovery == nil:
		s.commit(a, nil)
	}
	return true
}

// Trailer implements [grpc.ClientStream].
func (s *stream) Trailer() metadata.MD {
	s.mu.Lock()
	a, attempts, streamless := s.attempt, s.made, s.streamless
	s.unlock()
	if streamless {
		return withAttempts(nil, attempts)
	}
	return withAttempts(a.inner.Trailer().Copy(), attempts)
}

// errContext is the cause of commits by Context.
var errContext = errors.New("Context was called")

// Context implements [grpc.ClientStream]. It commits, as gRPC's contract says.
func (s *stream) Context() context.Context {
	s.mu.Lock()
	defer s.unlock()
	a, goesOn := s.current()
	if goesOn {
		s.commit(a, errContext)
	}
	return a.inner.Context()
}
