// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/metadata"
)

// RecvMsg implements [grpc.ClientStream].
func (s *stream) RecvMsg(m any) error {
	if a := s.receiving.Load(); a != nil {
		if s.rule.IdleTimeout > 0 {
			return s.receiveWithin(a, m, s.rule.IdleTimeout)
		}
		if err := a.inner.RecvMsg(m); err != nil {
			return s.received(a, err)
		}
		return nil
	}
	for {
		s.mu.Lock()
		a, goesOn := s.current()
		s.unlock()
		if !goesOn {
			return s.outcome()
		}
		err := a.inner.RecvMsg(m)
		if s.first(a, err) {
			return err
		}
		reset(m)
	}
}

// first takes down what an attempt that is not committed received, and returns true
// if that is for the caller. Else the call is over, or another attempt is to
// be asked.
func (s *stream) first(a *streamAttempt, err error) bool {
	s.mu.Lock()
	defer s.unlock()
	if s.attempt != a || s.restarting {
		return false
	}
	if errors.Is(err, io.EOF) && a.failed() {
		err = a.err
	}
	switch {
	case err == nil && s.over:
		return true // a message in hand is worth more than the end of the context
	case s.over:
		return false
	case err == nil || errors.Is(err, io.EOF):
		s.commit(a, nil)
		return true
	}
	s.restart(a, err)
	return false
}

// receiveWithin is RecvMsg of a committed stream with an IdleTimeout.
func (s *stream) receiveWithin(a *streamAttempt, m any, d time.Duration) error {
	timer := a.limit(d)
	defer timer.Stop()
	if err := a.inner.RecvMsg(m); err != nil {
		return s.received(a, err)
	}
	return nil
}

// received returns the error of a committed stream's end.
func (s *stream) received(a *streamAttempt, err error) error {
	if errors.Is(err, io.EOF) && !a.ended() {
		return io.EOF // whoever hid the end from us answers for it
	}
	s.mu.Lock()
	if !s.over {
		s.abandon(a, err)
	}
	s.unlock()
	if result := s.outcome(); !errors.Is(result, io.EOF) {
		return result
	}
	return err // never a clean end where the attempt has none
}

// Header implements [grpc.ClientStream].
func (s *stream) Header() (metadata.MD, error) {
	for {
		s.mu.Lock()
		a, goesOn := s.current()
		s.unlock()
		md, err := a.inner.Header()
		if !goesOn {
			return md, err
		}
		s.mu.Lock()
		switch {
		case s.attempt != a || s.restarting:
			s.unlock()
			continue
		case s.over:
		case md == nil && a.failed() && !s.committed:
			goesOn = s.restart(a, a.err)
			s.unlock()
			if goesOn {
				continue
			}
			return nil, nil //nolint:nilnil // as gRPC does; RecvMsg tells why
		default:
			s.commit(a, nil)
		}
		s.unlock()
		return md, err
	}
}

// Trailer implements [grpc.ClientStream].
func (s *stream) Trailer() metadata.MD {
	s.mu.Lock()
	a, attempts := s.attempt, s.ledger.attempts
	s.unlock()
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
