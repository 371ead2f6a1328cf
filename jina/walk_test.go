// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestWalkPost posts under random parameters through random failures, in virtual time.
// However that ends: no result comes twice, nor out of order if order is wanted; if it
// ends well, all have come; callbacks are called once for each; and nothing is left
// running.
func TestWalkPost(t *testing.T) {
	t.Parallel()
	runs := 400
	if jina.RaceEnabled {
		runs = 100
	}
	walkPosts(t, runs)
}

// TestSoakWalkPost does so for longer.
func TestSoakWalkPost(t *testing.T) {
	if os.Getenv("GRPCRETRY_SOAK") == "" {
		t.Skip("runs in make soak")
	}
	walkPosts(t, 5_000)
}

func walkPosts(t *testing.T, runs int) {
	t.Helper()
	outcomes := map[string]int{}
	for seed := range runs {
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &postWalk{Rand: rand.New(rand.NewPCG(uint64(seed), 0))}
				outcomes[w.run(t)]++
			})
		})
		if !ok {
			return // one tells as much as many
		}
	}
	t.Logf("outcomes: %v", outcomes)
	for _, outcome := range []string{"ended well", "failed", "stopped", "cancelled"} {
		assert.Greater(t, outcomes[outcome], runs/100, outcome)
	}
}

// postWalk is a Post at random.
type postWalk struct {
	*rand.Rand

	count    int // documents
	size     int // of a request
	stopAt   int // results, after which the caller stops
	inOrder  bool
	stream   bool
	prefetch int
	timeout  time.Duration
}

func (w *postWalk) yes(oneIn int) bool { return w.IntN(oneIn) == 0 }

func (w *postWalk) ms(most int) time.Duration { return time.Duration(w.IntN(most)) * time.Millisecond }

func (w *postWalk) run(t *testing.T) string {
	w.count, w.size, w.stopAt = w.IntN(30), 1+w.IntN(3), -1
	w.inOrder, w.stream, w.prefetch = w.yes(2), !w.yes(3), []int{0, 1, 2, 5, 1000}[w.IntN(5)]
	params := jina.Params{MaxAttempts: 1 + w.IntN(6), InitialBackoff: time.Duration(w.IntN(3)-1) * time.Second}
	if w.yes(2) {
		w.timeout = 20 * time.Second
		params.Timeout = w.timeout
	}
	if w.yes(3) {
		params.ConnectWait = time.Minute
	}
	if w.yes(3) {
		params.ResetAfter.Responses = 1 + w.IntN(4)
	}
	if w.yes(5) {
		w.stopAt = w.IntN(10)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	if w.yes(4) {
		ctx, cancel = context.WithTimeout(t.Context(), w.ms(20_000))
		defer cancel()
	}
	r := newRig(t, params)
	w.disturb(r)
	o, stopped := w.post(ctx, r)
	r.assertNothingRuns()
	return w.check(t, r, o, params, stopped, ctx.Err() != nil)
}

// disturb arranges what goes wrong: an executor that is slow and at times cannot be
// reached, and attempts that fail.
func (w *postWalk) disturb(r *rig) {
	pauses, unreachable := make(chan time.Duration, 1000), w.yes(3)
	for range cap(pauses) {
		pauses <- w.ms(1000)
	}
	slow := w.yes(2)
	r.gateway.Handle("echo", "", func(ctx context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
		pause := <-pauses
		if unreachable && pause%10 == 0 {
			return nil, jinatest.Unreachable(codes.Unavailable, "no replica")
		}
		if slow {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		return docs, nil
	})
	method, steps := singleMethod, []testserver.Step{}
	if w.stream {
		method = callMethod
	}
	for range w.IntN(6) {
		steps = append(steps, w.step())
	}
	r.gateway.Script(method, steps...)
	if w.yes(4) {
		time.AfterFunc(w.ms(5000), func() {
			r.gateway.Stop()
			time.AfterFunc(2*time.Second, func() { assert.NoError(r, r.gateway.Start()) })
		})
	}
}

func (w *postWalk) step() testserver.Step {
	retried := []codes.Code{codes.Unavailable, codes.Internal, codes.NotFound, codes.DeadlineExceeded, codes.Aborted}
	s := testserver.Fail(retried[w.IntN(len(retried))], "x")
	switch w.IntN(5) {
	case 0:
		s = testserver.Cut()
	case 1:
		s = s.Pushback(strconv.Itoa(w.IntN(3000)))
	case 2:
		return testserver.OK().Delay(w.ms(3000))
	case 3:
		if w.timeout > 0 {
			return testserver.Hang()
		}
	}
	if w.yes(3) {
		s = s.SendHeader("a", "b")
	}
	if w.stream && w.yes(2) {
		// Of so many answers there are enough, but for the last attempt.
		s = s.Sent(w.IntN(3))
	}
	return s
}

// post posts, with an input that waits and a caller that does.
func (w *postWalk) post(ctx context.Context, r *rig) (o *outcome, stopped bool) {
	o = &outcome{}
	waits, slowBody := w.yes(2), w.yes(3)
	pauses := make([]time.Duration, w.count)
	for i := range pauses {
		pauses[i] = w.ms(800)
	}
	input := jina.Generator(func(ctx context.Context) iter.Seq2[jina.Document, error] {
		return func(yield func(jina.Document, error) bool) {
			for i, doc := range texts(w.count) {
				if waits {
					select {
					case <-time.After(pauses[i]):
					case <-ctx.Done():
						return
					}
				}
				if !yield(append(slices.Clone(doc), ' '), nil) {
					return
				}
			}
		}
	})
	post := r.client.Post(ctx, "/echo", input, jina.WithStream(w.stream), jina.WithResultsInOrder(w.inOrder),
		jina.WithPrefetch(w.prefetch), jina.WithRequestSize(w.size),
		jina.WithOnDone(func(response *jina.Response) error {
			o.callbacks = append(o.callbacks, o.read(r.T, response))
			return nil
		}))
	for response, err := range post {
		require.NoError(r, o.err, "something is behind an error")
		if o.err = err; err != nil {
			continue
		}
		o.docs = append(o.docs, o.read(r.T, response))
		if len(o.docs) == w.stopAt {
			return o, true
		}
		if slowBody {
			time.Sleep(300 * time.Millisecond)
		}
	}
	return o, false
}

func (w *postWalk) check(t *testing.T, r *rig, o *outcome, params jina.Params, stopped, ended bool) string {
	assert.Equal(t, o.docs, o.callbacks)
	var got []int
	for doc := range strings.FieldsSeq(strings.Join(o.docs, "")) {
		n, err := strconv.Atoi(doc)
		require.NoError(t, err)
		got = append(got, n)
	}
	if w.inOrder {
		assert.True(t, slices.IsSorted(got), got)
	}
	slices.Sort(got)
	assert.Equal(t, slices.Compact(slices.Clone(got)), got, "nothing comes twice")
	if w.stream && params.ResetAfter.Responses == 0 {
		assert.LessOrEqual(t, len(r.gateway.Attempts(callMethod)), params.MaxAttempts)
	}
	switch {
	case stopped:
		return "stopped"
	case o.err == nil:
		assert.Len(t, got, w.count, "nothing is lost")
		return "ended well"
	case ended:
		return "cancelled"
	}
	failed := &jina.Error{}
	require.ErrorAs(t, o.err, &failed)
	require.NotErrorIs(t, o.err, context.DeadlineExceeded)
	return "failed"
}
