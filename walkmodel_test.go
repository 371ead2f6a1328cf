// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// model is what may be seen of a walk. It knows nothing of how the suite works: it
// looks from the server's records and the observer's journal at what the caller got.
// Where several things happen in one instant, each order of them is right, so it
// accepts sets of outcomes.
type model struct {
	*walk
	*seen

	problems []string
	result   error // of the call; nil if it ended well
	count    int   // of the attempts, as the caller is told
}

// explain returns what cannot be.
func explain(w *walk, s *seen) []string {
	m := &model{walk: w, seen: s, result: s.final}
	m.problems = append(m.problems, s.early...)
	if len(s.finished) != 1 {
		m.wrong("OnFinish was called with %v", s.finished)
		return m.problems
	}
	switch {
	case w.drop && s.final == nil:
		m.result = s.finished[0]
	case errors.Is(s.final, io.EOF):
		m.result = nil
	}
	if any(m.result) != any(s.finished[0]) { // the very same error
		m.wrong("OnFinish got %v, Recv %v", s.finished[0], s.final)
	}
	m.leftovers()
	m.counts()
	m.requests()
	m.answersGot()
	m.observer()
	m.retries()
	m.end()
	return m.problems
}

func (m *model) wrong(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// leftovers: law 9.
func (m *model) leftovers() {
	var late time.Duration // by which a handler may miss that it is cancelled
	if m.slow {
		late = time.Millisecond
	}
	for i, a := range m.attempts {
		if a.End.IsZero() {
			m.wrong("an attempt still runs: %v", a)
		}
		if i > 0 && m.attempts[i-1].End.After(a.Start.Add(late)) {
			m.wrong("attempts overlap: %v and %v", m.attempts[i-1], a)
		}
	}
	if m.buffered != 0 || m.opened != m.files {
		m.wrong("%d bytes are kept, and %d of %d files", m.buffered, m.opened-m.files, m.opened)
	}
}

// counts: law 1, and the wire keys.
func (m *model) counts() {
	m.count, _ = grpcretry.AttemptsFromMD(m.option)
	if n, _ := grpcretry.AttemptsFromMD(m.trailer); m.created && n != m.count {
		m.wrong("Trailer says %d attempts, grpc.Trailer %d", n, m.count)
	}
	if spent, _ := m.spent(); m.count < 1 || spent > m.policy.MaxAttempts || len(m.attempts) > m.count {
		m.wrong("%d attempts of at most %d, the server saw %d", m.count, m.policy.MaxAttempts, len(m.attempts))
	}
	last := 0
	for i, a := range m.attempts {
		number := max(a.PreviousAttempts, 0) + 1
		if number <= last || number > m.count || (number == 1) != (a.PreviousAttempts == -1) {
			m.wrong("attempt %d of those that arrived says it is number %d", i+1, number)
		}
		last = number
	}
	for what, n := range map[string]int{"header": m.gotHeader, "response": m.gotResponse} {
		if m.recovery == "" && n > 0 && n != len(m.attempts) {
			m.wrong("the server saw %d attempts, but only %d before the first %s", len(m.attempts), n, what)
		}
	}
}

// requests: law 3, the server's side.
func (m *model) requests() {
	for _, a := range m.attempts {
		if m.recovery == "Resume" || m.recovery == "Acked" {
			m.recovered(a)
			continue
		}
		for i, request := range a.Requests {
			if i >= len(m.sent) || !proto.Equal(request, m.sent[i]) {
				m.wrong("request %d of attempt %v is not what was sent: %.60v", i, a, request)
				break
			}
		}
		// A stream with one request is half-closed by it.
		if closed := m.closed || m.method == download; a.HalfClosed && (!closed || len(a.Requests) != len(m.sent)) {
			m.wrong("half-closed after %d of %d requests, the caller did so: %t: %v", len(a.Requests), len(m.sent), m.closed, a)
		}
	}
}

// met returns what an attempt met.
func (m *model) met(a testserver.Attempt) happening {
	if a.Number <= len(m.script) {
		return m.script[a.Number-1]
	}
	return happening{}
}

// answersGot: law 3, the caller's side.
func (m *model) answersGot() {
	if m.recovery != "" {
		m.recoveredAnswers()
		return
	}
	for i, response := range m.responses {
		want := &testv1.Response{Key: strconv.Itoa(m.count), Sequence: int64(i), Count: response.GetCount()}
		if !proto.Equal(want, response) {
			m.wrong("response %d is %v", i, response)
		}
	}
	if m.result != nil {
		return
	}
	if len(m.attempts) == 0 {
		m.wrong("a clean end of a call that never arrived")
		return
	}
	last := m.attempts[len(m.attempts)-1]
	met, want := m.met(last), 0
	whole := met.what != early && met.sent == 0 // the handler ran to its end
	switch {
	case met.sent > 0:
		want = met.sent
	case met.what == early && met.answers && (met.reads == 0 || len(last.Requests) > 0):
		want = 1
	case met.what == early:
	case m.method == download:
		want = m.answers
	case m.method == upload:
		want = 1
	default:
		want = len(m.sent)
	}
	if !m.drop && len(m.responses) != want {
		m.wrong("a clean end after %d of %d responses", len(m.responses), want)
	}
	if last.Status.Code() != codes.OK || last.Cut {
		m.wrong("a clean end, but %v", last)
	}
	if whole && (len(last.Requests) != len(m.sent) || !last.HalfClosed) {
		m.wrong("a clean end, but only %d of %d requests arrived: %v", len(last.Requests), len(m.sent), last)
	}
	if m.method == upload && whole && m.responses[0].GetCount() != int64(len(m.sent)) {
		m.wrong("the answer to %d requests is %v", len(m.sent), m.responses[0])
	}
}

// observer: the journal and the error have all attempts.
func (m *model) observer() {
	if m.result == nil && m.count == 1 {
		if len(m.journal) > 0 || len(m.done) > 0 {
			m.wrong("the observer was told of a plain success")
		}
		return
	}
	if len(m.journal) != m.count || len(m.done) != 1 || len(m.done[0].attempts) != m.count {
		m.wrong("%d attempts, the observer was told of %d and %v", m.count, len(m.journal), m.done)
		return
	}
	if failed, ok := errors.AsType[*grpcretry.Error](m.result); ok && len(failed.Attempts) != m.count {
		m.wrong("%d attempts, the error has %d", m.count, len(failed.Attempts))
	}
	var told, answered []codes.Code
	for i, a := range m.journal {
		if a.Number != i+1 || (a.Failure == nil) != (m.result == nil && i == m.count-1) {
			m.wrong("attempt %d is %+v", i+1, a)
			return
		}
		if a.Failure != nil && (a.Failure.Kind == grpcretry.Answered || a.Failure.Kind == grpcretry.Lost) {
			told = append(told, a.Failure.Status.Code())
		}
	}
	unclear := m.ended() || m.policy.AttemptTimeout > 0 || m.policy.IdleTimeout > 0
	for _, a := range m.attempts {
		switch {
		case a.Cut:
			answered = append(answered, codes.Unavailable)
		case a.Status.Code() != codes.OK && !a.Cancelled:
			answered = append(answered, a.Status.Code())
		}
		// The outcome of an early end may be an error that gRPC makes here.
		unclear = unclear || a.Cancelled || m.met(a).what == early
	}
	if !unclear && !slices.Equal(told, answered) {
		m.wrong("the server answered with %v, the observer was told of %v", answered, told)
	}
}

// ended tells whether something else than the server may have ended the call.
func (m *model) ended() bool {
	return m.wasCancelled() || m.timedOut() || m.sourceFails() || m.buffer.Fail
}

func (m *model) wasCancelled() bool {
	return m.drop || m.cancel > 0 && m.elapsed >= m.cancel
}

func (m *model) timedOut() bool { return m.elapsed >= m.policy.Timeout }

// repeatable tells whether the call may run twice.
func (m *model) repeatable() bool {
	return m.policy.Repeat == grpcretry.RepeatAlways || m.policy.Repeat == grpcretry.RepeatIfIdempotent && m.method != exchange
}

// pushback returns what the server asked for: nothing, not to come back, or a wait.
func pushback(f *grpcretry.Failure) (asked, stop bool, wait time.Duration) {
	values := f.Trailer.Get("grpc-retry-pushback-ms")
	if len(values) == 0 {
		return false, false, 0
	}
	ms, err := strconv.Atoi(values[0])
	if err != nil || ms < 0 {
		return true, true, 0
	}
	return true, false, time.Duration(ms) * time.Millisecond
}

// retries: laws 6 and 7, and the schedule.
func (m *model) retries() {
	backoffs, progress := 0, 0
	for i, a := range m.journal {
		if i == len(m.journal)-1 {
			return
		}
		asked, stop, wait := pushback(a.Failure)
		for _, response := range m.responses {
			if from(response) == a.Number {
				progress++
			}
		}
		if m.well(a, progress) {
			backoffs, progress = 0, 0
		}
		if backoffs++; asked {
			backoffs = 0
		} else if m.policy.Backoff.Initial > 0 {
			wait = min(m.policy.Backoff.Initial<<(backoffs-1), 5*time.Second)
		}
		if a.Wait != wait && !(a.Failure.Kind == grpcretry.Connect && a.Wait > wait) {
			m.wrong("the wait after attempt %d was %v and should have been %v", i+1, a.Wait, wait)
		}
		if stop || !m.goesOn(a.Failure) {
			m.wrong("attempt %d was followed by another: %v %v", i+1, a.Failure.Kind, a.Failure.Status)
		}
		proof := a.Failure.Kind == grpcretry.Connect || asked && len(m.before(a.Number+1)) == 0
		if !proof && !m.repeatable() {
			m.wrong("attempt %d may have run, and was repeated: %v %v", i+1, a.Failure.Kind, a.Failure.Status)
		}
	}
}

// goesOn tells whether a failure is one to retry.
func (m *model) goesOn(f *grpcretry.Failure) bool {
	switch f.Status.Code() {
	case codes.Unavailable:
		return f.Kind != grpcretry.Local
	case codes.DeadlineExceeded:
		return (m.policy.AttemptTimeout > 0 || m.policy.IdleTimeout > 0 && m.recovery != "") && f.Kind != grpcretry.Local
	default:
		return false
	}
}

// end: law 4, and why a call was given up.
func (m *model) end() {
	if m.result == nil || len(m.journal) == 0 {
		return
	}
	for _, err := range m.sendErrs {
		if !errors.Is(err, io.EOF) && !errors.Is(err, errBroken) && err.Error() != m.result.Error() && status.Code(err) != status.Code(m.result) {
			m.wrong("sending got %v, the call %v", err, m.result)
		}
	}
	last := m.journal[len(m.journal)-1].Failure
	failed, ok := errors.AsType[*grpcretry.Error](m.result)
	if !ok {
		asked, _, _ := pushback(last)
		forbidden := m.policy.Repeat == grpcretry.RepeatNever && last.Kind != grpcretry.Connect && !asked
		if m.count > 1 || m.goesOn(last) && !m.limited() && !m.ended() && !forbidden {
			m.wrong("the error of %d attempts is %v", m.count, m.result)
		}
		return
	}
	if code := status.Code(m.result); code != last.Status.Code() && !m.shorter() && !errors.Is(failed.Reason, grpcretry.ErrBufferFull) && !(m.wasCancelled() || m.timedOut() || m.sourceFails()) {
		m.wrong("the last failure is %v, the call's %v", last.Status, m.result)
	}
	if !m.may(failed.Reason, last) {
		m.wrong("the reason cannot be: %v (%v, %v)", m.result, last.Kind, last.Status)
	}
}

// limited tells whether the limits allow no other attempt.
func (m *model) limited() bool {
	attempts, kinds := m.spent()
	return attempts == m.policy.MaxAttempts ||
		m.policy.MaxLost > 0 && kinds[grpcretry.Lost] >= m.policy.MaxLost ||
		m.policy.MaxAnswered > 0 && kinds[grpcretry.Answered] >= m.policy.MaxAnswered
}

// may tells whether a call whose last failure is given may end for a reason.
func (m *model) may(reason error, last *grpcretry.Failure) bool {
	asked, stop, wait := pushback(last)
	committed := m.recovery == "" && (len(m.responses) > 0 || m.gotHeader > 0) || m.context || len(m.commits) > 0
	switch {
	case errors.Is(reason, grpcretry.ErrExhausted):
		return m.goesOn(last) && m.limited()
	case errors.Is(reason, grpcretry.ErrDeadline):
		return m.goesOn(last) && m.elapsed+max(wait, 80*time.Millisecond) > m.policy.Timeout
	case errors.Is(reason, grpcretry.ErrPushback):
		return stop
	case errors.Is(reason, grpcretry.ErrNotRepeatable):
		return m.goesOn(last) && !m.repeatable() && !(asked && len(m.responses) == 0) && last.Kind != grpcretry.Connect
	case errors.Is(reason, grpcretry.ErrCommitted):
		return committed
	case errors.Is(reason, grpcretry.ErrNotRetryable):
		return !m.goesOn(last) || !m.repeatable()
	case errors.Is(reason, grpcretry.ErrBufferFull):
		return m.buffer.Fail
	case errors.Is(reason, grpcretry.ErrLocal):
		return last.Kind == grpcretry.Local || m.sourceFails() || m.shorter()
	default: // the context's
		return m.wasCancelled() || m.timedOut()
	}
}
