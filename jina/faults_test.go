// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// The tests of this file hold faults that Posts once had.

// TestHookAfterPost: the hooks of a stream's end run on gRPC's goroutine once the range is left, after
// the Post has returned. One that panics there ends the program.
func TestHookAfterPost(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		var ended atomic.Bool
		client := r.observed(grpcretry.Observer{Done: func(context.Context, string, []grpcretry.Attempt, error) {
			time.Sleep(time.Second)
			ended.Store(true)
		}})
		_, err := only(client.Post(t.Context(), "/echo", jina.Documents(texts(5)...), jina.WithRequestSize(1)))
		require.NoError(t, err)
		assert.True(t, ended.Load(), "when the range loop ends, so has all that the Post began")
		time.Sleep(time.Minute)
	})
}

// TestPanicIsLost: a panic (or Goexit) while a request is sent is lost if the stream then fails.
func TestPanicIsLost(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(){"panics": panics, "exits": runtime.Goexit} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.gateway.Script(callMethod, testserver.Fail(codes.Unavailable, "x"))
			options, err := jina.DialOptions(jina.Params{MaxAttempts: 2}, grpcretry.WithBuffer(grpcretry.Buffer{Memory: -1}),
				grpcretry.WithObserver(grpcretry.Observer{Commit: func(context.Context, string, error) { hook() }}))
			require.NoError(t, err)
			client := jina.NewClient(r.gateway.Dial(options...))
			post := func() {
				_, err := only(client.Post(t.Context(), "/echo", jina.Documents(texts(3)...), jina.WithRequestSize(1)))
				require.ErrorContains(t, err, "the input, or a hook, has called runtime.Goexit")
			}
			if name == "panics" {
				assert.PanicsWithValue(t, "mine", post)
			} else {
				post()
			}
		})
	}
}

// TestCallersDeadline: at the caller's deadline the server's timer may be the first to notice.
func TestCallersDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		r.gateway.Script(singleMethod, testserver.Hang().Forever())
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := only(r.client.Post(ctx, "/x", jina.Documents(texts(100)...), jina.WithRequestSize(1), jina.WithStream(false)))
			cancel()
			require.NotErrorIs(t, err, jina.ErrConnection)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

// TestCallersDeadlineLate: the status is there by the deadline, the context's own timer is late.
func TestCallersDeadlineLate(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		r.gateway.Script(singleMethod, testserver.Fail(codes.DeadlineExceeded, "x").Delay(time.Second))
		_, err := only(r.client.Post(lateContext{t.Context(), time.Now().Add(time.Second)}, "/x", jina.Documents(texts(1)...), jina.WithStream(false)))
		require.NotErrorIs(t, err, jina.ErrConnection)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

type lateContext struct {
	context.Context

	deadline time.Time
}

func (l lateContext) Deadline() (time.Time, bool) { return l.deadline, true }

// TestCapitals: keys with capital letters pass WithMetadata, and gRPC refuses them.
func TestCapitals(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			o := r.post(t.Context(), m.input(texts(1)), append(inOrder(m), jina.WithMetadata(metadata.MD{"Trace": {"x"}, "trace": {"y"}}))...)
			require.NoError(t, o.err)
			assert.ElementsMatch(t, []string{"x", "y"}, r.gateway.Attempts()[0].Metadata.Get("trace"))
		})
	}
}

// TestBareContextError: the caller's context, as an interceptor (a rate limiter, say) returns it, bare.
func TestBareContextError(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{},
				grpc.WithChainUnaryInterceptor(func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
					<-ctx.Done()
					return ctx.Err()
				}),
				grpc.WithChainStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			o := r.post(ctx, m.input(texts(1)), inOrder(m)...)
			require.ErrorIs(t, o.err, context.DeadlineExceeded)
			require.NotErrorIs(t, o.err, jina.ErrBadServerFlow)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
		})
	}
}

// TestTooLargeBehindHeaders: a gateway that had sent its headers before its answer was too large.
func TestTooLargeBehindHeaders(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		r.gateway.Script(singleMethod, testserver.Fail(codes.ResourceExhausted, "trying to send message larger than max (5 vs. 4)").SendHeader())
		o := r.post(t.Context(), jina.Documents(texts(1)...), jina.WithStream(false))
		require.ErrorIs(t, o.err, jina.ErrBadServerFlow)
	})
}

// TestTargets: what is no host:port.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"grpc://x:1 ", "grpc://x:y", "grpc://x:1?y", "grpc://x:1#y", "grpc://u@x:1", "grpc://x:-1", "grpc://x:99999"} {
		_, err := jina.Dial(target, jina.Params{})
		assert.ErrorContains(t, err, "must have the form grpc://host:port", target)
	}
}
