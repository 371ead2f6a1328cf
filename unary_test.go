// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func TestAttemptContext(t *testing.T) {
	type idKey struct{}
	bubble(t, func(t *testing.T) {
		var seen []string
		inner := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			number, ok := grpcretry.AttemptFromContext(ctx)
			seen = append(seen, fmt.Sprintf("%v %v %v", ctx.Value(idKey{}), number, ok))
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithAttemptContext(func(ctx context.Context, attempt int) context.Context {
			id := fmt.Sprintf("id-%d", attempt)
			return metadata.AppendToOutgoingContext(context.WithValue(ctx, idKey{}, id), "request-id", id)
		}))
		r.server.Script(read, busy.Times(2))
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), grpc.WithChainUnaryInterceptor(inner))...))
		ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "a", "grpc-previous-rpc-attempts", "41")
		_, err := client.Read(ctx, &testv1.Request{})
		require.NoError(t, err)
		assert.Equal(t, []string{"id-1 0 false", "id-2 2 true", "id-3 3 true"}, seen)
		for i, a := range r.server.Attempts() {
			assert.Equal(t, []string{"a"}, a.Metadata["tenant"])
			assert.Equal(t, []string{fmt.Sprintf("id-%d", i+1)}, a.Metadata["request-id"])
			want := []string{"41"} // the first attempt is the caller's own affair
			if i > 0 {
				want = []string{fmt.Sprint(i)}
			}
			assert.Equal(t, want, a.Metadata["grpc-previous-rpc-attempts"])
		}
	})
}

func TestAttemptContextNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithAttemptContext(func(ctx context.Context, attempt int) context.Context {
			if attempt == 2 {
				return nil
			}
			return ctx
		}))
		r.server.Script(read, busy.Forever())
		_, err := r.call(t.Context(), read)
		assert.Equal(t, codes.Internal, status.Code(err))
		require.ErrorIs(t, err, grpcretry.ErrLocal)
		assert.ErrorContains(t, err, "WithAttemptContext's function returned nil for attempt 2")
		assert.Len(t, r.server.Attempts(), 1)
	})
}

func TestManyAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 300})
		r.server.Script(read, busy.Forever())
		var trailer metadata.MD
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer))
		var retryError *grpcretry.Error
		require.ErrorAs(t, err, &retryError)
		assert.ErrorContains(t, err, "(300 attempts, ")
		require.Len(t, retryError.Attempts, 100, "the history is bounded")
		assert.Equal(t, 201, retryError.Attempts[0].Number)
		assert.Equal(t, 300, retryError.Attempts[99].Number)
		n, _ := grpcretry.AttemptsFromMD(trailer)
		assert.Equal(t, 300, n)
		assert.Equal(t, 299, r.server.Attempts()[299].PreviousAttempts)
	})
}

func TestCheck(t *testing.T) {
	garbled := func(reply any) error {
		response, _ := reply.(*testv1.Response)
		if response.GetCount() == 13 {
			return status.Error(codes.DataLoss, "garbled")
		}
		if response.GetCount() == 14 {
			return errors.New("unlucky")
		}
		return nil
	}
	answer := func(count int64) testserver.Step {
		return testserver.Do(func(stream grpc.ServerStream) error {
			return errors.Join(stream.RecvMsg(&testv1.Request{}), stream.SendMsg(&testv1.Response{Key: "partial", Count: count}))
		})
	}
	t.Run("is retried like a listed code", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Check: garbled, Codes: []codes.Code{}})
			r.server.Script(read, answer(13), answer(14), answer(15))
			response, err := r.call(t.Context(), read)
			require.NoError(t, err)
			assert.EqualValues(t, 15, response.GetCount())
			assert.Equal(t, []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}, r.starts())
			assert.True(t, r.journal.attempts[0].Failure.Listed)
			assert.Equal(t, grpcretry.Answered, r.journal.attempts[0].Failure.Kind)
		})
	})
	t.Run("resets the reply and keeps the status", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Check: garbled})
			r.server.Script(read, answer(14).Times(2), answer(13))
			var reply testv1.Response
			conn := r.server.Dial(r.retrier.DialOptions()...)
			err := conn.Invoke(t.Context(), read, &testv1.Request{}, &reply)
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			assert.Equal(t, codes.DataLoss, status.Code(err))
			assert.Equal(t, codes.Unknown, r.journal.attempts[0].Failure.Status.Code())
			assert.Empty(t, reply.GetKey())
		})
	})
	t.Run("does not repeat what may not be repeated", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Check: garbled})
			r.server.Script(write, answer(13))
			_, err := r.call(t.Context(), write)
			require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
			assert.Equal(t, codes.DataLoss, status.Code(err))
		})
	})
}

func TestRetryable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []grpcretry.Failure
		r := newRig(t, grpcretry.Policy{MaxAttempts: 5, Retryable: func(f grpcretry.Failure) bool {
			seen = append(seen, f)
			return f.Status.Code() == codes.NotFound
		}})
		r.server.Script(read, testserver.Fail(codes.NotFound, "none").Header("h", "1").Trailer("t", "1"), busy)
		_, err := r.call(t.Context(), read)
		require.ErrorIs(t, err, grpcretry.ErrNotRetryable)
		require.Len(t, seen, 2)
		assert.False(t, seen[0].Listed)
		assert.Equal(t, []string{"1"}, seen[0].Header["h"], "the header is captured for Retryable")
		assert.Equal(t, []string{"1"}, seen[0].Trailer["t"])
		assert.Equal(t, read, seen[0].Method)
		assert.Equal(t, 1, seen[0].Attempt)
		assert.NotNil(t, seen[0].Peer)
		assert.True(t, seen[1].Listed)
		assert.Equal(t, 2, seen[1].Attempt)
	})
}

func TestDisable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Trailer("t", "1").Times(2))
		var trailer metadata.MD
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer), grpcretry.Disable())
		assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy")
		_, reported := grpcretry.AttemptsFromMD(trailer)
		assert.False(t, reported)
		assert.Empty(t, r.journal.done)

		_, err = r.call(t.Context(), read, grpcretry.Disable(), grpcretry.WithCallPolicy(grpcretry.Policy{}))
		require.NoError(t, err, "the last option counts")
		assert.Len(t, r.server.Attempts(), 3)
	})
}

func TestCallOptionsWithoutRetrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		client := testv1.NewTestServiceClient(testserver.New(t).Dial())
		_, err := client.Read(t.Context(), &testv1.Request{}, grpcretry.Disable(), grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: -1}))
		require.NoError(t, err)
	})
}

func TestCallPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 1})
		r.server.Script(read, busy.Times(3))
		option := grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: 4, Backoff: grpcretry.Backoff{Initial: time.Second, Multiplier: 1}})
		_, err := r.call(t.Context(), read, option)
		require.NoError(t, err)
		_, err = r.call(t.Context(), read, option)
		require.NoError(t, err, "an option may be used again")
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}, r.starts())
	})
}

func TestCallPolicyInvalid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		trailer := metadata.Pairs("t", "stale")
		var finished []error
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { finished = append(finished, err) }),
			grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: -2, Timeout: -time.Second}))
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "WithCallPolicy: MaxAttempts is -2")
		assert.ErrorContains(t, err, "WithCallPolicy: Timeout is -1s")
		assert.Equal(t, []error{err}, finished)
		assert.Equal(t, metadata.MD{"jina-client-attempts": {"0"}}, trailer)
		assert.Empty(t, r.server.Attempts())
	})
}

func TestStreamsPassThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		stream, err := r.Exchange(t.Context(), grpcretry.Disable(), grpcretry.WithCallPolicy(grpcretry.Policy{}))
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, "a", response.GetKey())
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		assert.Equal(t, io.EOF, err)
	})
}

// TestOddInvokers gives the interceptor what other interceptors may: bare errors,
// errors that claim success, no connection, replies that are no messages.
func TestOddInvokers(t *testing.T) {
	t.Parallel()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait))
	require.NoError(t, err)
	for _, row := range []struct {
		name     string
		err      error
		code     codes.Code
		attempts int
	}{
		{"UNAVAILABLE", status.Error(codes.Unavailable, "busy"), codes.Unavailable, 3},
		{"io.EOF", io.EOF, codes.Unknown, 1},
		{"wrapped io.EOF", fmt.Errorf("inner: %w", io.EOF), codes.Unknown, 1},
		{"claims to be OK", okError{}, codes.Unknown, 1},
		{"bare", errors.New("bare"), codes.Unknown, 1},
		{"bare deadline", context.DeadlineExceeded, codes.Unknown, 1},
		{"wrapped status", fmt.Errorf("inner: %w", status.Error(codes.Unavailable, "busy")), codes.Unavailable, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, reply := range []any{nil, (*testv1.Response)(nil), &testv1.Response{}, new(string), "text", 3} {
				made := 0
				err := retrier.UnaryClientInterceptor()(t.Context(), "no/slash/at/all", nil, reply, nil,
					func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
						made++
						return row.err
					})
				assert.Equal(t, row.code, status.Code(err), "%v", err)
				assert.NotErrorIs(t, err, io.EOF)
				assert.Equal(t, row.attempts, made)
			}
		})
	}
}

type okError struct{}

func (okError) Error() string              { return "not ok" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// TestEarlyReturn puts an interceptor below that gives up on its invoker while
// that still runs, as some timeouts and circuit breakers do. What the abandoned
// attempt leaves behind must reach neither the next attempt nor another call; the
// race detector watches.
func TestEarlyReturn(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	server.Script(read, testserver.OK().Trailer("t", "late").Forever())
	var background sync.WaitGroup
	early := func(ctx context.Context, method string, req, _ any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if number, _ := grpcretry.AttemptFromContext(ctx); number == 0 {
			background.Go(func() {
				_ = invoker(context.WithoutCancel(ctx), method, req, &testv1.Response{}, cc, opts...)
			})
			return status.Error(codes.Unavailable, "gave up")
		}
		return invoker(ctx, method, req, &testv1.Response{}, cc, opts...)
	}
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait))
	require.NoError(t, err)
	client := testv1.NewTestServiceClient(server.Dial(append(retrier.DialOptions(), grpc.WithChainUnaryInterceptor(early))...))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 100 {
				var trailer metadata.MD
				_, err := client.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
				assert.NoError(t, err)
				assert.Equal(t, metadata.MD{"t": {"late"}, "jina-client-attempts": {"2"}}, trailer)
			}
		})
	}
	callers.Wait()
	background.Wait()
}
