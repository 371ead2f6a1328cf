// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"github.com/seed98143e88/grpcretry/internal/replay"
)

// recoverer is a Recovery at work in one stream. Its methods are called under the
// stream's lock unless they say otherwise.
type recoverer interface {
	// received is called without the lock, with a response, and returns whether it is
	// for the caller. Else another is to be received, or the call is over.
	received(a *streamAttempt, m any) bool
	// drops tells whether the next response is one that the caller has.
	drops() bool
	// ended is called where an attempt has ended well, and returns why the call has not.
	ended(a *streamAttempt) error
	// prepare is called without the lock, while nothing but the restart goes on, before
	// each further attempt. If it fails there is none.
	prepare() error
	// adopted is called when there is another attempt.
	adopted()
	// pumped is called when that was given all that there is in the input.
	pumped()
	// committed is called when there is no further attempt any more.
	committed()
	// free gives back what is kept. It returns what gives the disk back, or nil.
	free() func()
}

// passive is a recoverer as far as it does nothing.
type passive struct{}

func (passive) drops() bool                { return false }
func (passive) ended(*streamAttempt) error { return nil }
func (passive) prepare() error             { return nil }
func (passive) pumped()                    {}
func (passive) free() func()               { return nil }

// newRecoverer returns what recovers the stream; nil if nothing does.
func (s *stream) newRecoverer() recoverer {
	if s.rule.native {
		return nil
	}
	switch s.rule.Recovery.mode {
	case skips:
		if !s.desc.ServerStreams {
			return nil
		}
		return &skipping{
			s:    s,
			kept: kept{foreign: s.retrier.buffer.ByReference, buffer: replay.New(&s.allowance)},
		}
	case resumes:
		return &resuming{s: s}
	case acknowledges:
		s.input.queue = replay.NewQueue(&s.allowance)
		return &acknowledging{s: s}
	case commits:
	}
	return nil
}

// foreign calls a function of the caller's own. If that panics, so does this, and the
// call is over. It is called without the lock.
func (s *stream) foreign(f func()) {
	returned := false
	defer func() {
		if !returned {
			_ = s.abort(errPanicked)
		}
	}()
	f()
	returned = true
}

// goesOn tells whether a response of an attempt is news for a stream that goes on. If
// not, the response may still be for the caller: what is in hand is worth more than the
// end of the context. It needs the lock.
func (s *stream) goesOn(a *streamAttempt) (goesOn, mine bool) {
	mine = s.attempt == a && !s.restarting
	return mine && !s.over, mine
}

// take takes down that a response is handed to the caller, and whether it counts for
// ResetAfter. It needs the lock.
func (s *stream) take(a *streamAttempt, counts bool) {
	if counts {
		s.responses++
	}
	s.responded, s.ledger.lives = true, s.recovery != nil
	if s.made > 1 && !a.paid {
		a.paid = true
		s.payBack() // as for a call, since the stream may have no end
	}
	s.alive(a)
	if s.committed {
		s.forgetResponses()
		s.answered(a)
	}
}

// alive takes down that an attempt has answered. It needs the lock.
func (s *stream) alive(a *streamAttempt) {
	if a.timer != nil && !a.answered {
		a.timer.Stop()
	}
	a.answered = true
}
