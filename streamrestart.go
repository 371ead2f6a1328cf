// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"time"
)

// open makes attempts, after last if that is not nil, until one has a stream. If none
// may follow, it returns the last record and the error of the call.
func (s *stream) open(last *record) (*streamAttempt, *record, error) {
	for {
		if last != nil {
			if err := s.again(last); err != nil {
				return nil, last, err
			}
		}
		var attempt *streamAttempt
		if attempt, last = s.try(); last == nil {
			return attempt, nil, nil
		}
	}
}

// again gets ready for another attempt. If there must be none, it returns the error of
// the call.
func (s *stream) again(last *record) error {
	if v := s.next(last); v.reason != nil {
		return s.failure(last, v)
	}
	if s.recovery == nil {
		return nil
	}
	if err := s.recovery.prepare(); err != nil {
		return s.failure(last, verdict{reason: ErrLocal, instead: err, missed: true})
	}
	if err := ended(s.ctx, time.Now()); err != nil { // it took so long
		return s.failure(last, verdict{reason: err, ended: true, missed: true})
	}
	return nil
}

// try makes an attempt. If it has no stream, its record is returned.
func (s *stream) try() (*streamAttempt, *record) {
	s.tries++
	number, start := s.begin()
	ctx, cancel, err := s.attemptContext(number, start, 0, true)
	if err != nil {
		return nil, s.local(start, err)
	}
	a := &streamAttempt{ctx: ctx, cancel: cancel, start: start, done: make(chan struct{})}
	if s.retrier.channel != nil {
		a.ctx, a.count = s.retrier.channel.counted(ctx, s.ledger.method)
	}
	if s.rule.AttemptTimeout > 0 {
		a.timer = a.limit("AttemptTimeout", s.rule.AttemptTimeout)
	}
	options := a.options(s.options, s.rule.native, func() { s.reported(a) })
	a.inner, err = s.streamer(a.ctx, s.desc, s.conn, s.ledger.method, options...)
	if err != nil {
		return nil, s.end(a, err)
	}
	if s.rule.ResetAfter.Quiet > 0 {
		a.opened = time.Now()
	}
	// gRPC's own replay would go on under ours, reports failed streams as ended
	// well, and deadlocks where both sides send. Context switches it off.
	if !s.rule.native {
		a.inner.Context()
	}
	return a, nil
}

// end takes down that an attempt failed.
func (s *stream) end(a *streamAttempt, err error) *record {
	now := time.Now()
	over := ended(a.ctx, now) != nil // as it was before we end it
	a.stop()
	s.recount(a)
	r := s.measured(a.start, now)
	if s.rule.ResetAfter.reached(s.responses, a.lasted(now)) {
		s.ledger.restore()
		s.responses = 0
	}
	if a.ended() {
		if likely(err, a.err) {
			err = a.err
		}
		if wraps(err, a.err) {
			r.reported, r.results = same(err, a.err), a.results
		}
	}
	return s.judged(r, over, now, a.cause(err))
}

// recount adds the attempts that gRPC made of one.
func (s *stream) recount(a *streamAttempt) {
	if a.count != nil {
		s.ledger.attempts += a.count.more()
	}
}

// restart replaces an attempt that failed with err. It returns false if the call is
// over. It needs the lock, and gives it up meanwhile.
func (s *stream) restart(a *streamAttempt, err error) bool {
	if _, goesOn := s.current(); !goesOn || s.attempt != a {
		return goesOn
	}
	if s.committed {
		s.abandon(a, err)
		return false
	}
	s.restarting = true
	s.interruptible()
	panicked := true
	defer func() {
		s.restarting = false
		s.changed.Broadcast()
		switch {
		case !panicked:
		case len(s.ledger.records) > 0:
			s.finish(func() (*record, error) { return s.ledger.last(), errPanicked })
		default:
			s.collapse()
		}
	}()
	var next *streamAttempt
	var last *record
	tries := s.tries
	s.unlocked(func() { next, last, err = s.open(s.end(a, err)) })
	panicked = false
	if err != nil {
		s.made, s.streamless = s.ledger.attempts, s.tries > tries
		if s.aborted != nil {
			err = s.failure(last, verdict{reason: ErrLocal, instead: s.aborted, missed: true})
		}
		s.finish(func() (*record, error) { return last, err })
		return false
	}
	s.adopt(next)
	return !s.over
}

// interruptible sees to it that what comes between two attempts can be ended. It
// needs the lock.
func (s *stream) interruptible() {
	if s.interrupt == nil {
		release := s.release
		s.ctx, s.interrupt = context.WithCancel(s.ctx)
		s.release = func() {
			s.interrupt()
			release()
		}
	}
}

// abort ends the call with an error of a source's, and returns the error of the call,
// or that of the source if the call was over.
func (s *stream) abort(err error) error {
	s.mu.Lock()
	if s.restarting && !s.over {
		s.aborted = err
		s.interrupt()
	}
	a, goesOn := s.current()
	if goesOn {
		s.fail(a, err, verdict{reason: ErrLocal})
	}
	ours := goesOn || s.aborted != nil
	s.unlock()
	if !ours {
		return err
	}
	return s.outcomeOr(err)
}
