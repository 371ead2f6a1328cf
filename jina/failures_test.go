// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// mode is a way to post documents.
type mode struct {
	name   string
	stream bool
	input  func(docs []jina.Document) jina.Input
}

var modes = []mode{
	{"stream of a slice", true, func(docs []jina.Document) jina.Input { return jina.Documents(docs...) }},
	{"stream of an iterator that gives each once", true, once},
	{"unary", false, func(docs []jina.Document) jina.Input { return jina.Documents(docs...) }},
}

// failing is a failure of gRPC, and what becomes of it.
type failing struct {
	name    string
	step    testserver.Step
	code    codes.Code
	class   error
	retried bool // in all modes; if not, it is without streaming if AnyCode is set

	// hits is how often Jina's client sends a request that fails so forever, without
	// streaming and with max_attempts 3, as it was measured; 0 if it was not. It is 9
	// where its own loop and its channel's retry both run: 3 × 3. Here only one does.
	hits int
}

var failings = []failing{
	{"UNAVAILABLE", testserver.Fail(codes.Unavailable, "x"), codes.Unavailable, jina.ErrConnection, true, 9},
	{"INTERNAL", testserver.Fail(codes.Internal, "x"), codes.Internal, nil, true, 9},
	{"NOT_FOUND", testserver.Fail(codes.NotFound, "x"), codes.NotFound, jina.ErrConnection, true, 3},
	{"DEADLINE_EXCEEDED", testserver.Fail(codes.DeadlineExceeded, "x"), codes.DeadlineExceeded, jina.ErrConnection, true, 0},
	{"INVALID_ARGUMENT", testserver.Fail(codes.InvalidArgument, "x"), codes.InvalidArgument, jina.ErrBadServerFlow, false, 3},
	{"UNIMPLEMENTED", testserver.Fail(codes.Unimplemented, "x"), codes.Unimplemented, jina.ErrBadServerFlow, false, 0},
	{"CANCELLED", testserver.Fail(codes.Canceled, "x"), codes.Canceled, jina.ErrBadServerFlow, false, 0},
	{"UNKNOWN", testserver.Fail(codes.Unknown, "x"), codes.Unknown, jina.ErrBadServerFlow, false, 0},
	{
		"UNKNOWN with a timeout of Python's", testserver.Fail(codes.Unknown, "<class 'asyncio.exceptions.TimeoutError'>"),
		codes.Unknown, jina.ErrBadClientInput, false, 0,
	},
	{"connection lost", testserver.Cut(), codes.Unavailable, jina.ErrConnection, true, 0},
	{"connection lost after the header", testserver.Cut().SendHeader(), codes.Unavailable, jina.ErrConnection, true, 0},
	{"timeout", testserver.Hang(), codes.DeadlineExceeded, jina.ErrConnection, true, 0},
}

// timeoutOfTests is the Timeout where tests have one.
const timeoutOfTests = 10 * time.Second

// variant is a failure in one mode under certain params.
type variant struct {
	mode
	failing

	params jina.Params
}

func variants() []variant {
	var all []variant
	for _, m := range modes {
		for _, f := range failings {
			for _, attempts := range []int{1, 3} {
				for _, anyCode := range []bool{false, true} {
					all = append(all, variant{m, f, jina.Params{MaxAttempts: attempts, AnyCode: anyCode, Timeout: timeoutOfTests}})
				}
			}
		}
	}
	return all
}

func (v variant) String() string {
	return fmt.Sprintf("%s/%s/%d attempts/any code %v", v.mode.name, v.failing.name, v.params.MaxAttempts, v.params.AnyCode)
}

// attempts is how many attempts there are of what fails forever.
func (v variant) attempts() int {
	if v.retried || v.params.AnyCode && !v.stream {
		return v.params.MaxAttempts
	}
	return 1
}

func (v variant) method() string {
	if v.stream {
		return callMethod
	}
	return singleMethod
}

// seen is what the gateway sees of three requests of which the first attempts fail.
// Without streaming the first request alone is sent before it has an answer.
func (v variant) seen(attempts int) []string {
	first := " 1"
	if v.stream {
		first = " 1 2 3"
	}
	var all []string
	for n := range attempts {
		all = append(all, fmt.Sprintf("%d:%s", n, first))
	}
	return all
}

// step reads all requests that are sent, before it fails.
func (v variant) readsAll() testserver.Step {
	if v.stream {
		return v.step.Received(3)
	}
	return v.step.Received(1)
}

// post posts three documents, without streaming one after the other.
func (v variant) post(r *rig) *outcome {
	prefetch := 1
	if v.stream {
		prefetch = 3
	}
	return r.post(r.Context(), v.input(texts(3)), jina.WithStream(v.stream), jina.WithPrefetch(prefetch))
}

// assertWaits holds the wait rule: the first wait is exact.
func (r *rig) assertWaits(n int) {
	r.Helper()
	require.Len(r, r.waits, n)
	if n > 0 {
		assert.Equal(r, 500*time.Millisecond, r.waits[0])
	}
	if n > 1 {
		assert.Less(r, r.waits[1], 750*time.Millisecond)
	}
	attempts := r.gateway.Attempts(callMethod, singleMethod)
	for i, wait := range r.waits {
		gap := attempts[i+1].Start.Sub(attempts[i].Start)
		if last := attempts[i]; last.Cancelled {
			gap -= timeoutOfTests
		}
		assert.Equal(r, wait, gap, "wait %d", i+1)
	}
}

// TestFailsForever holds, for each mode, failure and choice of params: how often the
// gateway is asked, with what, and after which waits; that no callback is called; and
// the error.
func TestFailsForever(t *testing.T) {
	t.Parallel()
	for _, v := range variants() {
		bubble(t, v.String(), func(t *testing.T) {
			r := newRig(t, v.params)
			r.gateway.Script(v.method(), v.readsAll().Forever())
			o := v.post(r)

			n := v.attempts()
			assert.Equal(t, v.seen(n), r.seen(), "Jina's client asks %d times", v.hits)
			r.assertWaits(n - 1)
			assert.Equal(t, []string{fmt.Sprint(n)}, o.attempts)
			assert.Empty(t, o.docs)
			assert.Empty(t, o.callbacks)
			assert.Empty(t, o.progress)
			var failed *jina.Error
			require.ErrorAs(t, o.err, &failed)
			assert.Equal(t, v.code, status.Code(o.err))
			assert.Equal(t, v.class, failed.Class)
			assert.Equal(t, n, failed.Attempts())
			if v.stream {
				assert.Empty(t, failed.Request)
			} else {
				assert.Equal(t, "request 1 (documents 1 to 1)", failed.Request)
			}
		})
	}
}

// TestFailsAtFirst holds what becomes of failures that pass.
func TestFailsAtFirst(t *testing.T) {
	t.Parallel()
	for _, v := range variants() {
		if v.attempts() == 1 {
			continue
		}
		bubble(t, v.String(), func(t *testing.T) {
			r := newRig(t, v.params)
			r.gateway.Script(v.method(), v.readsAll().Times(2))
			o := v.post(r)

			require.NoError(t, o.err)
			seen, attempts := v.seen(3), []string{"3"}
			if !v.stream {
				seen, attempts = append(seen, "0: 2", "0: 3"), append(attempts, "1", "1")
			}
			assert.Equal(t, seen, r.seen())
			r.assertWaits(2)
			assert.Equal(t, attempts, o.attempts)
			slices.Sort(o.docs)
			assert.Equal(t, []string{"1", "2", "3"}, o.docs)
			assert.Len(t, o.callbacks, 6, "once a result")
			for i := 0; i < 6; i += 2 {
				done := o.callbacks[i]
				assert.Equal(t, "always"+strings.TrimPrefix(done, "done"), o.callbacks[i+1])
			}
			assert.Equal(t, []jina.Progress{{1, 1, 3}, {2, 2, 3}, {3, 3, 3}}[:len(o.progress)], totals(o.progress, 3))
		})
	}
}

// totals fills in the number of documents where the input does not know.
func totals(progress []jina.Progress, total int) []jina.Progress {
	all := slices.Clone(progress)
	for i := range all {
		all[i].Total = total
	}
	return all
}

// TestBreaksInTheMiddle holds that what was answered is not sent again, and that each
// result comes once, in order if that is wanted.
func TestBreaksInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, m := range modes[:2] {
		for _, inOrder := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, in order %v", m.name, inOrder), func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 3})
				r.gateway.Script(callMethod, testserver.Cut().Received(5).Sent(2),
					testserver.Fail(codes.Internal, "x").Received(3).Sent(1))
				o := r.post(t.Context(), m.input(texts(5)), jina.WithResultsInOrder(inOrder), jina.WithPrefetch(5))

				require.NoError(t, o.err)
				assert.Equal(t, []string{"3"}, o.attempts)
				r.assertOnce(o, 5, inOrder)
				var read []int
				for _, seen := range r.seen() {
					read = append(read, strings.Count(seen, " "))
				}
				assert.Equal(t, []int{5, 3, 2}, read, "Jina's client sends all of them again, and calls back again")
			})
		}
	}
}

// assertOnce holds that the results are those of as many documents, each once.
func (r *rig) assertOnce(o *outcome, n int, inOrder bool) {
	r.Helper()
	var want []string
	for _, doc := range texts(n) {
		want = append(want, string(doc))
	}
	got := slices.Clone(o.docs)
	if !inOrder {
		slices.Sort(got)
		slices.Sort(want)
	}
	assert.Equal(r, want, got)
	assert.Len(r, o.callbacks, 2*n)
}

// TestEndsBeside holds that the end of the caller's context does not take the place of
// another failure that came before.
func TestEndsBeside(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Internal, codes.PermissionDenied, codes.Unavailable, codes.DeadlineExceeded} {
		bubble(t, code.String(), func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.gateway.Script(singleMethod, testserver.Fail(code, "x"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client := r.observed(grpcretry.Observer{Attempt: func(context.Context, string, grpcretry.Attempt) { cancel() }})
			_, err := only(client.Post(ctx, "/x", jina.Documents(texts(1)...), jina.WithStream(false), jina.WithParams(jina.Params{})))
			assert.Equal(t, code, status.Code(err))
			require.NotErrorIs(t, err, context.Canceled)
		})
	}
}

// TestCallerEnds holds that the end of the caller's own context is no error of the
// connection.
func TestCallerEnds(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{MaxAttempts: 3})
			r.gateway.Script(callMethod, testserver.Hang().Forever())
			r.gateway.Script(singleMethod, testserver.Hang().Forever())
			for _, row := range []struct {
				code codes.Code
				err  error
			}{{codes.Canceled, context.Canceled}, {codes.DeadlineExceeded, context.DeadlineExceeded}} {
				ctx, cancel := context.WithCancel(t.Context())
				if row.code == codes.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				} else {
					time.AfterFunc(time.Second, cancel)
				}
				begun := time.Now()
				o := r.post(ctx, m.input(texts(3)), jina.WithStream(m.stream))
				assert.Equal(t, time.Second, time.Since(begun))
				require.ErrorIs(t, o.err, row.err)
				require.NotErrorIs(t, o.err, jina.ErrConnection)
				require.NotErrorIs(t, o.err, jina.ErrBadServerFlow)
				assert.Equal(t, row.code, status.Code(o.err), o.err)
				cancel()
			}
		})
	}
}
