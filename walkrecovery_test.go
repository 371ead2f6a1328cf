// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// This file is about walks of streams that go on after their first response.

// TestWalkRecovery takes as many walks as TestWalk, of streams with a Recovery.
func TestWalkRecovery(t *testing.T) {
	walks := 4000
	if raceEnabled {
		walks = 600
	}
	takeWalks(t, walks, recoveringWalk)
}

// TestSoakWalkRecovery takes as many as TestSoakWalk.
func TestSoakWalkRecovery(t *testing.T) {
	if soak(t) < time.Minute {
		takeWalks(t, 10_000, recoveringWalk)
		return
	}
	takeWalks(t, 100_000, recoveringWalk)
}

// recoveringWalk makes the walk of a seed, of a stream that is recovered.
func recoveringWalk(seed uint64) *walk {
	d := newDice(seed)
	recovery := []string{"Skip", "Resume", "Acked"}[d.n(3)]
	method := exchange
	if recovery != "Acked" && d.one(2) {
		method = download
	}
	w := d.walk(method)
	w.recovery = recovery
	if w.policy.Repeat == grpcretry.RepeatNever {
		w.policy.Repeat = grpcretry.RepeatAlways
	}
	w.policy.MaxAttempts += d.n(3)
	for i := range w.script {
		h := &w.script[i]
		if h.what == early {
			h.reads = max(1, h.reads)
		} else if d.one(2) { // most faults come after a response
			h.sent = 1 + d.n(3)
		}
	}
	if d.one(3) {
		w.policy.ResetAfter.Responses = 1 + d.n(3)
	}
	if d.one(4) {
		w.policy.ResetAfter.Quiet = 1 + d.ms(20)
	}
	return w
}

// recoverBy returns what the walk recovers by.
func (r *walker) recoverBy() grpcretry.Recovery {
	switch r.recovery {
	case "Skip": // the key is that of the attempt
		return grpcretry.Skip(func(had, got any) bool {
			return sequenceOf(had) == sequenceOf(got)
		})
	case "Resume":
		return grpcretry.Resume(func(last any) ([]any, error) { return r.behind(last.(*testv1.Response)), nil })
	case "Acked":
		return grpcretry.Acked(func(m any) string {
			return strconv.FormatInt(sequenceOf(m), 10)
		})
	default:
		return grpcretry.Recovery{}
	}
}

// behind returns what is to be asked after a response: for the next of a Download, or of
// a duplex stream for all that was begun to be sent and has no answer yet.
func (r *walker) behind(last *testv1.Response) (requests []any) {
	next := last.GetSequence() + 1
	if r.method == download {
		return []any{&testv1.Request{Sequence: next}}
	}
	r.note(func(s *seen) {
		for _, request := range s.sent[min(int(next), len(s.sent)):] {
			requests = append(requests, proto.CloneOf(request))
		}
	})
	return requests
}

// sequenceOf returns the number of a request or a response.
func sequenceOf(m any) int64 {
	numbered, _ := m.(interface{ GetSequence() int64 })
	return numbered.GetSequence()
}

// from returns the attempt that a response is from.
func from(response *testv1.Response) int {
	number, _ := strconv.Atoi(response.GetKey())
	return number
}

// before returns the responses that the caller has from attempts before one.
func (m *model) before(attempt int) []*testv1.Response {
	n := slices.IndexFunc(m.responses, func(r *testv1.Response) bool { return from(r) >= attempt })
	if n < 0 {
		return m.responses
	}
	return m.responses[:n]
}

// number returns the number of an attempt that arrived.
func number(a testserver.Attempt) int { return max(a.PreviousAttempts, 0) + 1 }

// due returns the sequence numbers of the requests that an attempt is to get, in order.
func (m *model) due(attempt int) []int64 {
	had := m.before(attempt)
	var due []int64
	for i := range m.sent {
		answered := false
		switch m.recovery {
		case "Resume":
			answered = len(had) > 0 && int64(i) <= had[len(had)-1].GetSequence()
		case "Acked":
			answered = slices.ContainsFunc(had, func(r *testv1.Response) bool { return r.GetSequence() == int64(i) })
		}
		if !answered {
			due = append(due, int64(i))
		}
	}
	if m.recovery == "Resume" && m.method == download && len(had) > 0 {
		return []int64{had[len(had)-1].GetSequence() + 1}
	}
	return due
}

// recovered: law 3, the server's side, of a stream that goes on with what is due.
func (m *model) recovered(a testserver.Attempt) {
	due := m.due(number(a))
	var got []int64
	for _, request := range a.Requests {
		sequence := sequenceOf(request)
		if m.recovery == "Resume" && m.method == exchange && len(m.before(number(a))) > 0 &&
			len(got) > 0 && got[len(got)-1] == sequence {
			continue // its Send was under way when next was called, which gave it too
		}
		got = append(got, sequence)
		if m.method == exchange && (sequence >= int64(len(m.sent)) || !proto.Equal(request, m.sent[sequence])) {
			m.wrong("request %.60v of attempt %v is not what was sent", request, a)
		}
	}
	if len(got) > len(due) || !slices.Equal(got, due[:len(got)]) {
		m.wrong("attempt %v got %d, due is %d", a, got, due)
	}
	if closed := m.closed || m.method == download; a.HalfClosed && (!closed || len(got) != len(due)) {
		m.wrong("half-closed after %d of %d requests, the caller did so: %t: %v", len(got), len(due), m.closed, a)
	}
}

// recoveredAnswers: law 3, the caller's side: each response once, and a clean end only
// where the last attempt came to its own.
func (m *model) recoveredAnswers() {
	seen := map[int64]bool{}
	for i, response := range m.responses {
		sequence := response.GetSequence()
		if i > 0 && from(m.responses[i-1]) > from(response) || from(response) > m.count {
			m.wrong("response %d is %v, of %d attempts", i, response, m.count)
		}
		again := m.recovery == "Resume" && m.method == exchange && i > 0 && m.responses[i-1].GetSequence() == sequence
		if seen[sequence] && !again {
			m.wrong("response %d came twice: %v", i, response)
		}
		if m.recovery != "Acked" && sequence != int64(len(seen)) && !again {
			m.wrong("response %d is %v", i, response)
		}
		seen[sequence] = true
	}
	if m.result != nil || len(m.attempts) == 0 {
		return
	}
	last := m.attempts[len(m.attempts)-1]
	met, had := m.met(last), m.before(number(last))
	got := len(m.responses)
	if m.recovery != "Skip" {
		got -= len(had)
	}
	want := len(last.Requests)
	switch {
	case met.what == early && !met.answers:
		want = 0
	case met.what == early:
		want = min(want, 1)
	case m.method == download && m.recovery == "Resume":
		want = m.answers - int(sequenceOf(last.Requests[0]))
	case m.method == download:
		want = m.answers
	}
	if met.sent > 0 {
		want = min(want, met.sent)
	}
	if !m.drop && got != want {
		m.wrong("a clean end after %d of %d responses of the last attempt", got, want)
	}
	if whole := met.what != early && met.sent == 0; whole && !last.HalfClosed {
		m.wrong("a clean end, but the server has not all: %v", last)
	}
}

// spent returns how much of its allowance the call had used when it ended: how many
// attempts since it last counted as well, and their failures by kind.
func (m *model) spent() (attempts int, kinds map[grpcretry.Kind]int) {
	progress, restored := 0, 0
	kinds = map[grpcretry.Kind]int{}
	for _, a := range m.journal {
		for _, response := range m.responses {
			if from(response) == a.Number {
				progress++
			}
		}
		if a.Failure == nil {
			continue
		}
		if m.well(a, progress) {
			restored, progress = a.Number-1, 0
			clear(kinds)
		}
		kinds[a.Failure.Kind]++
	}
	return m.count - restored, kinds
}

// well tells whether a stream counts as well when an attempt of it fails.
func (m *model) well(a grpcretry.Attempt, progress int) bool {
	reset := m.policy.ResetAfter
	lasted := a.Duration
	if a.Failure.Status.Code() == codes.DeadlineExceeded {
		switch a.Failure.Status.Message() {
		case "AttemptTimeout of " + m.policy.AttemptTimeout.String() + " exceeded":
			lasted -= m.policy.AttemptTimeout
		case "IdleTimeout of " + m.policy.IdleTimeout.String() + " exceeded":
			lasted -= m.policy.IdleTimeout
		}
	}
	return reset.Responses > 0 && progress >= reset.Responses ||
		reset.Quiet > 0 && lasted >= reset.Quiet && a.Failure.Kind != grpcretry.Connect
}

// shorter tells whether a call may end since the server ended well with less than what it
// had promised.
func (m *model) shorter() bool {
	if m.recovery != "Skip" && m.recovery != "Acked" || status.Code(m.result) != codes.DataLoss || len(m.attempts) == 0 {
		return false
	}
	met := m.met(m.attempts[len(m.attempts)-1])
	return met.what == early || met.what == answered && met.sent > 0
}
