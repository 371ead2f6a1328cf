// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// guardTime is how long Await and Close wait for what should come at once.
const guardTime = 30 * time.Second

// Attempt is the record of one attempt that reached the server. What it points
// to (metadata, messages, status) is shared between all copies and must not be
// changed.
type Attempt struct {
	Method string // "/pkg.Service/Method"
	Number int    // from 1, in the order of arrival at the server

	Start time.Time
	End   time.Time // when the handler ended or the connection was cut; zero before

	// PreviousAttempts is the number in grpc-previous-rpc-attempts, or -1 if the
	// key is absent or is not one such number; Metadata has it verbatim.
	PreviousAttempts int
	Deadline         time.Time   // as the server reckons it; zero if there is none
	Metadata         metadata.MD // what the client sent

	Requests   []proto.Message // those read so far, in order; other types than protobuf are left out
	HalfClosed bool            // the client's half-close was read

	// Cancelled means that the attempt's context ended before its handler did:
	// the client cancelled it, its deadline passed, its connection was lost (a
	// Cut of another attempt on it included), or the server was stopped.
	Cancelled bool
	Cut       bool           // a Cut or Reset step ended it
	Status    *status.Status // what the handler returned; nil before End and if Cut
}

// String describes the attempt on one line, with times relative to its start.
func (a Attempt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s previous=%d requests=%d", a.Number, a.Method, a.PreviousAttempts, len(a.Requests))
	if a.HalfClosed {
		b.WriteString(" half-closed")
	}
	if a.Cancelled {
		b.WriteString(" cancelled")
	}
	switch {
	case a.End.IsZero():
		b.WriteString(" running")
	case a.Cut:
		fmt.Fprintf(&b, " cut after %v", a.End.Sub(a.Start))
	default:
		fmt.Fprintf(&b, " %v %q after %v", a.Status.Code(), a.Status.Message(), a.End.Sub(a.Start))
	}
	return b.String()
}

// Attempts returns the records of all attempts so far, or of those of the given
// methods (named as for [Server.Script]), in the order of arrival. It may be
// called at any time; attempts that still run are there with what is known of
// them. An unknown method is a mistake. Records are kept as long as the server.
func (s *Server) Attempts(methods ...string) []Attempt {
	s.helper()
	var names []string
	for _, name := range methods {
		m, err := s.method(name)
		if err != nil {
			s.misuse("Attempts: %v", err)
			return nil
		}
		names = append(names, m.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot(names)
}

// snapshot needs s.mu.
func (s *Server) snapshot(methods []string) []Attempt {
	out := make([]Attempt, 0, len(s.attempts))
	for _, a := range s.attempts {
		if len(methods) == 0 || slices.Contains(methods, a.Method) {
			c := *a
			// What is appended later lies beyond the copy's end.
			c.Requests = slices.Clip(c.Requests)
			out = append(out, c)
		}
	}
	return out
}

// Await blocks until the records of all attempts satisfy the condition, and
// returns them. After 30 s it prints the records and ends the test of tb through
// Fatalf. The condition is tried again after each event: an attempt's start, a
// request, a half-close, an end.
func (s *Server) Await(tb testing.TB, until func([]Attempt) bool) []Attempt {
	tb.Helper()
	guard := time.NewTimer(guardTime)
	defer guard.Stop()
	for {
		s.mu.Lock()
		all := s.snapshot(nil)
		changed := s.changed
		s.mu.Unlock()
		if until(all) {
			return all
		}
		select {
		case <-changed:
		case <-guard.C:
			tb.Fatalf("testserver: Await: not so after %v, with the attempts\n%s", guardTime, lines(all))
			return all
		}
	}
}

// Begun is a condition for [Server.Await]: at least n attempts have arrived.
func Begun(n int) func([]Attempt) bool {
	return func(all []Attempt) bool { return len(all) >= n }
}

// Ended is a condition for [Server.Await]: at least n attempts have ended.
func Ended(n int) func([]Attempt) bool {
	return func(all []Attempt) bool {
		ended := 0
		for _, a := range all {
			if !a.End.IsZero() {
				ended++
			}
		}
		return ended >= n
	}
}

func lines(all []Attempt) string {
	var b strings.Builder
	for _, a := range all {
		b.WriteString("\t" + a.String() + "\n")
	}
	return b.String()
}

// begin opens the record of an attempt and takes its step. Both happen at once,
// so that steps go out in the order of the attempts' numbers.
func (s *Server) begin(ctx context.Context, method string) (*Attempt, Step, bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	a := &Attempt{Method: method, Start: time.Now(), Metadata: md, PreviousAttempts: previous(md)}
	if deadline, ok := ctx.Deadline(); ok {
		a.Deadline = deadline
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
	a.Number = len(s.attempts)
	step, scripted := s.nextStep(method)
	s.notify()
	return a, step, scripted
}

func previous(md metadata.MD) int {
	values := md.Get("grpc-previous-rpc-attempts")
	if len(values) != 1 {
		return -1
	}
	n, err := strconv.ParseUint(values[0], 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

func (s *Server) received(a *Attempt, m any) {
	msg, ok := m.(proto.Message)
	if !ok {
		return
	}
	msg = proto.Clone(msg)
	s.update(a, func() { a.Requests = append(a.Requests, msg) })
}

func (s *Server) halfClosed(a *Attempt) {
	s.update(a, func() { a.HalfClosed = true })
}

// end completes the record of an attempt and returns err.
func (s *Server) end(ctx context.Context, a *Attempt, err error) error {
	st, ok := status.FromError(err)
	switch {
	case err == nil:
		st = status.New(codes.OK, "")
	case !ok:
		st = status.FromContextError(err) // as grpc does
	}
	cancelled := ctx.Err() != nil
	s.update(a, func() { a.End, a.Status, a.Cancelled = time.Now(), st, cancelled })
	return err
}

func (s *Server) endCut(a *Attempt) {
	s.update(a, func() { a.End, a.Cut = time.Now(), true })
}

// update changes a record, unless it is complete: a handler may still run then.
func (s *Server) update(a *Attempt, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.End.IsZero() {
		change()
		s.notify()
	}
}

// notify needs s.mu.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}
