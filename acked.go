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

	s     *stream
	since time.Time // since when the server owes something
}

// received implements recoverer.
func (r *acknowledging) received(a *streamAttempt, m any) bool {
	key := r.s.keyOf(m)
	r.s.mu.Lock()
	defer r.s.unlock()
	goesOn, mine := r.s.goesOn(a)
	if goesOn {
		answers := r.s.input.queue.Remove(key)
		r.s.take(a, answers) // what answers nothing brings the stream no further
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

// adopted implements recoverer. An attempt that owes nothing need not say anything.
func (r *acknowledging) adopted() {
	r.s.input.queue.Rewind()
	if timer := r.s.attempt.timer; timer != nil && r.s.responded && !r.owed() {
		timer.Stop()
	}
}

// committed implements recoverer.
func (r *acknowledging) committed() { r.await(r.s.closed || r.s.input.queue.Keys() > 0) }

// owed tells whether the server owes an answer, or its end. Of a committed stream nobody
// knows any more. It needs the lock.
func (r *acknowledging) owed() bool {
	return r.s.closed || r.s.committed || r.s.input.queue.Keys() > 0
}

// await is called when the server may owe something, and told whether it did before. For
// the first that it owes it has all the time that there is. It needs the lock.
func (r *acknowledging) await(before bool) {
	if before || !r.owed() {
		return
	}
	r.since = time.Now()
	if a := r.s.attempt; a.timer != nil && r.s.responded && !a.answered {
		a.timer.Reset(r.s.rule.AttemptTimeout)
	}
}

// answerTimer is the IdleTimeout of an Acked stream: it runs while the server owes
// something, since nobody has to say anything while it does not.
type answerTimer struct {
	r       *acknowledging
	a       *streamAttempt
	idle    time.Duration
	begun   time.Time // of the RecvMsg
	timer   *time.Timer
	stopped bool // under the stream's lock
}

// limit starts the timer of a RecvMsg.
func (r *acknowledging) limit(a *streamAttempt, idle time.Duration) *answerTimer {
	t := &answerTimer{r: r, a: a, idle: idle, begun: time.Now()}
	r.s.mu.Lock()
	defer r.s.unlock()
	t.timer = time.AfterFunc(idle, t.expired)
	return t
}

// expired is called when an answer may be overdue.
func (t *answerTimer) expired() {
	t.r.s.mu.Lock()
	defer t.r.s.unlock()
	left := t.idle
	if t.r.owed() {
		begun := t.begun
		if t.r.since.After(begun) {
			begun = t.r.since
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
	t.r.s.mu.Lock()
	defer t.r.s.unlock()
	t.stopped = true
	t.timer.Stop()
}
