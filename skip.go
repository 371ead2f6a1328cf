// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// skipping is Skip at work: it keeps the responses that the caller has.
type skipping struct {
	passive

	s       *stream
	kept    kept
	had     int // responses that the caller has
	dropped int // by the attempt
	reader  *keptReader
	offered int // by the reader
}

// received implements recoverer.
func (r *skipping) received(a *streamAttempt, m any) bool {
	r.s.mu.Lock()
	defer r.s.unlock()
	goesOn, mine := r.s.goesOn(a)
	switch {
	case mine && r.drops():
		if goesOn {
			r.drop(a, m)
		}
		return false
	case !goesOn:
		return mine
	case !r.s.committed:
		if err := r.kept.add(m); err != nil && r.s.unkept(a, err) != nil {
			return false
		}
	}
	r.had++
	r.dropped++
	r.s.take(a, true)
	return true
}

// drop compares a response to the one that the caller has in its place. It needs the
// lock.
func (r *skipping) drop(a *streamAttempt, m any) {
	if r.reader == nil {
		r.reader = &keptReader{}
	}
	if r.offered == 0 {
		r.offered = r.reader.fill(&r.kept)
	}
	r.offered--
	reader := r.reader // which is let go of when the call ends
	r.s.alive(a)
	equal := false
	var err error
	r.s.unlocked(func() {
		var had any
		if had, err = reader.next(); err == nil {
			r.s.foreign(func() { equal = r.s.rule.Recovery.equal(had, m) })
		}
	})
	if goesOn, _ := r.s.goesOn(a); !goesOn {
		return
	}
	switch {
	case err != nil:
		r.s.fail(a, err, verdict{reason: ErrLocal, missed: true})
	case !equal:
		r.s.fail(a, status.Errorf(codes.DataLoss,
			"grpcretry: Skip: response %d of attempt %d is not the one that the caller has", r.dropped+1, r.s.made),
			verdict{reason: ErrNotRetryable, missed: true})
	default:
		r.dropped++
		r.caughtUp()
	}
}

// ended implements recoverer.
func (r *skipping) ended(*streamAttempt) error {
	if r.drops() {
		return status.Errorf(codes.DataLoss,
			"grpcretry: Skip: attempt %d ended well after %d responses, and the caller has %d", r.s.made, r.dropped, r.had)
	}
	return nil
}

// adopted implements recoverer.
func (r *skipping) adopted() { r.dropped, r.offered, r.reader = 0, 0, nil }

// free implements recoverer.
func (r *skipping) free() func() {
	r.reader = nil
	return r.kept.free()
}

// committed implements recoverer. What is being dropped still is.
func (r *skipping) committed() { r.caughtUp() }

// caughtUp lets go of what is needed no more once all is dropped that the caller has.
func (r *skipping) caughtUp() {
	if r.drops() {
		return
	}
	r.reader = nil
	if r.s.committed {
		r.s.forgetResponses()
	}
}

// drops implements recoverer.
func (r *skipping) drops() bool { return r.dropped < r.had }
