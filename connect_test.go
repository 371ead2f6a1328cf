// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// steady makes gRPC dial every second.
var steady = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
})

// TestConnectWait holds, in virtual time, what a server costs that is away.
func TestConnectWait(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	never := time.Duration(-1)
	for _, row := range []struct {
		name     string
		policy   grpcretry.Policy
		back     time.Duration // when the server comes back
		timeout  time.Duration
		attempts int
		elapsed  time.Duration
		code     codes.Code
		reason   error
	}{
		{
			name: "a server that comes back is reached with no attempt burnt",
			back: 500 * ms, attempts: 2, elapsed: time.Second,
		},
		{
			name: "even if it takes several dials",
			back: 7500 * ms, attempts: 2, elapsed: 8 * time.Second,
		},
		{
			name: "the backoff comes first", policy: grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: 3 * time.Second}},
			back: 500 * ms, attempts: 2, elapsed: 3 * time.Second,
		},
		{
			name: "a server that never comes back costs two waits",
			back: never, attempts: 3, elapsed: 20*time.Second + 20*time.Second + 300*ms,
			code: codes.Unavailable, reason: grpcretry.ErrExhausted,
		},
		{
			name: "or what the policy says", policy: grpcretry.Policy{ConnectWait: 700 * ms},
			back: never, attempts: 3, elapsed: 1700 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrExhausted,
		},
		{
			name: "an attempt timeout shortens it", policy: grpcretry.Policy{AttemptTimeout: 200 * ms},
			back: never, attempts: 3, elapsed: 700 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrExhausted,
		},
		{
			name: "no wait: attempts are burnt", policy: grpcretry.Policy{ConnectWait: -1},
			back: 500 * ms, attempts: 3, elapsed: 300 * ms,
			code: codes.Unavailable, reason: grpcretry.ErrExhausted,
		},
		{
			name: "the deadline ends it", timeout: 5 * time.Second,
			back: never, attempts: 1, elapsed: 5 * time.Second,
			code: codes.DeadlineExceeded, reason: context.DeadlineExceeded,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, row.policy)
				client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), steady)...))
				r.server.Stop()
				if row.back != never {
					time.AfterFunc(row.back, func() { _ = r.server.Start() })
				}
				ctx := t.Context()
				if row.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
					defer cancel()
				}
				start := time.Now()
				_, err := client.Write(ctx, &testv1.Request{})
				assert.Equal(t, row.elapsed, time.Since(start))
				assert.Equal(t, row.code, status.Code(err), "%v", err)
				require.Len(t, r.journal.done, 1)
				assert.Len(t, r.journal.done[0].attempts, row.attempts)
				assert.Equal(t, grpcretry.Connect, r.journal.attempts[0].Failure.Kind)
				if row.reason != nil {
					assert.ErrorIs(t, err, row.reason)
				}
				for _, a := range r.server.Attempts() {
					assert.True(t, a.Deadline.IsZero() || row.timeout+row.policy.AttemptTimeout > 0, "no artificial deadline on the wire")
				}
			})
		})
	}
}

// TestConnectWaitUntilTheDeadline: no attempt is begun at the very deadline, whichever
// timer goes off first.
func TestConnectWaitUntilTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 10 {
			r := newRig(t, grpcretry.Policy{ConnectWait: 900 * time.Millisecond})
			client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), steady)...))
			r.server.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := client.Write(ctx, &testv1.Request{})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Len(t, r.journal.attempts, 1)
		}
	})
}

// TestConnectWaitOnAnIdleConnection: an idle timeout shorter than a dial ends every
// dial that no call waits for, so that waiting without a call would never end.
func TestConnectWaitOnAnIdleConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		listener, dial := memoryListener()
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			return stream.SendMsg(&testv1.Response{})
		}))
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{
			Backoff: grpcretry.Backoff{Initial: 1500 * time.Millisecond, Jitter: -1},
		}))
		require.NoError(t, err)
		dials := 0
		conn, err := grpc.NewClient("passthrough:///slow", append(retrier.DialOptions(),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(time.Second),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				if dials++; dials == 1 {
					return nil, errors.New("the first one fails")
				}
				select {
				case <-time.After(2 * time.Second):
					return dial(ctx)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}))...)
		require.NoError(t, err)
		defer conn.Close()
		start := time.Now()
		require.NoError(t, invoke(t.Context(), conn, write))
		assert.Less(t, time.Since(start), 6*time.Second)
	})
}

// TestConnectWaitLeavesWaitForReady holds that a caller who waits for the
// connection anyway goes on doing so.
func TestConnectWaitLeavesWaitForReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), steady)...))
		r.server.Stop()
		time.AfterFunc(time.Minute, func() { _ = r.server.Start() })
		start := time.Now()
		_, err := client.Write(t.Context(), &testv1.Request{}, grpc.WaitForReady(true))
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 62*time.Second)
		assert.Empty(t, r.journal.done, "one attempt was enough")
	})
}

func TestConnectWaitOnAClosedConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		conn := r.server.Dial(append(r.retrier.DialOptions(), steady)...)
		r.server.Stop()
		time.AfterFunc(3*time.Second, func() { _ = conn.Close() })
		start := time.Now()
		_, err := testv1.NewTestServiceClient(conn).Write(t.Context(), &testv1.Request{})
		assert.Equal(t, codes.Canceled, status.Code(err))
		assert.ErrorIs(t, err, grpcretry.ErrLocal)
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}
