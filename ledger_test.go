// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// failed is a record of a listed failure of a kind, reported by gRPC.
func failed(kind Kind) record {
	st := status.New(codes.Unavailable, "busy")
	return record{listed: true, outcome: outcome{kind: kind, status: st, err: st.Err(), reported: true}}
}

// TestDecide holds each of the reasons for and against another attempt by itself,
// and which of two comes first.
func TestDecide(t *testing.T) {
	t.Parallel()
	const first = 100 * time.Millisecond // the wait after the first failure
	now := time.Unix(1, 0)
	always := Policy{Repeat: RepeatAlways}
	over := func(m *moment) { m.ended = context.Canceled }
	committed := func(m *moment) { m.committed = true }
	unlisted := func(r *record) { r.listed = false }
	asks := func(ms string) func(*record) {
		return func(r *record) { r.trailer = metadata.Pairs(pushbackKey, ms) }
	}
	for _, row := range []struct {
		name     string
		kind     Kind
		policy   Policy
		attempts int           // 1 if zero
		failures int           // of the kind; as attempts if zero
		record   func(*record) // changes the failure
		ledger   func(*ledger) // changes the ledger
		moment   func(*moment) // changes the moment
		want     verdict       // without its reason
		reason   error
		text     string // of the reason
	}{
		{name: "retry", policy: always, kind: Answered, want: verdict{wait: first}},
		{name: "the backoff grows by its own count", policy: always, kind: Answered, ledger: func(l *ledger) { l.backoffs = 2 }, want: verdict{wait: 4 * first}},
		{name: "Delay is never negative", kind: Answered, policy: Policy{Repeat: RepeatAlways, Backoff: Backoff{Delay: func(int, Failure, float64) time.Duration { return -1 }}}},
		{name: "Delay is the wait", kind: Answered, policy: Policy{Repeat: RepeatAlways, Backoff: Backoff{Delay: func(int, Failure, float64) time.Duration { return 1 }}}, want: verdict{wait: 1}},

		{name: "throttled", policy: always, kind: Answered, moment: func(m *moment) { m.throttled = true }, want: verdict{missed: true}, reason: ErrThrottled},
		{name: "throttled, but unlisted", policy: always, kind: Answered, record: unlisted, moment: func(m *moment) { m.throttled = true }, reason: ErrNotRetryable},
		{name: "the channel has the method", policy: always, kind: Answered, moment: func(m *moment) { m.owned = true }, want: verdict{missed: true}, reason: ErrChannelRetries},
		{name: "the channel has the method, committed", policy: always, kind: Answered, moment: func(m *moment) { m.owned, m.committed = true, true }, want: verdict{missed: true}, reason: ErrCommitted},

		{name: "unprocessed", policy: always, kind: Answered, record: func(r *record) { r.unprocessed = true }, want: verdict{resend: true}},
		{name: "unprocessed, on the last attempt", policy: always, kind: Answered, attempts: 3, record: func(r *record) { r.unprocessed = true }, want: verdict{resend: true}},
		{name: "unprocessed twice", policy: always, kind: Answered, record: func(r *record) { r.unprocessed = true }, ledger: func(l *ledger) { l.resent = true }, want: verdict{wait: first}},
		{name: "unprocessed as the call ends", policy: always, kind: Answered, record: func(r *record) { r.unprocessed = true }, moment: over, want: verdict{ended: true, missed: true}, reason: context.Canceled},

		{name: "the call ends", policy: always, kind: Answered, moment: over, want: verdict{ended: true, missed: true}, reason: context.Canceled},
		{name: "the call ends the attempt", policy: always, kind: Answered, moment: over, record: func(r *record) { r.endedByCall = true }, want: verdict{ended: true}, reason: context.Canceled},
		{name: "the call ends with a lost answer", policy: always, kind: Lost, moment: over, record: unlisted, want: verdict{ended: true}, reason: context.Canceled},
		{name: "the call ends the attempt with an unlisted code", policy: always, kind: Answered, moment: over, record: func(r *record) { r.listed, r.endedByCall = false, true }, want: verdict{ended: true}, reason: context.Canceled},
		{name: "the call ends with a final answer", policy: always, kind: Answered, moment: over, record: unlisted, reason: ErrNotRetryable},
		{name: "the call ends the only attempt there may be", kind: Answered, policy: Policy{Repeat: RepeatAlways, MaxAttempts: 1}, moment: over, want: verdict{ended: true}, reason: context.Canceled},

		{name: "local", policy: always, kind: Local, reason: ErrLocal},
		{name: "local and committed", policy: always, kind: Local, moment: committed, reason: ErrLocal},
		{name: "committed", policy: always, kind: Answered, moment: committed, want: verdict{missed: true}, reason: ErrCommitted},
		{name: "committed and not retryable", policy: always, kind: Answered, moment: committed, record: unlisted, reason: ErrCommitted},
		{name: "stopped", policy: always, kind: Answered, record: asks("-1"), want: verdict{missed: true}, reason: ErrPushback, text: `"-1"`},
		{name: "stopped and not retryable", policy: always, kind: Answered, record: func(r *record) { asks("-1")(r); r.listed = false }, reason: ErrPushback},
		{name: "not retryable", policy: always, kind: Answered, record: unlisted, reason: ErrNotRetryable},
		{name: "connect is retryable with any code", policy: always, kind: Connect, record: unlisted, want: verdict{wait: first}},
		{name: "a timeout is retryable with any code", policy: always, kind: Lost, record: func(r *record) { r.listed, r.timedOut = false, true }, want: verdict{wait: first}},
		{name: "Retryable goes before the codes", kind: Answered, policy: Policy{Repeat: RepeatAlways, Retryable: func(Failure) bool { return false }}, reason: ErrNotRetryable},
		{name: "Retryable is not asked of a timeout", kind: Answered, policy: Policy{Repeat: RepeatAlways, Retryable: func(Failure) bool { return false }}, record: func(r *record) { r.timedOut = true }, want: verdict{wait: first}},
		{name: "Retryable is not asked of what is local", kind: Local, policy: Policy{Repeat: RepeatAlways, Retryable: func(Failure) bool { return true }}, reason: ErrLocal},

		{name: "may have run", kind: Answered, want: verdict{missed: true}, reason: ErrNotRepeatable, text: "the call may have run: a/b is not linked, its idempotency_level unknown; set Policy.Repeat"},
		{name: "may have run, and gRPC did not say so", kind: Answered, record: func(r *record) { r.reported = false }, want: verdict{missed: true}, reason: ErrNotRepeatable, text: "an interceptor after the Retrier's made it"},
		{name: "must not run again", kind: Answered, policy: Policy{Repeat: RepeatNever}, reason: ErrNotRepeatable, text: "RepeatNever"},
		{name: "exhausted where nothing may run again", kind: Connect, policy: Policy{Repeat: RepeatNever}, attempts: 3, want: verdict{missed: true}, reason: ErrExhausted},
		{name: "did not run", kind: Connect, policy: Policy{Repeat: RepeatNever}, want: verdict{wait: first}},
		{name: "asked for again", kind: Answered, policy: Policy{Repeat: RepeatNever}, record: asks("0"), want: verdict{asked: true}},

		{name: "exhausted", policy: always, kind: Answered, attempts: 3, want: verdict{missed: true}, reason: ErrExhausted, text: "attempts exhausted"},
		{name: "beyond exhausted", policy: always, kind: Answered, attempts: 4, want: verdict{missed: true}, reason: ErrExhausted},
		{name: "one left", policy: always, kind: Answered, attempts: 2, want: verdict{wait: first}},
		{name: "exhausted for the kind", kind: Answered, policy: Policy{Repeat: RepeatAlways, MaxAnswered: 2}, attempts: 2, want: verdict{missed: true}, reason: ErrExhausted, text: "attempts exhausted: 2 of kind answered"},
		{name: "one left for the kind", kind: Answered, policy: Policy{Repeat: RepeatAlways, MaxAnswered: 2}, attempts: 2, failures: 1, want: verdict{wait: first}},
		{name: "none allowed for the kind", kind: Answered, policy: Policy{Repeat: RepeatAlways, MaxAnswered: 1}, reason: ErrExhausted},
		{name: "none allowed at all", kind: Answered, policy: Policy{Repeat: RepeatAlways, MaxAttempts: 1}, reason: ErrExhausted},

		{name: "asked", policy: always, kind: Answered, record: asks("60000"), want: verdict{wait: time.Minute, asked: true}},
		{name: "asked too much", policy: always, kind: Answered, record: asks("60001"), want: verdict{missed: true}, reason: ErrPushback, text: "it wants 1m0.001s"},
		{name: "MaxServerDelay is not for the backoff", kind: Answered, policy: Policy{Repeat: RepeatAlways, MaxServerDelay: 1}, want: verdict{wait: first}},
		{name: "too late", policy: always, kind: Answered, moment: func(m *moment) { m.deadline = now.Add(first) }, want: verdict{missed: true}, reason: ErrDeadline, text: "100ms to wait, 100ms left"},
		{name: "just in time", policy: always, kind: Answered, moment: func(m *moment) { m.deadline = now.Add(first + 1) }, want: verdict{wait: first}},
		{name: "asked too late", policy: always, kind: Answered, record: asks("1000"), moment: func(m *moment) { m.deadline = now.Add(time.Second) }, want: verdict{missed: true}, reason: ErrDeadline},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newRule("", row.policy)
			r := failed(row.kind)
			l := &ledger{method: "/a/b", attempts: max(1, row.attempts)}
			l.failures[r.kind] = l.attempts
			if row.failures > 0 {
				l.failures[r.kind] = row.failures
			}
			at := moment{now: now, random: 0.5}
			if row.record != nil {
				row.record(&r)
			}
			if row.ledger != nil {
				row.ledger(l)
			}
			if row.moment != nil {
				row.moment(&at)
			}
			got := decide(p, l, &r, at)
			reason := got.reason
			got.reason = nil
			assert.Equal(t, row.want, got)
			assert.ErrorIs(t, reason, row.reason)
			if row.text != "" {
				assert.ErrorContains(t, reason, row.text)
			}
			if errors.Is(reason, ErrNotRepeatable) {
				assert.Equal(t, r.reported, !strings.Contains(reason.Error(), "gRPC did not report this end"))
			}
		})
	}
}

// TestLedger holds the counts that everything else reads.
func TestLedger(t *testing.T) {
	t.Parallel()
	l := &ledger{method: "/a/b"}
	for i := range maxHistory + 2 {
		assert.Equal(t, i+1, l.begin())
		r := failed(Lost)
		r.wait = time.Duration(i)
		assert.Equal(t, i+1, l.end(r).number)
		assert.Equal(t, i+1, l.last().number)
		assert.Len(t, l.records, min(i+1, maxHistory))
	}
	assert.Equal(t, [Local + 1]int{Lost: maxHistory + 2}, l.failures)
	for i, a := range l.history() {
		assert.Equal(t, i+3, a.Number)
		assert.Equal(t, time.Duration(i+2), a.Wait)
		assert.Equal(t, i+3, a.Failure.Attempt)
	}

	assert.False(t, l.resent)
	l.again()
	assert.True(t, l.resent)
	assert.Equal(t, [Local + 1]int{Lost: maxHistory + 1}, l.failures)
	assert.Equal(t, maxHistory+1, l.last().number)
	assert.Equal(t, maxHistory+2, l.begin())
	assert.Nil(t, l.attempt(l.end(record{})).Failure, "a success")
	assert.Equal(t, [Local + 1]int{Lost: maxHistory + 1}, l.failures)

	for _, step := range []struct {
		asked bool
		want  int
	}{{false, 1}, {false, 2}, {true, 0}, {false, 1}} {
		l.waited(verdict{asked: step.asked})
		assert.Equal(t, step.want, l.backoffs)
	}
}

// TestLastReal holds which failure counts as the last real one.
func TestLastReal(t *testing.T) {
	t.Parallel()
	answer := func(text string) record {
		r := failed(Answered)
		r.err = errors.New(text)
		return r
	}
	local, over := failed(Local), failed(Lost)
	over.endedByCall = true
	for name, row := range map[string]struct {
		records []record
		want    string
	}{
		"nothing":               {},
		"the only one":          {[]record{answer("a")}, "a"},
		"the last of two":       {[]record{answer("a"), answer("b")}, "b"},
		"before one of our own": {[]record{answer("a"), local}, "a"},
		"before the call's end": {[]record{answer("a"), over}, "a"},
		"before a success":      {[]record{answer("a"), {}}, "a"},
		"none but our own":      {[]record{local, over, {}}, ""},
		"further back":          {[]record{answer("a"), over, local}, "a"},
	} {
		l := ledger{records: row.records}
		got := ""
		if err := l.lastReal(); err != nil {
			got = err.Error()
		}
		assert.Equal(t, row.want, got, name)
	}
}
