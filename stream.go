// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry/internal/replay"
)

// stream is a grpc.ClientStream whose attempts are replayed until the first
// response, or the header, is handed over: then it is committed.
//
// Of each attempt one goroutine at a time sends: the caller's, or after a restart a
// pump that replays the buffer and then hands over to the caller's. So responses
// are read while messages are replayed, and neither side can block the other.
type stream struct {
	call // of whoever restarts; see restarting

	desc     *grpc.StreamDesc
	streamer grpc.Streamer
	options  []grpc.CallOption // the caller's, as far as attempts get them
	release  context.CancelFunc

	// After commit these are all that an operation looks at.
	receiving atomic.Pointer[streamAttempt]
	sending   atomic.Pointer[streamAttempt] // once nothing is left to replay

	mu         sync.Mutex
	changed    sync.Cond
	attempt    *streamAttempt
	buffer     *replay.Buffer
	restarting bool // somebody is between two attempts
	committed  bool
	closed     bool // the caller half-closed
	over       bool
	concluded  bool     // the caller's options were served, and the observer told
	result     error    // of the call, once over
	pending    []func() // to be called without the lock
}

// stream is the stream interceptor.
func (r *Retrier) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	policies := r.current()
	if policies == nil {
		return nil, refuse(opts, errNotMade)
	}
	rule := policies.find(method)
	if own := ownOption(opts); own != nil {
		if rule = own.rule; rule == nil {
			return streamer(ctx, desc, conn, method, opts...)
		}
		if own.err != nil {
			return nil, r.reject(ctx, method, opts, own.err)
		}
	}
	s := &stream{
		call:     call{retrier: r, rule: rule, conn: conn, opts: opts, ctx: ctx, ledger: ledger{method: method}},
		desc:     desc,
		streamer: streamer,
		options:  opts,
		release:  func() {},
		buffer:   replay.New(r.buffer.Memory, r.buffered),
	}
	s.changed.L = &s.mu
	if slices.ContainsFunc(opts, held) {
		s.options = slices.DeleteFunc(slices.Clone(opts), held)
	}
	if rule.Timeout > 0 {
		s.ctx, s.release = context.WithTimeout(ctx, rule.Timeout)
	}
	attempt, err := s.open(nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.adopt(attempt)
	s.unlock()
	return s, nil
}

// ownOption returns the one option of the suite's own that counts.
func ownOption(opts []grpc.CallOption) *callOption {
	var mine *callOption
	for _, opt := range opts {
		if o, ok := opt.(*callOption); ok && (mine == nil || !mine.nested) {
			mine = o
		}
	}
	return mine
}

// open makes attempts, after last if that is not nil, until one has a stream. If
// none may follow, it ends the call and returns its error.
func (s *stream) open(last *record) (*streamAttempt, error) {
	for {
		if last != nil {
			if v := s.next(last); v.reason != nil {
				return nil, s.conclude(last, s.failure(last, v))
			}
		}
		var attempt *streamAttempt
		if attempt, last = s.try(); last == nil {
			return attempt, nil
		}
	}
}

// try makes an attempt. If it has no stream, its record is returned.
func (s *stream) try() (*streamAttempt, *record) {
	number, start := s.begin()
	limited := s.rule.AttemptTimeout > 0 || s.rule.IdleTimeout > 0 || s.retrier.buffer.Fail
	ctx, cancel, err := s.attemptContext(number, start, 0, limited)
	if err != nil {
		return nil, s.local(start, err)
	}
	a := &streamAttempt{ctx: ctx, cancel: cancel, start: start, done: make(chan struct{})}
	if s.rule.AttemptTimeout > 0 {
		a.timer = a.limit(s.rule.AttemptTimeout)
	}
	a.inner, err = s.streamer(ctx, s.desc, s.conn, s.ledger.method, a.options(s.options, func() { s.reported(a) })...)
	if err != nil {
		return nil, s.end(a, err)
	}
	// gRPC's own replay would go on under ours, reports failed streams as ended
	// well, and deadlocks where both sides send. Context switches it off.
	a.inner.Context()
	return a, nil
}

// end takes down that an attempt failed.
func (s *stream) end(a *streamAttempt, err error) *record {
	a.stop()
	now := time.Now()
	r := s.measured(a.start, now)
	if a.ended() && wraps(err, a.err) {
		r.reported, r.results = same(err, a.err), a.results
	}
	what, limit := "AttemptTimeout", s.rule.AttemptTimeout
	if s.receiving.Load() != nil {
		what, limit = "IdleTimeout", s.rule.IdleTimeout
	}
	return s.judged(a.ctx, r, now, a.cause(err, what, limit))
}

// judged is the call's, but that a stream may be committed.
func (s *stream) judged(ctx context.Context, r record, now time.Time, err error) *record {
	last := s.call.judged(ctx, r, now, err)
	s.at.committed = s.receiving.Load() != nil
	return last
}

// conclude ends the call with an error, whose last attempt is given; nil if it
// ended well.
func (s *stream) conclude(last *record, err error) error {
	s.release()
	if err == nil {
		s.observe(last)
	}
	last.serve(s.opts, s.ledger.attempts, true)
	s.done(err)
	s.mu.Lock()
	s.concluded = true
	s.changed.Broadcast()
	s.unlock()
	return err
}

// outcome returns the result of a call that is over, once the caller's options have
// their values. Another goroutine, gRPC's own for one, may be about to set them.
func (s *stream) outcome() error {
	s.mu.Lock()
	defer s.unlock()
	for !s.concluded {
		s.changed.Wait()
	}
	return s.result
}

// unlock unlocks, and calls what was put off until then.
func (s *stream) unlock() {
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, f := range pending {
		f()
	}
}

// current returns the attempt that operations are for, once there is none between
// two; false if the call is over. It needs the lock.
func (s *stream) current() (*streamAttempt, bool) {
	for s.restarting && !s.over {
		s.changed.Wait()
	}
	return s.attempt, !s.over
}

// commit gives up replaying. It needs the lock.
func (s *stream) commit(a *streamAttempt, cause error) {
	if s.committed {
		return
	}
	s.committed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	s.receiving.Store(a)
	if !a.pumping {
		s.settle(a)
	}
	if hook := s.retrier.observer.Commit; hook != nil && cause != nil {
		s.pending = append(s.pending, func() { hook(s.ctx, s.ledger.method, cause) })
	}
	if a.ended() {
		s.finished(a)
	}
}

// settle hands the sending side over for good. It needs the lock.
func (s *stream) settle(a *streamAttempt) {
	s.buffer.Free()
	s.sending.Store(a)
}

// reported is called by gRPC at the end of an attempt.
func (s *stream) reported(a *streamAttempt) {
	s.mu.Lock()
	defer s.unlock()
	switch {
	case s.attempt != a || s.over || s.restarting:
	case s.committed:
		s.finished(a)
	case s.ctx.Err() != nil:
		s.abandon(a, a.err) // nobody may call any more, but the options wait
	}
}

// finished ends a call whose committed attempt has ended. It needs the lock.
func (s *stream) finished(a *streamAttempt) {
	if s.over {
		return
	}
	if a.err != nil {
		s.abandon(a, a.err)
		return
	}
	s.over, s.result = true, io.EOF
	s.buffer.Free()
	s.changed.Broadcast()
	now := time.Now()
	r := s.measured(a.start, now)
	r.reported, r.results = true, a.results
	last := s.judged(a.ctx, r, now, nil)
	a.stop()
	s.pending = append(s.pending, func() { _ = s.conclude(last, nil) })
}

// lost returns the error of a call that ends with a failed attempt, without
// another. It needs the lock.
func (s *stream) lost(a *streamAttempt, err error) error {
	last := s.end(a, err)
	v := decide(s.rule, &s.ledger, last, s.at)
	if v.reason == nil { // only a call that is over comes here
		v = verdict{reason: ErrCommitted, missed: true}
	}
	s.observeLater(*last)
	err = s.failure(last, v)
	s.pending = append(s.pending, func() { _ = s.conclude(last, err) })
	return err
}

func (s *stream) observeLater(r record) {
	s.pending = append(s.pending, func() { s.observe(&r) })
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
	s.unlock()
	next, err := s.open(s.end(a, err))
	s.mu.Lock()
	s.restarting = false
	s.changed.Broadcast()
	if err != nil {
		s.over, s.result = true, err
		s.buffer.Free()
		return false
	}
	return s.adopt(next)
}

// adopt makes an attempt the stream's. It returns false if the call is over. It
// needs the lock.
func (s *stream) adopt(a *streamAttempt) bool {
	s.attempt = a
	if a.failed() && s.ctx.Err() != nil {
		s.abandon(a, a.err) // its end was reported while it was not yet ours
		return false
	}
	if s.buffer.Len() > 0 || s.closed {
		a.pumping = true
		go s.pump(a)
	}
	return true
}

// abandon ends the call with an attempt that failed, without another. It needs the
// lock.
func (s *stream) abandon(a *streamAttempt, err error) {
	s.over = true
	s.result = s.lost(a, err)
	s.buffer.Free()
	s.changed.Broadcast()
}
