// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"io"
	"reflect"

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
	key := ""
	if s.rule.Recovery.key != nil {
		key = s.keyOf(m)
	}
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
	if s.request == nil {
		s.request = reflect.TypeOf(m)
	}
	if err := s.input.refuses(key); err != nil {
		s.fail(a, err, verdict{reason: ErrLocal, missed: true})
		return err
	}
	if err := s.add(key, m); err != nil {
		if err := s.unkept(a, err); err != nil {
			return err
		}
		return s.send(m, -1)
	}
	return s.send(m, s.input.length-1)
}

// add adds a message to the input, or says why it cannot. It needs the lock.
func (s *stream) add(key string, m any) error {
	if acked, ok := s.recovery.(*acknowledging); ok && s.rule.timed() {
		defer acked.await(acked.owed())
	}
	return s.input.add(key, m)
}

// unkept gives up replaying, since a message cannot be kept. If the call is to fail
// then, it returns the error. It needs the lock.
func (s *stream) unkept(a *streamAttempt, cause error) error {
	switch {
	case s.rule.MaxAttempts == 1:
		cause = nil // nobody misses the replay
	case s.retrier.buffer.Fail && !errors.Is(cause, errUnencodable):
		err := s.retrier.buffer.refusal(cause)
		s.fail(a, err, verdict{reason: ErrBufferFull, missed: true})
		return err
	}
	s.commit(a, cause)
	return nil
}

// beginStretch starts a stretch of the input that a source gives anew for a replay.
func (s *stream) beginStretch(run func() messages) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over && !s.committed {
		s.input.begin(run)
	}
}

// endStretch ends what beginStretch began.
func (s *stream) endStretch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.input.end()
}

// send sees to it that an attempt is given a message, which is the index-th of the
// input, or not in it if that is negative. It needs the lock, and gives it up
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
			a.sent = index + 1
			return nil
		case s.explained(a, err):
			a.broken = true
		default:
			if !s.over {
				s.abandon(a, err)
			}
			return err
		}
	}
}

// explained tells whether an error of SendMsg says no more than that the attempt has
// ended, or ran into a timeout of the policy's, of which RecvMsg has more to say. It needs
// the lock.
func (s *stream) explained(a *streamAttempt, err error) bool {
	return errors.Is(err, io.EOF) || a.expired.Load() != nil && !s.committed
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
	// Where the call failed on this side the server may not know yet that it is
	// cancelled, and would take a part of the input for all of it.
	idle := s.closed || s.over
	s.halfClose()
	a, ours := s.attempt, !s.restarting && !s.attempt.pumping
	s.unlock()
	if idle || !ours {
		return nil // a pump half-closes when it is done
	}
	return a.inner.CloseSend()
}

// halfClose takes down that nothing more will be sent. It needs the lock.
func (s *stream) halfClose() {
	if acked, ok := s.recovery.(*acknowledging); ok {
		defer acked.await(acked.owed()) // the end
	}
	s.closed = true
}

// errGone is the error of a replay whose source ended the goroutine that it ran on.
var errGone = status.Error(codes.Internal, "grpcretry: the source of SendAll called runtime.Goexit")

// pump replays the input to an attempt, and then leaves sending to the caller.
func (s *stream) pump(a *streamAttempt) {
	var in inputReader
	ended := false
	defer func() {
		in.close()
		if !ended { // a source's own function ended this goroutine
			s.mu.Lock()
			defer s.unlock()
			s.pumpFailed(a, errGone, true)
			s.changed.Broadcast()
		}
	}()
	for halfClosed := false; ; {
		s.mu.Lock()
		n, goesOn := 0, s.attempt == a && !s.over
		if goesOn {
			n = in.fill(&s.input)
		}
		halfClose := n == 0 && goesOn && s.closed && !halfClosed
		if n == 0 && !halfClose {
			a.pumping = false
			if goesOn {
				s.pumped(a)
			}
			s.changed.Broadcast()
			s.unlock()
			ended = true
			return
		}
		s.mu.Unlock()
		if halfClose { // while the sending side is still ours
			_ = a.inner.CloseSend() // always nil
			halfClosed = true
			continue
		}
		sent, here, err := a.replay(&in, n)
		s.mu.Lock()
		a.sent = sent
		if err != nil {
			s.pumpFailed(a, err, here)
		}
		s.changed.Broadcast()
		s.unlock()
		if ended = err != nil; ended {
			return
		}
	}
}

// pumped takes down that an attempt was given all that is in the input. It needs the
// lock.
func (s *stream) pumped(a *streamAttempt) {
	if s.committed {
		s.settle(a)
		return
	}
	if !s.input.loose {
		a.sent = s.input.length
	}
	if s.recovery != nil {
		s.recovery.pumped()
	}
}

// replay sends n messages, and returns how many of the input were sent by then. If it
// cannot, it says why, and whether it was here, and not gRPC, that something failed.
func (a *streamAttempt) replay(in *inputReader, n int) (sent int, here bool, err error) {
	sent = in.position
	for range n {
		m, err := in.next()
		if err != nil {
			return sent, true, err
		}
		if err := a.inner.SendMsg(m); err != nil {
			return sent, false, err
		}
		sent = in.position
	}
	return sent, false, nil
}

// pumpFailed takes down that a pump could not go on. What ended the attempt is left
// to the caller's operations to find out. It needs the lock.
func (s *stream) pumpFailed(a *streamAttempt, err error, here bool) {
	a.pumping, a.broken = false, true
	ours := s.attempt == a && !s.over && !s.restarting
	if s.committed && ours {
		s.settle(a)
	}
	switch {
	case !ours:
	case here:
		s.fail(a, err, verdict{reason: ErrLocal, missed: true})
	case !s.explained(a, err):
		s.abandon(a, err)
	}
}
