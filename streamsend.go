// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// SendMsg implements [grpc.ClientStream].
func (s *stream) SendMsg(m any) error {
	if a := s.sending.Load(); a != nil {
		err := a.inner.SendMsg(m)
		if err == nil || errors.Is(err, io.EOF) {
			return err
		}
		return s.resultOf(err)
	}
	err := s.sendBuffered(m)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, io.EOF):
		return s.outcomeOr(err)
	case !s.desc.ClientStreams:
		return nil // generated code would take it for the call's error; RecvMsg has that
	}
	return io.EOF
}

// resultOf returns the result of a call that an error of this side's ended, or the
// error if there is none yet. It does not wait, since a hook may be sending.
func (s *stream) resultOf(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result == nil || errors.Is(s.result, io.EOF) {
		return err
	}
	return s.result
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
	case s.committed:
		return s.send(m, -1)
	}
	err := s.retrier.buffer.keep(s.buffer, m)
	switch {
	case err == nil:
		return s.send(m, s.buffer.Len()-1)
	case s.retrier.buffer.Fail && !errors.Is(err, errUnencodable):
		return s.refuse(a, err)
	}
	s.commit(a, err)
	return s.send(m, -1)
}

// refuse ends a call whose input does not fit. It needs the lock.
func (s *stream) refuse(a *streamAttempt, cause error) error {
	err := status.Error(codes.ResourceExhausted, cause.Error())
	s.finish(func() (*record, error) {
		last := s.end(a, err)
		s.observe(last)
		return last, newError(&s.ledger, verdict{reason: ErrBufferFull}, time.Since(s.start), !s.untimed)
	})
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
		var err error
		s.unlocked(func() { err = a.inner.SendMsg(m) })
		switch {
		case s.attempt != a || s.restarting:
			// The next attempt's pump sends the message.
		case err == nil:
			a.sent++
			return nil
		case errors.Is(err, io.EOF):
			a.broken = true
		default:
			if !s.over {
				s.abandon(a, err)
			}
			return err
		}
	}
}

// refill restarts an attempt that takes no more messages, if that can be known: if
// it ended without headers. Else it returns false, and RecvMsg learns why. It needs
// the lock, and gives it up meanwhile.
func (s *stream) refill(a *streamAttempt) bool {
	var header metadata.MD
	s.unlocked(func() {
		// The stream has ended, so this does not block.
		if header, _ = a.inner.Header(); header == nil {
			a.await()
		}
	})
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
	s.mu.Lock()
	again := s.closed
	s.closed = true
	a, ours := s.attempt, !s.restarting && !s.attempt.pumping
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
	for halfClosed := false; ; {
		s.mu.Lock()
		n, goesOn := 0, s.attempt == a && !s.over
		if goesOn {
			n = s.buffer.Read(a.sent, batch[:])
		}
		halfClose := n == 0 && goesOn && s.closed && !halfClosed
		if n == 0 && !halfClose {
			a.pumping = false
			if s.committed && goesOn {
				s.settle(a)
			}
			s.changed.Broadcast()
			s.unlock()
			return
		}
		s.mu.Unlock()
		if halfClose { // while the sending side is still ours
			_ = a.inner.CloseSend() // always nil
			halfClosed = true
			continue
		}
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
	ours := s.attempt == a && !s.over && !s.restarting
	if s.committed && ours {
		s.settle(a)
	}
	if !errors.Is(err, io.EOF) && ours {
		s.abandon(a, err)
	}
	s.changed.Broadcast()
}
