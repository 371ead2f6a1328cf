// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

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
	whole    context.Context   // ctx as it began
	release  context.CancelFunc
	tries    int // attempts, those that were made again counted too

	// These are all that an operation looks at once they are set: receiving with
	// the first response, sending when nothing is left to replay.
	receiving atomic.Pointer[streamAttempt]
	sending   atomic.Pointer[streamAttempt]
	watched   bool         // even then receiving has more to it: IdleTimeout, or the one response
	receivers atomic.Int32 // that are in RecvMsg of an attempt before

	mu         sync.Mutex
	changed    sync.Cond
	attempt    *streamAttempt
	made       int // attempts, up to this one
	allowance  replay.Allowance
	input      input
	request    reflect.Type // of the first message, for Resume
	recovery   recoverer    // nil for none
	responses  int          // for the caller, since the stream last counted as well
	responded  bool         // the caller has had one
	restarting bool         // somebody is between two attempts
	interrupt  func()       // ends the wait between them
	aborted    error        // what a source failed with meanwhile
	committed  bool
	cause      error // why, if it was not a response
	closed     bool  // the caller half-closed
	over       bool
	streamless bool     // the call ended with an attempt that has no stream
	result     error    // of the call, once concluded
	concluded  bool     // the caller's options were served, and the observer told
	pending    []func() // to be called without the lock
}

// stream is the stream interceptor.
func (r *Retrier) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	rule, err := r.streamRule(ctx, desc, conn, method, opts)
	switch {
	case err != nil:
		return nil, r.reject(ctx, method, opts, err)
	case rule == nil:
		return streamer(ctx, desc, conn, method, opts...)
	}
	s := &stream{
		call: call{
			retrier: r, rule: rule, conn: conn, opts: opts, ctx: ctx, ledger: ledger{method: method},
			alone: desc.ClientStreams,
		},
		desc:     desc,
		streamer: streamer,
		options:  opts,
		release:  func() {},
		watched:  rule.IdleTimeout > 0 || !desc.ServerStreams,
	}
	s.changed.L = &s.mu
	s.allowance = replay.Allowance{Memory: r.buffer.Memory, Account: r.buffered, Disk: r.disk}
	s.input.kept = kept{
		byReference: r.buffer.ByReference, foreign: r.buffer.ByReference, buffer: replay.New(&s.allowance),
	}
	s.recovery = s.newRecoverer()
	if slices.ContainsFunc(opts, held) {
		s.options = forAttempts(opts, rule.native)
	}
	if rule.Timeout > 0 {
		s.ctx, s.release = context.WithTimeout(ctx, rule.Timeout)
	}
	s.whole = s.ctx
	opened := false
	defer func() {
		if !opened { // it failed, or a function of the caller's own panicked
			s.release()
		}
	}()
	attempt, last, err := s.open(nil)
	if opened = err == nil; !opened {
		s.conclude(last, err)
		return nil, err
	}
	s.mu.Lock()
	defer s.unlock()
	s.adopt(attempt)
	if rule.native && !s.over {
		s.answered(attempt) // for there is nothing more for us to do
	}
	return s, nil
}

// streamRule returns the rule of a stream, or nil if it passes through.
func (r *Retrier) streamRule(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, opts []grpc.CallOption,
) (*rule, error) {
	policies := r.current()
	if policies == nil {
		return nil, errNotMade
	}
	rule := policies.find(method)
	own, recovery := ownOptions(opts)
	if own != nil {
		if rule = own.rule; rule == nil || own.err != nil {
			return nil, own.err
		}
	}
	if r.channel != nil && !desc.ClientStreams {
		var err error
		if rule, err = r.channel.ruleFor(ctx, conn, method, rule); err != nil {
			return nil, err
		}
	}
	if recovery != nil {
		if rule.native {
			return nil, errNoRecovery
		}
		rule = rule.recovering(recovery.recovery)
	}
	return rule, rule.recovers(method, desc)
}

// ownOptions returns those of the suite's own options that count; nil where there is none.
func ownOptions(opts []grpc.CallOption) (own *callOption, recovery *recoveryOption) {
	for _, opt := range opts {
		switch o := opt.(type) {
		case *callOption:
			own = own.or(o)
		case *recoveryOption:
			recovery = o
		}
	}
	return own, recovery
}

// unlock unlocks, and calls what was put off until then.
func (s *stream) unlock() {
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	callAll(pending)
}

// callAll calls all functions, even if one of them panics.
func callAll(functions []func()) {
	if len(functions) > 0 {
		defer callAll(functions[1:])
		functions[0]()
	}
}

// unlocked calls a function without the lock.
func (s *stream) unlocked(f func()) {
	defer s.mu.Lock() // even if what was put off panics
	s.unlock()
	f()
}

// current returns the attempt that operations are for, once there is none between
// two; false if the call is over. It needs the lock.
func (s *stream) current() (*streamAttempt, bool) {
	for s.restarting && !s.over {
		s.changed.Wait()
	}
	return s.attempt, !s.over
}

// adopt makes an attempt the stream's. It needs the lock.
func (s *stream) adopt(a *streamAttempt) {
	s.attempt, s.made = a, s.ledger.attempts
	switch {
	case s.over:
		a.stop()
	case s.aborted != nil:
		s.fail(a, s.aborted, verdict{reason: ErrLocal})
	default:
		s.watch(a)
	}
	if s.recovery != nil {
		s.recovery.adopted()
	}
	switch {
	case s.over:
	case s.input.pending() || s.closed:
		a.pumping = true
		go s.pump(a)
	default:
		s.pumped(a)
	}
}

// commit gives up replaying. It needs the lock.
func (s *stream) commit(a *streamAttempt, cause error) {
	if s.committed {
		return
	}
	s.committed, s.cause = true, cause
	if s.recovery != nil {
		s.recovery.committed()
	}
	if !a.pumping {
		s.settle(a)
	}
	if hook := s.retrier.observer.Commit; hook != nil && cause != nil {
		s.later(func() { hook(s.ctx, s.ledger.method, cause) })
	}
}

// answered takes down that a response, or the header, is handed over. It needs the
// lock.
func (s *stream) answered(a *streamAttempt) {
	s.alive(a)
	s.receiving.Store(a)
	s.commit(a, nil)
}

// settle hands the sending side over for good. It needs the lock.
func (s *stream) settle(a *streamAttempt) {
	s.forget()
	s.sending.Store(a)
}

// forget gives back what is kept of the input. It needs the lock.
func (s *stream) forget() { s.later(s.input.free()) }

// forgetResponses gives back what is kept of the responses. It needs the lock.
func (s *stream) forgetResponses() {
	if s.recovery != nil {
		s.later(s.recovery.free())
	}
}

// later sees to it that a function is called once the lock is given up, if it is not nil.
// It needs the lock.
func (s *stream) later(f func()) {
	if f != nil {
		s.pending = append(s.pending, f)
	}
}

// reported is called by gRPC at the end of an attempt. Its word ends a call only if it
// is that a committed one failed, or if the call's context has ended: of all others
// RecvMsg has more to say. An interceptor below may have read ahead, or tried again.
func (s *stream) reported(a *streamAttempt) {
	s.mu.Lock()
	defer s.unlock()
	switch {
	case s.attempt != a || s.over || s.restarting:
	case s.ctx.Err() != nil:
		s.orphaned(a)
	case s.committed && a.err != nil:
		s.abandon(a, a.err)
	}
}

// watch sees to it that a call comes to its end when its context does, even if nobody
// calls any more. gRPC reports the end of an attempt then, unless an interceptor keeps
// the report from us. It needs the lock.
func (s *stream) watch(a *streamAttempt) {
	if s.over || s.ctx.Done() == nil {
		return
	}
	a.unwatch = context.AfterFunc(s.ctx, func() {
		a.await()
		s.mu.Lock()
		defer s.unlock()
		if s.attempt == a && !s.restarting {
			s.orphaned(a)
		}
	})
}

// orphaned ends a call whose context has ended. It needs the lock.
func (s *stream) orphaned(a *streamAttempt) {
	switch {
	case s.over:
	case a.failed():
		s.abandon(a, a.err)
	case a.ended() && !a.hollow() && s.receiving.Load() == a:
		s.succeed(a) // RecvMsg gives the caller all that there is
	case a.ended() && !a.hollow() && s.receivers.Load() > 0:
		// Whoever receives sees what there is first.
	default: // even if the attempt has ended well, for the caller may not have all of it
		s.abandon(a, status.FromContextError(s.ctx.Err()).Err())
	}
}
