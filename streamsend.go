// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// SendMsg implements [grpc.ClientStream].
func (s *stream) SendMsg(m any) error {
	if a := s.sending.Load(); a != nil {
		return a.inner.SendMsg(m)
	}
	err := s.sendBuffered(m)
	if errors.Is(err, io.EOF) && !s.desc.ClientStreams {
		return nil // generated code would take it for the call's error; RecvMsg has that
	}
	return err
}

// sendBuffered is SendMsg of a stream that is not committed, or still replayed.
func (s *stream) sendBuffered(m any) error {
	s.mu.Lock()
	defer s.unlock()
	a, goesOn := s.current()
	switch {
	case !goesOn:
		return io.EOF
	case s.closed:
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	case !s.committed:
		if err := s.retrier.buffer.keep(s.buffer, m); err != nil {
			if s.retrier.buffer.Fail && !errors.Is(err, errUnencodable) {
				return s.refuse(a, err)
			}
			s.commit(a, err)
		} else {
			return s.send(m, s.buffer.Len()-1)
		}
	}
	return s.send(m, -1)
}

// refuse ends a call whose input does not fit. It needs the lock.
func (s *stream) refuse(a *streamAttempt, cause error) error {
	s.over = true
	s.buffer.Free()
	last := s.end(a, status.Error(codes.ResourceExhausted, cause.Error()))
	last.kind = Local
	s.observeLater(*last)
	s.result = newError(&s.ledger, verdict{reason: ErrBufferFull}, time.Since(s.start), !s.untimed)
	err := s.result
	s.pending = append(s.pending, func() { _ = s.conclude(last, err) })
	s.changed.Broadcast()
	return err
}

// send sees to it that an attempt is given a message, which is the index-th of the
// buffer, or not in it if that is negative. It needs the lock, and gives it up
// meanwhile.
func (s *stream) send(m any, index int) error {
	for {
		a, goesOn := s.current()
		switch {
		case !goesOn:
			return io.EOF
		case index >= 0 && a.sent > index:
			return nil
		case a.pumping:
			s.changed.Wait()
			continue
		case a.broken:
			if s.committed {
				return io.EOF
			}
			if !s.refill(a) {
				return nil
			}
			continue
		}
		s.unlock()
		err := a.inner.SendMsg(m)
		s.mu.Lock()
		switch {
		case s.attempt != a || s.restarting:
			// The next attempt's pump sends the message.
		case err == nil:
			a.sent++
			return nil
		case errors.Is(err, io.EOF):
			a.broken = true
		case s.over:
			return err
		default:
			s.abandon(a, err)
			return s.result
		}
	}
}

// refill restarts an attempt that takes no more messages, if that can be known: if
// it ended without headers. Else it returns false, and RecvMsg learns why. It needs
// the lock, and gives it up meanwhile.
func (s *stream) refill(a *streamAttempt) bool {
	s.unlock()
	header, _ := a.inner.Header() // the stream has ended, so this does not block
	s.mu.Lock()
	if s.attempt != a || s.restarting || s.over {
		return true // look again
	}
	if header != nil || !a.failed() {
		return false
	}
	s.restart(a, a.err)
	return true
}

// CloseSend implements [grpc.ClientStream].
func (s *stream) CloseSend() error {
	if a := s.sending.Load(); a != nil {
		return a.inner.CloseSend()
	}
	s.mu.Lock()
	again := s.closed
	s.closed = true
	a, ours := s.attempt, !s.restarting && !s.over && !s.attempt.pumping
	s.unlock()
	if again || !ours {
		return nil // a pump half-closes when it is done
	}
	return a.inner.CloseSend()
}

// pumpBatch is how many messages a pump takes under one lock.
const pumpBatch = 64

// pump replays the buffer to an attempt, and then leaves sending to the caller.
func (s *stream) pump(a *streamAttempt) {
	var batch [pumpBatch]any
	for {
		s.mu.Lock()
		n := 0
		if s.attempt == a && !s.over {
			n = s.buffer.Read(a.sent, batch[:])
		}
		if n == 0 {
			halfClose := s.closed
			a.pumping = false
			if s.committed && !s.over {
				s.settle(a)
			}
			s.changed.Broadcast()
			s.unlock()
			if halfClose {
				_ = a.inner.CloseSend() // always nil
			}
			return
		}
		s.mu.Unlock()
		for i, kept := range batch[:n] {
			m, err := message(kept)
			if err == nil {
				err = a.inner.SendMsg(m)
			}
			if err != nil {
				s.pumpFailed(a, i, err)
				return
			}
		}
		s.mu.Lock()
		a.sent += n
		s.changed.Broadcast()
		s.unlock()
	}
}

// pumpFailed leaves it to the caller's operations to find out why.
func (s *stream) pumpFailed(a *streamAttempt, sent int, err error) {
	s.mu.Lock()
	defer s.unlock()
	a.sent += sent
	a.pumping, a.broken = false, true
	if s.committed && !s.over {
		s.settle(a)
	}
	if !errors.Is(err, io.EOF) && s.attempt == a && !s.over {
		s.abandon(a, err)
	}
	s.changed.Broadcast()
}
