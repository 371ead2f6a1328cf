// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// acknowledging is Acked at work. What it keeps is in the input.
type acknowledging struct {
	passive

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
func (r *acknowledging) ended(*streamAttempt) error {
	owed := r.s.input.queue.Keys()
	if owed == 0 {
		return nil
	}
	return status.Errorf(codes.DataLoss,
		"grpcretry: Acked: attempt %d ended well and owed %d answers, the first of them to the request with the key %.100q",
		r.s.made, owed, r.s.input.queue.First())
}

// adopted implements recoverer. An attempt that owes no answer need not say anything.
func (r *acknowledging) adopted() {
	r.s.input.queue.Rewind()
	if timer := r.s.attempt.timer; timer != nil && r.s.responded && r.s.input.queue.Keys() == 0 {
		timer.Stop()
	}
}

// asked is called when a request is added. If it is the first that an attempt owes an
// answer to, that has all of AttemptTimeout for it. It needs the lock.
func (r *acknowledging) asked(a *streamAttempt) {
	if a.timer != nil && r.s.responded && !a.answered && r.s.input.queue.Keys() == 1 {
		a.timer.Reset(r.s.rule.AttemptTimeout)
	}
}

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
	if in := &t.s.input; in.queue.Keys() > 0 || t.s.committed {
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
