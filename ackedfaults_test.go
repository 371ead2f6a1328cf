// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// The tests of this file hold faults that Acked streams once had.

// TestAckedAttemptTimeoutWhileIdle: an attempt that owed nothing ran into AttemptTimeout.
// It has all of that for the first request that comes.
func TestAckedAttemptTimeoutWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) { p.AttemptTimeout = time.Second })
		r.server.Script(exchange, busy.Sent(1), testserver.Hang(), testserver.OK())
		stream := acked(t, r)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		_, err := stream.Recv()
		require.NoError(t, err)
		time.AfterFunc(time.Hour, func() {
			assert.NoError(t, stream.Send(&testv1.Request{Key: "b"}))
			assert.NoError(t, stream.CloseSend())
		})
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, keys)
		assert.Equal(t, []time.Duration{0, 100 * ms, time.Hour + 1200*ms}, r.starts())
		r.assertOneLedger(t, trailer, err)
	})
}

// TestRecoveryManySenders: senders that the callers serialise lose nothing.
func TestRecoveryManySenders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) { p.ResetAfter.Responses = 1 })
		r.server.Script(exchange, busy.Received(3).Sent(2).Times(5), testserver.OK())
		stream := acked(t, r)
		var sending sync.WaitGroup
		turn := make(chan struct{}, 1) // a Mutex would hold up the bubble's time
		var left atomic.Int32
		left.Store(10)
		for sender := range 10 {
			sending.Go(func() {
				for i := range 20 {
					turn <- struct{}{}
					assert.NoError(t, stream.Send(&testv1.Request{Key: strconv.Itoa(sender*20 + i)}))
					<-turn
				}
				if left.Add(-1) == 0 {
					assert.NoError(t, stream.CloseSend())
				}
			})
		}
		keys, _, err := receiveAll(stream)
		sending.Wait()
		require.NoError(t, err)
		assert.Len(t, keys, 200)
	})
}

// TestAckedHeaderIsNoCleanEnd: the header of a stream that had ended well, and owed
// answers, committed it, so that nobody knew any more that it did.
func TestAckedHeaderIsNoCleanEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), below2(newReadAhead))...))
		r.server.Handle(exchange, func(grpc.ServerStream) error { return nil })
		stream, err := client.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		synctest.Wait()
		_, err = stream.Header()
		require.NoError(t, err)
		_, err = stream.Recv()
		assert.Equal(t, codes.DataLoss, status.Code(err))
	})
}

// TestAckedEndIsOwed: a half-closed stream waited for its end without any timeout.
func TestAckedEndIsOwed(t *testing.T) {
	for name, script := range map[string][]testserver.Step{
		"IdleTimeout":    {testserver.Hang().Sent(1), testserver.OK()},
		"AttemptTimeout": {busy.Sent(1), testserver.Hang(), testserver.OK()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) {
					p.AttemptTimeout, p.IdleTimeout = time.Second, time.Second
				})
				r.server.Script(exchange, script...)
				stream := acked(t, r)
				require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
				time.AfterFunc(10*time.Second, func() { assert.NoError(t, stream.CloseSend()) })
				_, _, err := receiveAll(stream)
				require.NoError(t, err)
				assert.Less(t, time.Since(r.server.Attempts()[0].Start), 12*time.Second)
			})
		})
	}
}

// TestAckedNoAnswerIsNotAwaited: each request without an answer gave the attempt all of
// AttemptTimeout again.
func TestAckedNoAnswerIsNotAwaited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(func(m any) string {
			if keyOf(m) == "note" {
				return grpcretry.NoAnswer
			}
			return keyOf(m)
		}), func(p *grpcretry.Policy) { p.AttemptTimeout = time.Second })
		r.server.Script(exchange, busy.Received(2).Sent(1), testserver.Hang(), testserver.OK())
		stream := acked(t, r)
		for _, key := range []string{"a", "b"} {
			require.NoError(t, stream.Send(&testv1.Request{Key: key}))
		}
		_, err := stream.Recv()
		require.NoError(t, err)
		for i := range 10 {
			time.AfterFunc(time.Duration(i*900)*ms, func() { _ = stream.Send(&testv1.Request{Key: "note"}) })
		}
		start := time.Now()
		_, err = stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, 1300*ms, time.Since(start))
	})
}

// TestAckedCommitIsTimed: a stream that was committed while it owed nothing was never
// timed again.
func TestAckedCommitIsTimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) { p.AttemptTimeout = time.Second })
		r.server.Script(exchange, busy.Sent(1), testserver.Hang())
		stream := acked(t, r)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		_, err := stream.Recv()
		require.NoError(t, err)
		time.AfterFunc(time.Hour, func() { stream.Context() })
		start := time.Now()
		_, err = stream.Recv()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.Equal(t, time.Hour+time.Second, time.Since(start))
	})
}

// TestKeyPanicsBetweenAttempts: what panicked was heard of only after the wait.
func TestKeyPanicsBetweenAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(func(m any) string {
			if keyOf(m) == "b" {
				fault()
			}
			return keyOf(m)
		}), func(p *grpcretry.Policy) { p.Backoff = grpcretry.Backoff{Initial: time.Hour, Max: time.Hour} })
		r.server.Script(exchange, busy.Sent(1))
		stream := acked(t, r)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		_, err := stream.Recv()
		require.NoError(t, err)
		start := time.Now()
		time.AfterFunc(time.Second, func() { assert.Panics(t, func() { _ = stream.Send(&testv1.Request{Key: "b"}) }) })
		_, err = stream.Recv()
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// TestAckedNoProgress: a response that answers no request counted as progress, so that a
// server which sent nothing else was asked forever.
func TestAckedNoProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) { p.ResetAfter.Responses = 1 })
		r.server.Script(exchange, testserver.Do(func(stream grpc.ServerStream) error {
			if err := stream.SendMsg(&testv1.Response{Key: "nothing"}); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "busy")
		}).Forever())
		stream := acked(t, r)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		require.NoError(t, stream.CloseSend())
		keys, trailer, err := receiveAll(stream)
		require.ErrorIs(t, err, grpcretry.ErrExhausted)
		assert.Equal(t, []string{"nothing", "nothing", "nothing"}, keys, "they are the caller's all the same")
		assert.Len(t, r.server.Attempts(), 3)
		r.assertOneLedger(t, trailer, err)
	})
}
