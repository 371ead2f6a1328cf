// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxHistory bounds what is kept of a call that makes very many attempts.
const maxHistory = 100

// record is one attempt in a ledger.
type record struct {
	outcome // zero if the attempt succeeded

	number         int
	start          time.Time
	duration, wait time.Duration
	listed         bool
}

// ledger holds one call's attempts. The number of attempts that it knows is the
// only one there is: the limit, the metadata, the observer and the error all read
// it. It is used by one goroutine at a time.
type ledger struct {
	method   string
	attempts int            // begun so far
	restored int            // of these, before the one from which on limits count
	lives    bool           // it is a stream that goes on after its first response
	resent   bool           // one of them was refused unprocessed and begun again
	failures [Local + 1]int // by Kind
	// backoffs counts the failures that the backoff grows by: those since the
	// call began or since the server last set the wait.
	backoffs int
	records  []record // of the last maxHistory attempts that ended
}

// begin counts a new attempt and returns its number.
func (l *ledger) begin() int {
	l.attempts++
	return l.attempts
}

// end adds the attempt that just ended, and returns its record.
func (l *ledger) end(r record) *record {
	r.number = l.attempts
	if len(l.records) == maxHistory {
		copy(l.records, l.records[1:])
		l.records = l.records[:maxHistory-1]
	}
	if r.err != nil {
		l.failures[r.kind]++
	}
	l.records = append(l.records, r)
	return &l.records[len(l.records)-1]
}

// again takes the last attempt back, so that it can be made again.
func (l *ledger) again() {
	l.resent = true
	l.attempts--
	l.failures[l.last().kind]--
	l.records = l.records[:len(l.records)-1]
}

// restore makes the attempt under way the first that counts for limits and backoff.
func (l *ledger) restore() {
	l.restored = l.attempts - 1
	l.failures, l.backoffs = [Local + 1]int{}, 0
}

// last returns the record of the attempt that ended last.
func (l *ledger) last() *record {
	return &l.records[len(l.records)-1]
}

// lastReal returns the last failure that neither this side made nor the end of the call.
func (l *ledger) lastReal() error {
	for _, r := range slices.Backward(l.records) {
		if r.err != nil && r.kind != Local && !r.endedByCall {
			return r.err
		}
	}
	return nil
}

// waited takes down the wait before the next attempt: one that the server set
// starts the backoff anew.
func (l *ledger) waited(v verdict) {
	l.backoffs++
	if v.asked {
		l.backoffs = 0
	}
}

// history returns the attempts in their public form.
func (l *ledger) history() []Attempt {
	attempts := make([]Attempt, len(l.records))
	for i := range l.records {
		attempts[i] = l.attempt(&l.records[i])
	}
	return attempts
}

// attempt returns a record in its public form.
func (l *ledger) attempt(r *record) Attempt {
	attempt := Attempt{Number: r.number, Start: r.start, Duration: r.duration, Wait: r.wait}
	if r.err != nil {
		failure := r.failure(l.method, r.number, r.listed)
		attempt.Failure = &failure
	}
	return attempt
}

// moment is what decide may know of the world.
type moment struct {
	now      time.Time
	deadline time.Time // of the call; zero if it has none
	ended    error     // the error of the call's context; nil while it goes on
	// committed is set once the caller has seen a part of a stream.
	committed bool
	throttled bool    // the retry budget allows no retry
	owned     bool    // gRPC's own retry has the method
	random    float64 // in [0, 1)
}

// verdict is what becomes of a call after a failed attempt: it waits and tries
// again, or there is a reason not to.
type verdict struct {
	wait   time.Duration
	asked  bool  // the wait is the server's, not the backoff's
	resend bool  // the attempt that failed is made again, and not counted twice
	reason error // nil to try again
	// missed is set where the policy would have allowed a retry that is not made,
	// so that even the error of an only attempt must say why.
	missed bool
	// ended is set where the reason is the end of the call's context.
	ended bool
	// instead is what the call ends with where it is not the last failure.
	instead error
}

// decide is the only place that says retry or stop. It is pure: it only reads,
// and calls nothing but the policy's own functions.
func decide(p *rule, l *ledger, r *record, at moment) verdict {
	if r.unprocessed && !l.resent && at.ended == nil && !p.native {
		return verdict{resend: true} // gRFC A6's transparent retry
	}
	retryable := p.retries(l, r)
	missed := retryable && min(p.MaxAttempts, p.limits[r.kind]) > 1 && !r.endedByCall
	if at.ended != nil && (retryable || r.kind != Answered || r.endedByCall) {
		// A final answer in hand would be worth more than the end of the context.
		return verdict{reason: at.ended, ended: true, missed: missed}
	}
	v, reason := p.another(l, r, retryable, at)
	if reason == nil {
		return v
	}
	if p.Repeat == RepeatNever && errors.Is(reason, ErrNotRepeatable) {
		missed = false // the policy would not have allowed it
	}
	return verdict{reason: reason, missed: missed}
}

// another returns the wait for another attempt, or why there must be none.
func (p *rule) another(l *ledger, r *record, retryable bool, at moment) (verdict, error) {
	asked := r.demand()
	if reason := p.refusal(l, r, asked, retryable, at); reason != nil {
		return verdict{}, reason
	}
	wait := asked.delay
	if !asked.given {
		wait = p.backoff(l, r, at.random)
	}
	if reason := p.overlong(wait, asked, at); reason != nil {
		return verdict{}, reason
	}
	if at.throttled {
		return verdict{}, ErrThrottled
	}
	return verdict{wait: wait, asked: asked.given}, nil
}

// refusal returns why there must be no attempt after a failure; nil if there may.
func (p *rule) refusal(l *ledger, r *record, asked demand, retryable bool, at moment) error {
	switch {
	case r.kind == Local:
		return ErrLocal
	case at.committed:
		return ErrCommitted
	case at.owned && !p.native:
		return ErrChannelRetries
	case asked.stop != "":
		return fmt.Errorf("%w: %s", ErrPushback, asked.stop)
	case !retryable:
		return ErrNotRetryable
	}
	// A server that refused the call unprocessed, or asks for another, proves that
	// it did not run; but not if there was a response.
	if proof := r.kind == Connect || asked.given && !l.lives; !proof {
		if ok, why := p.mayRepeat(l.method); !ok {
			if !r.reported {
				why += " (gRPC did not report this end: an interceptor after the Retrier's made it)"
			}
			return fmt.Errorf("%w: %s", ErrNotRepeatable, why)
		}
	}
	if reason := p.exhausted(l, r); reason != nil {
		return reason
	}
	if p.native {
		return ErrChannelRetries
	}
	return nil
}

// exhausted returns why the limits allow no attempt after a failure; nil if they do.
func (p *rule) exhausted(l *ledger, r *record) error {
	switch {
	case l.failures[r.kind] >= p.limits[r.kind]:
		return fmt.Errorf("%w: %d of kind %v", ErrExhausted, l.failures[r.kind], r.kind)
	case l.attempts-l.restored < p.MaxAttempts:
		return nil
	case l.lives && p.ResetAfter == ResetAfter{}:
		return fmt.Errorf("%w in the life of the stream; see Policy.ResetAfter", ErrExhausted)
	default:
		return ErrExhausted
	}
}

// overlong returns why a wait is too long to be begun; nil if it is not.
func (p *rule) overlong(wait time.Duration, asked demand, at moment) error {
	if asked.given && wait > p.MaxServerDelay {
		return fmt.Errorf("%w: it wants %v, Policy.MaxServerDelay is %v", ErrPushback, wait, p.MaxServerDelay)
	}
	if left := at.deadline.Sub(at.now); !at.deadline.IsZero() && wait >= left {
		return fmt.Errorf("%w: %v to wait, %v left", ErrDeadline, wait, left)
	}
	return nil
}

// retries says whether the policy retries a failure of this sort at all.
func (p *rule) retries(l *ledger, r *record) bool {
	switch {
	case r.kind == Local:
		return false
	case r.kind == Connect || r.timedOut:
		return true
	case p.Retryable != nil:
		return p.Retryable(r.failure(l.method, r.number, r.listed))
	default:
		return r.listed
	}
}

// backoff is the wait that the policy sets after a failure.
func (p *rule) backoff(l *ledger, r *record, random float64) time.Duration {
	if p.Backoff.Delay != nil {
		return max(0, p.Backoff.Delay(r.number-l.restored, r.failure(l.method, r.number, r.listed), random))
	}
	return p.Backoff.wait(l.backoffs+1, random)
}
