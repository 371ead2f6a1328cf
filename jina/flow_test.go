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

	"github.com/seed98143e88/grpcretry/jina"
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
// prefetch allows, that as many are, and that one more is drawn, where it is drawn ahead.
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
						ahead := prefetch + 1
						if prefetch == 1 && !m.stream {
							ahead = 1 // for there is no goroutine that draws
						}
						assert.Equal(t, min(done+ahead, 30), drawn, "the %d-th is not done with", done+1)
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
				most.Store(max(most.Load(), running.Add(1)))
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

// failingAfter is an input of n documents and an error.
func failingAfter(n int, err error) jina.Input {
	return jina.Generator(func(context.Context) iter.Seq2[jina.Document, error] {
		return func(yield func(jina.Document, error) bool) {
			for _, doc := range texts(n) {
				if !yield(doc, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	})
}

// TestInputEnds holds how a Post ends with its input. In order, Jina's client waits
// forever for an input that is empty or fails at once, and takes one that fails later for
// one that ends well, with some of its results.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, inOrder := range []bool{false, true} {
			for _, n := range []int{0, 1, 2, 3} {
				for _, fails := range []error{nil, errMine} {
					bubble(t, fmt.Sprintf("%s, in order %v, %d documents, %v", m.name, inOrder, n, fails), func(t *testing.T) {
						r := newRig(t, jina.Params{MaxAttempts: 2})
						o := r.post(t.Context(), failingAfter(n, fails), jina.WithStream(m.stream),
							jina.WithResultsInOrder(inOrder), jina.WithRequestSize(2))
						assert.Len(t, o.docs, (n+1)/2, "what was drawn is sent, and answered")
						if fails == nil {
							require.NoError(t, o.err)
							return
						}
						require.ErrorIs(t, o.err, errMine)
						require.ErrorIs(t, o.err, jina.ErrBadClientInput)
						require.EqualError(t, o.err, "jina: /echo: bad client input: the input failed: mine")
					})
				}
			}
		}
	}
}

func panics() {
	panic("mine") //nolint:forbidigo // it is what is tested
}

// TestInputMisbehaves holds that a panic, or worse, of an input ends the Post, and not
// the program.
func TestInputMisbehaves(t *testing.T) {
	t.Parallel()
	sequence := func(last func()) jina.Input {
		return jina.Sequence(func(yield func(jina.Document) bool) {
			if yield(jina.Document("1")) {
				last()
			}
		})
	}
	for _, m := range both {
		for _, row := range []struct {
			name, text string
			input      jina.Input
		}{
			{"panics", "the input panicked: mine", sequence(panics)},
			{"exits", "the input called runtime.Goexit", sequence(runtime.Goexit)},
			{"is no iterator", "the function given to Generator returned nil", jina.Generator(
				func(context.Context) iter.Seq2[jina.Document, error] { return nil })},
			{"panics in place of an iterator", "the input panicked: mine", jina.Generator(
				func(context.Context) iter.Seq2[jina.Document, error] {
					panics()
					return nil
				})},
		} {
			bubble(t, m.name+", "+row.name, func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				o := r.post(t.Context(), row.input, jina.WithStream(m.stream))
				require.EqualError(t, o.err, "jina: /echo: bad client input: the input failed: "+row.text)
				require.ErrorIs(t, o.err, jina.ErrBadClientInput)
			})
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
