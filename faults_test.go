// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"runtime"
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

// The tests of this file each hold a fault that another library has, or that was
// reported of one in public. Peer faults have the library's name and the number
// of the fault in this project's list of them; public ones the issue.

// TestPeerMiddleware5: after a status came failures to connect, and the caller got
// the old status.
func TestPeerMiddleware5StaleError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var server *testserver.Server
		r := newRig(t, grpcretry.Policy{Codes: []codes.Code{codes.ResourceExhausted}, ConnectWait: -1},
			grpcretry.WithObserver(grpcretry.Observer{Attempt: func(context.Context, string, grpcretry.Attempt) { server.Stop() }}))
		server = r.server
		server.Script(read, testserver.Fail(codes.ResourceExhausted, "quota"))
		_, err := r.call(t.Context(), read)
		assert.Equal(t, codes.Unavailable, status.Code(err))
	})
}

// TestPeerMiddleware6: setting an attempt timeout made DEADLINE_EXCEEDED and
// CANCELED that the server sent retryable.
func TestPeerMiddleware6ServersOwnDeadlineExceeded(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, grpcretry.Policy{AttemptTimeout: time.Minute})
				r.server.Script(read, testserver.Fail(code, "mine").Delay(time.Second).Forever())
				_, err := r.call(t.Context(), read)
				assert.Equal(t, code, status.Code(err))
				assert.Len(t, r.server.Attempts(), 1)
			})
		})
	}
}

// TestPeerMiddleware11: zero and nil settings panicked at the first retry.
func TestPeerMiddleware11ZeroValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithObserver(grpcretry.Observer{}))
		r.server.Script(read, busy.Times(2))
		_, err := r.call(t.Context(), read)
		require.NoError(t, err)
	})
}

// TestPeerMiddleware17: the server's DEADLINE_EXCEEDED came before the caller's own
// context had noticed its deadline, and cost another attempt.
func TestPeerMiddleware17ServerNoticesTheDeadlineFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{AttemptTimeout: time.Minute, Codes: []codes.Code{codes.DeadlineExceeded}})
		r.server.Script(read, testserver.Fail(codes.DeadlineExceeded, "too late").Delay(time.Second).Forever())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.call(ctx, read)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.Len(t, r.server.Attempts(), 1)
	})
}

// TestPeerFailsafe3: the end of the caller's context came back as a bare error,
// whose status code is UNKNOWN.
func TestPeerFailsafe3EveryErrorHasItsCode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Forever())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := r.call(ctx, read)
		assert.Equal(t, codes.Canceled, status.Code(err))
		_, isStatus := status.FromError(err)
		assert.True(t, isStatus)
	})
}

// TestPeerFailsafe4: a success was thrown away because the context had ended by the
// time it was looked at.
func TestPeerFailsafe4SuccessInHand(t *testing.T) {
	t.Parallel()
	for _, policy := range []grpcretry.Policy{{}, {Timeout: time.Hour}, {AttemptTimeout: time.Hour}} {
		retrier, err := grpcretry.New(grpcretry.WithPolicy(policy))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		err = retrier.UnaryClientInterceptor()(ctx, read, nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				cancel()
				return nil
			})
		assert.NoError(t, err)
	}
}

// TestPeerFailsafe6: the attempt timeout was not on the wire, and what it ended was
// not retried.
func TestPeerFailsafe6AttemptTimeoutOnTheWire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, slow)
		r.server.Script(read, testserver.Hang())
		_, err := r.call(t.Context(), read)
		require.NoError(t, err)
		for _, a := range r.server.Attempts() {
			assert.Equal(t, time.Second, a.Deadline.Sub(a.Start))
		}
	})
}

// TestPeerFailsafe7: each call left a goroutine behind until its context ended.
func TestPeerFailsafe7Goroutines(t *testing.T) { //nolint:paralleltest // counts the goroutines of the process
	server := testserver.New(t)
	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{
		Timeout: time.Hour, AttemptTimeout: time.Minute, Backoff: grpcretry.Backoff{Initial: -1},
	}))
	require.NoError(t, err)
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = client.Read(ctx, &testv1.Request{}) // what the connection needs is there from now on
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	for range 200 {
		server.Script(read, busy)
		_, err = client.Read(ctx, &testv1.Request{})
		require.NoError(t, err)
	}
	assert.Less(t, runtime.NumGoroutine(), before+20)
}

// TestIssueMiddleware110: interceptors below the retry ran once for all attempts.
func TestIssueMiddleware110InnerInterceptors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Times(2))
		var outer, inner int
		count := func(n *int) grpc.DialOption {
			return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				*n++
				return invoker(ctx, method, req, reply, cc, opts...)
			})
		}
		options := append(append([]grpc.DialOption{count(&outer)}, r.retrier.DialOptions()...), count(&inner))
		_, err := testv1.NewTestServiceClient(r.server.Dial(options...)).Read(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		assert.Equal(t, []int{1, 3}, []int{outer, inner})
	})
}

// TestIssueMiddleware216: "at most 2" meant two attempts where two retries were
// expected, and the attempt timeout exceeded the caller's.
func TestIssueMiddleware216Attempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 2, AttemptTimeout: time.Minute})
		r.server.Script(read, busy.Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := r.call(ctx, read)
		assert.ErrorContains(t, err, "2 attempts")
		require.Len(t, r.server.Attempts(), 2)
		deadline, _ := ctx.Deadline()
		for _, a := range r.server.Attempts() {
			assert.True(t, a.Deadline.Equal(deadline), "the sooner of the two applies")
		}
	})
}

// TestIssueMiddleware699: the hook for retries fired for failures that were not
// retried. Here each attempt is told with the wait before the next, and the end
// of the call apart from it.
func TestIssueMiddleware699Hooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy, testserver.Fail(codes.NotFound, "none"))
		_, err := r.call(t.Context(), read)
		assert.ErrorIs(t, err, grpcretry.ErrNotRetryable)
		require.Len(t, r.journal.attempts, 2)
		assert.Equal(t, 100*time.Millisecond, r.journal.attempts[0].Wait)
		assert.Zero(t, r.journal.attempts[1].Wait)
		assert.Len(t, r.journal.done, 1)
	})
}

// TestIssueOpentelemetry789: the backoff could not see the error.
func TestIssueOpentelemetry789DelaySeesTheFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Backoff: grpcretry.Backoff{
			Delay: func(_ int, last grpcretry.Failure, _ float64) time.Duration {
				d, err := time.ParseDuration(last.Trailer.Get("come-back")[0] + last.Status.Message())
				assert.NoError(t, err)
				return d
			},
		}})
		r.server.Script(read, testserver.Fail(codes.Unavailable, "s").Trailer("come-back", "7"))
		_, err := r.call(t.Context(), read)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 7 * time.Second}, r.starts())
	})
}

// TestIssueGax420: DEADLINE_EXCEEDED was retried on a context that was over, and
// the server's own was taken for the caller's.
func TestIssueGax420BothDeadlines(t *testing.T) {
	listed := grpcretry.Policy{Codes: []codes.Code{codes.DeadlineExceeded, codes.Canceled}}
	t.Run("the server's", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, listed)
			r.server.Script(read, testserver.Fail(codes.DeadlineExceeded, "mine"))
			_, err := r.call(t.Context(), read)
			require.NoError(t, err)
			assert.Len(t, r.server.Attempts(), 2)
		})
	})
	t.Run("the caller's", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, listed)
			r.server.Script(read, testserver.Hang().Forever())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.call(ctx, read)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			assert.Len(t, r.server.Attempts(), 1)
		})
	})
	// The same for a caller who cancels: momentohq/client-sdk-go#561.
	t.Run("the caller cancels", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, listed)
			r.server.Script(read, testserver.Hang().Forever())
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := r.call(ctx, read)
			assert.Equal(t, codes.Canceled, status.Code(err))
			assert.Len(t, r.server.Attempts(), 1)
		})
	})
}

// TestIssueCollector1123: RESOURCE_EXHAUSTED was retried for ever. It is retried
// by choice alone, and within limits.
func TestIssueCollector1123ResourceExhausted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, testserver.Fail(codes.ResourceExhausted, "quota").Forever())
		_, err := r.call(t.Context(), read)
		assert.EqualError(t, err, "rpc error: code = ResourceExhausted desc = quota")
		assert.Len(t, r.server.Attempts(), 1)
		_, err = r.call(t.Context(), read, grpcretry.WithCallPolicy(grpcretry.Policy{Codes: []codes.Code{codes.ResourceExhausted}}))
		assert.ErrorIs(t, err, grpcretry.ErrExhausted)
		assert.Len(t, r.server.Attempts(), 4)
	})
}

// TestIssueTemporal995: a message that is too large was sent again and again, since
// gRPC's own error for it has the code RESOURCE_EXHAUSTED.
func TestIssueTemporal995TooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Codes: []codes.Code{codes.ResourceExhausted}})
		r.server.Script(read, testserver.Do(func(stream grpc.ServerStream) error {
			return errors.Join(stream.RecvMsg(&testv1.Request{}), stream.SendMsg(&testv1.Response{Payload: make([]byte, 5<<20)}))
		}).Forever())
		_, err := r.call(t.Context(), read)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Len(t, r.server.Attempts(), 1)
		_, err = r.call(t.Context(), put, grpc.MaxCallSendMsgSize(4))
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Empty(t, r.server.Attempts(put))
	})
}

// TestIssueGrpc32292: grpc-previous-rpc-attempts was missing, or there on the first
// attempt, and the caller never learnt the number.
func TestIssueGrpc32292PreviousAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 12})
		r.server.Script(read, busy.Times(11))
		var trailer metadata.MD
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer))
		require.NoError(t, err)
		r.assertOneLedger(t, trailer, nil)
		assert.Equal(t, []string{"12"}, trailer["jina-client-attempts"])
	})
}
