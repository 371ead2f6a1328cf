// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// both are the two ways to send requests.
var both = []mode{modes[0], modes[2]}

// TestOrder holds the order of results, whatever the gateway's is.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, inOrder := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, in order %v", m.name, inOrder), func(t *testing.T) {
				r := newRig(t, jina.Params{})
				// The first takes the longest.
				r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
					n, err := strconv.Atoi(string(docs[0]))
					time.Sleep(time.Duration(10-n) * time.Second)
					return docs, err
				})
				o := r.post(t.Context(), m.input(texts(5)), jina.WithStream(m.stream), jina.WithResultsInOrder(inOrder))
				require.NoError(t, o.err)
				want := []string{"1", "2", "3", "4", "5"}
				if !inOrder {
					slices.Reverse(want)
				}
				assert.Equal(t, want, o.docs)
			})
		}
	}
	bubble(t, "a gateway that does not keep it", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 2})
		r.answer(func(batch []*jinaRequest) []*jinaRequest {
			slices.Reverse(batch)
			return batch
		})
		o := r.post(t.Context(), jina.Documents(texts(5)...), jina.WithResultsInOrder(true))
		require.NoError(t, o.err)
		assert.Equal(t, []string{"1", "2", "3", "4", "5"}, o.docs)
	})
}

// TestPrefetch holds that no more requests are on their way or not done with than the
// prefetch allows, that as many are, and that one more is drawn.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, prefetch := range []int{1, 2, 7} {
			for _, inOrder := range []bool{false, true} {
				bubble(t, fmt.Sprintf("%s, %d, in order %v", m.name, prefetch, inOrder), func(t *testing.T) {
					r := newRig(t, jina.Params{})
					drawn := 0
					docs := func(context.Context) iter.Seq2[jina.Document, error] {
						return func(yield func(jina.Document, error) bool) {
							for drawn < 30 {
								drawn++
								if !yield(jina.Document("x"), nil) {
									return
								}
							}
						}
					}
					done := 0
					for _, err := range r.client.Post(t.Context(), "/echo", jina.Generator(docs), jina.WithRequestSize(1),
						jina.WithStream(m.stream), jina.WithPrefetch(prefetch), jina.WithResultsInOrder(inOrder)) {
						require.NoError(t, err)
						synctest.Wait()
						assert.Equal(t, min(done+prefetch+1, 30), drawn, "the %d-th is not done with", done+1)
						done++
					}
					assert.Equal(t, 30, done)
				})
			}
		}
		bubble(t, m.name+", no limit", func(t *testing.T) {
			r := newRig(t, jina.Params{})
			var running, most atomic.Int64
			r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
				raise(&most, running.Add(1))
				time.Sleep(time.Second)
				running.Add(-1)
				return docs, nil
			})
			o := r.post(t.Context(), m.input(texts(1500)), jina.WithStream(m.stream), jina.WithPrefetch(0))
			require.NoError(t, o.err)
			assert.Len(t, o.docs, 1500)
			assert.EqualValues(t, 1500, most.Load())
		})
	}
}

// TestHookMisbehaves holds that a panic of a hook is one of whoever ranges over the
// Post, and that a hook which ends its goroutine ends the Post.
func TestHookMisbehaves(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, prefetch := range []int{1, 2, 0} {
			for name, hook := range map[string]func(){"panics": panics, "exits": runtime.Goexit} {
				bubble(t, fmt.Sprintf("%s, prefetch %d, %s", m.name, prefetch, name), func(t *testing.T) {
					r := newRig(t, jina.Params{MaxAttempts: 2})
					client := r.observed(grpcretry.Observer{Attempt: func(context.Context, string, grpcretry.Attempt) { hook() }})
					if r.gateway.Stop(); !m.stream {
						require.NoError(t, r.gateway.Start())
						r.gateway.Script(singleMethod, testserver.OK(), testserver.Fail(codes.Unavailable, "x").Forever())
					}
					input := jina.Sequence(slices.Values(texts(5)))
					post := func() {
						for _, err := range client.Post(t.Context(), "/echo", input, jina.WithStream(m.stream),
							jina.WithPrefetch(prefetch), jina.WithRequestSize(1)) {
							if err != nil {
								require.EqualError(t, err, "jina: /echo: bad client input: the input, or a hook, has called runtime.Goexit")
								return
							}
						}
						t.Error("it ended well")
					}
					if name == "panics" {
						assert.PanicsWithValue(t, "mine", post)
					} else {
						post()
					}
					r.assertNothingRuns()
				})
			}
		}
	}
}

// raise makes the most at least n.
func raise(most *atomic.Int64, n int64) {
	for before := most.Load(); before < n; before = most.Load() {
		if most.CompareAndSwap(before, n) {
			return
		}
	}
}

// waiting is an input that gives one document and then waits.
func waiting(begun *atomic.Bool) jina.Input {
	return jina.Generator(func(ctx context.Context) iter.Seq2[jina.Document, error] {
		return func(yield func(jina.Document, error) bool) {
			if yield(jina.Document("1"), nil) {
				begun.Store(true)
				<-ctx.Done()
				begun.Store(false)
			}
		}
	})
}

// TestStopsEarly holds that nothing runs any more once the caller has stopped ranging:
// a bubble waits for all that does.
func TestStopsEarly(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, inOrder := range []bool{false, true} {
			name := fmt.Sprintf("%s, in order %v", m.name, inOrder)
			opts := []jina.Option{jina.WithRequestSize(1), jina.WithStream(m.stream), jina.WithResultsInOrder(inOrder), jina.WithPrefetch(3)}
			bubble(t, name, func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				_, err := only(r.client.Post(t.Context(), "/echo", jina.Documents(texts(100)...), opts...))
				require.NoError(t, err)
				r.assertNothingRuns()
			})
			bubble(t, name+", by a panic", func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				assert.PanicsWithValue(t, "mine", func() {
					for _, err := range r.client.Post(t.Context(), "/echo", jina.Documents(texts(100)...), opts...) {
						require.NoError(t, err)
						panics()
					}
				})
				r.assertNothingRuns()
			})
			bubble(t, name+", while the input waits", func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				var begun atomic.Bool
				for _, err := range r.client.Post(t.Context(), "/echo", waiting(&begun), opts...) {
					require.NoError(t, err)
					synctest.Wait()
					assert.True(t, begun.Load())
					break
				}
				assert.False(t, begun.Load(), "the iterator has ended")
				r.assertNothingRuns()
			})
			bubble(t, name+", while a channel is empty", func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				docs := make(chan jina.Document, 1)
				docs <- jina.Document("1")
				_, err := only(r.client.Post(t.Context(), "/echo", jina.Channel(docs), opts...))
				require.NoError(t, err)
				r.assertNothingRuns()
			})
			bubble(t, name+", by the context, while the input waits", func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				for _, input := range []jina.Input{jina.Channel(make(chan jina.Document)), waiting(new(atomic.Bool))} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					o := r.post(ctx, input, opts...)
					require.ErrorIs(t, o.err, context.DeadlineExceeded)
					assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
					require.NotErrorIs(t, o.err, jina.ErrBadClientInput)
					cancel()
				}
			})
		}
	}
}

// bubbleOf is where a goroutine's stack says which bubble it is in.
var bubbleOf = regexp.MustCompile(`^goroutine \d+ .*synctest bubble \d+`)

// assertNothingRuns holds that no goroutine of the bubble, but this one, runs code of the
// package, and that the gateway has no stream any more.
func (r *rig) assertNothingRuns() {
	r.Helper()
	synctest.Wait()
	buffer := make([]byte, 1<<20)
	all := strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n")
	name := func(stack string) string {
		_, name, _ := strings.Cut(bubbleOf.FindString(stack), "synctest bubble ")
		return name
	}
	ours := name(all[0])
	require.NotEmpty(r, ours)
	for _, stack := range all[1:] {
		assert.False(r, name(stack) == ours && strings.Contains(stack, "grpcretry/jina."), stack)
	}
	for _, a := range r.gateway.Attempts(callMethod) {
		assert.False(r, a.End.IsZero(), "the gateway still has the stream")
	}
}

// TestFailsWhileInputWaits holds that an error does not wait for the input.
func TestFailsWhileInputWaits(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.failOn("1")
			o := r.post(t.Context(), waiting(new(atomic.Bool)), jina.WithStream(m.stream))
			_, ok := errors.AsType[*jina.ExecutorError](o.err)
			assert.True(t, ok, o.err)
		})
	}
}
