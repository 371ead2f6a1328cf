// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import "time"

// acknowledging is Acked at work. What it keeps is in the input.
type acknowledging struct {
	s *stream
}

// received implements recoverer.
func (r *acknowledging) received(a *streamAttempt, m any) bool {
	key := r.s.keyOf(m)
	r.s.mu.Lock()
	defer r.s.unlock()
	goesOn, mine := r.s.goesOn(a)
	if goesOn {
		r.s.input.queue.Remove(key)
		r.s.take(a)
	}
	return mine
}

// keyOf asks for the key of a message. It is called without the lock.
func (s *stream) keyOf(m any) (key string) {
	s.foreign(func() { key = s.rule.Recovery.key(m) })
	return key
}

// ended implements recoverer.
func (*acknowledging) ended(*streamAttempt) error { return nil }

// prepare implements recoverer.
func (*acknowledging) prepare() error { return nil }

// adopted implements recoverer.
func (r *acknowledging) adopted() { r.s.input.queue.Rewind() }

// pumped implements recoverer.
func (*acknowledging) pumped() {}

// free implements recoverer.
func (*acknowledging) free() func() { return nil }

// answerTimer is the IdleTimeout of an Acked stream: it runs while requests wait for their
// answers, since nobody has to say anything while none does.
type answerTimer struct {
	s       *stream
	a       *streamAttempt
	idle    time.Duration
	begun   time.Time // of the RecvMsg
	timer   *time.Timer
	stopped bool // under the stream's lock
}

// awaitAnswers starts the timer of a RecvMsg.
func (s *stream) awaitAnswers(a *streamAttempt, idle time.Duration) *answerTimer {
	t := &answerTimer{s: s, a: a, idle: idle, begun: time.Now()}
	s.mu.Lock()
	defer s.unlock()
	t.timer = time.AfterFunc(idle, t.expired)
	return t
}

// expired is called when an answer may be overdue.
func (t *answerTimer) expired() {
	t.s.mu.Lock()
	defer t.s.unlock()
	left := t.idle
	// Of a committed stream nobody knows any more what waits.
	if in := &t.s.input; in.queue.Len() > 0 || t.s.committed {
		begun := t.begun
		if in.since.After(begun) {
			begun = in.since
		}
		left -= time.Since(begun)
	}
	switch {
	case t.stopped:
	case left > 0:
		t.timer.Reset(left)
	default:
		t.a.expire("IdleTimeout", t.idle)
	}
}

// stop ends the timer.
func (t *answerTimer) stop() {
	t.s.mu.Lock()
	defer t.s.unlock()
	t.stopped = true
	t.timer.Stop()
}
