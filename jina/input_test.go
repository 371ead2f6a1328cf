// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/jina"
)

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
			{"panics", "the input failed: the input panicked: mine", sequence(panics)},
			{"exits", "the input, or a hook, has called runtime.Goexit", sequence(runtime.Goexit)},
			{"is no iterator", "the input failed: the function given to Generator returned nil", jina.Generator(
				func(context.Context) iter.Seq2[jina.Document, error] { return nil })},
			{"panics in place of an iterator", "the input failed: the input panicked: mine", jina.Generator(
				func(context.Context) iter.Seq2[jina.Document, error] {
					panics()
					return nil
				})},
			{"goes on behind its error", "the input failed: mine", jina.Generator(
				func(context.Context) iter.Seq2[jina.Document, error] {
					return func(yield func(jina.Document, error) bool) {
						for range 3 {
							yield(nil, errMine)
						}
					}
				})},
		} {
			for _, prefetch := range []int{1, 2, 0} {
				bubble(t, fmt.Sprintf("%s, %s, prefetch %d", m.name, row.name, prefetch), func(t *testing.T) {
					r := newRig(t, jina.Params{MaxAttempts: 2})
					o := r.post(t.Context(), row.input, jina.WithStream(m.stream), jina.WithPrefetch(prefetch))
					require.EqualError(t, o.err, "jina: /echo: bad client input: "+row.text)
					require.ErrorIs(t, o.err, jina.ErrBadClientInput)
				})
			}
		}
		for name, input := range map[string]jina.Input{
			"goes on when nobody asks": jina.Sequence(func(yield func(jina.Document) bool) {
				for range 3 {
					yield(jina.Document("1"))
				}
			}),
			"panics when nobody asks": jina.Sequence(func(yield func(jina.Document) bool) {
				defer panics()
				for yield(jina.Document("1")) {
				}
			}),
		} {
			bubble(t, m.name+", "+name, func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				_, err := only(r.client.Post(t.Context(), "/echo", input, jina.WithStream(m.stream), jina.WithRequestSize(1)))
				require.NoError(t, err)
				r.assertNothingRuns()
			})
		}
	}
}

// TestInputCleansUp holds that an iterator which waits, on its way out, for its context
// to end does not wait forever, whatever the Post ends with.
func TestInputCleansUp(t *testing.T) {
	t.Parallel()
	cleaning := func(last error) jina.Input {
		return jina.Generator(func(ctx context.Context) iter.Seq2[jina.Document, error] {
			return func(yield func(jina.Document, error) bool) {
				done := false
				defer func() {
					if !done {
						<-ctx.Done()
					}
				}()
				for range 5 {
					if !yield(jina.Document("1"), nil) {
						return
					}
				}
				if last != nil {
					yield(nil, last)
				}
				done = last == nil // it ends well, and its context with it
			}
		})
	}
	for _, m := range both {
		for _, prefetch := range []int{1, 2, 0} {
			opts := []jina.Option{jina.WithStream(m.stream), jina.WithPrefetch(prefetch), jina.WithRequestSize(1)}
			name := fmt.Sprintf("%s, prefetch %d, ", m.name, prefetch)
			bubble(t, name+"stops early", func(t *testing.T) {
				r := newRig(t, jina.Params{})
				_, err := only(r.client.Post(t.Context(), "/echo", cleaning(nil), opts...))
				require.NoError(t, err)
			})
			bubble(t, name+"ends well", func(t *testing.T) {
				r := newRig(t, jina.Params{})
				o := r.post(t.Context(), cleaning(nil), opts...)
				require.NoError(t, o.err)
				assert.Len(t, o.docs, 5)
			})
			bubble(t, name+"fails", func(t *testing.T) {
				r := newRig(t, jina.Params{})
				o := r.post(t.Context(), cleaning(errMine), opts...)
				require.ErrorIs(t, o.err, errMine)
				assert.Len(t, o.docs, 5)
			})
			bubble(t, name+"executor fails", func(t *testing.T) {
				r := newRig(t, jina.Params{})
				r.failOn("1")
				require.Error(t, r.post(t.Context(), cleaning(nil), opts...).err)
			})
			bubble(t, name+"gateway is down", func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 2})
				r.gateway.Stop()
				require.ErrorIs(t, r.post(t.Context(), cleaning(nil), opts...).err, jina.ErrConnection)
			})
		}
	}
}

// TestDialogue holds that a range body may give the input its next document.
func TestDialogue(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, prefetch := range []int{1, 2, 0} {
			bubble(t, fmt.Sprintf("%s, prefetch %d", m.name, prefetch), func(t *testing.T) {
				r := newRig(t, jina.Params{})
				docs := make(chan jina.Document)
				next := func(n int) { docs <- jina.Document(strconv.Itoa(n)) }
				go next(1)
				n := 1
				for _, err := range r.client.Post(t.Context(), "/echo", jina.Channel(docs), jina.WithStream(m.stream),
					jina.WithPrefetch(prefetch), jina.WithRequestSize(1)) {
					require.NoError(t, err)
					if n++; n > 3 {
						close(docs)
						continue
					}
					next(n)
				}
				assert.Equal(t, 4, n)
			})
		}
	}
}

// TestSequenceGivesUp holds that an iterator which ends since the caller's context has
// is not taken for one that ended well.
func TestSequenceGivesUp(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, prefetch := range []int{1, 2, 0} {
			bubble(t, fmt.Sprintf("%s, prefetch %d", m.name, prefetch), func(t *testing.T) {
				r := newRig(t, jina.Params{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				o := r.post(ctx, jina.Sequence(func(yield func(jina.Document) bool) {
					if yield(jina.Document("1")) {
						<-ctx.Done()
					}
				}), jina.WithStream(m.stream), jina.WithPrefetch(prefetch))
				require.ErrorIs(t, o.err, context.DeadlineExceeded)
				assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
			})
		}
	}
}
