// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"strconv"
	"testing"
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

// TestRecoveryIdle: a stream that says nothing any more is recovered from.
func TestRecoveryIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Resume(behind), func(p *grpcretry.Policy) {
			p.IdleTimeout, p.MaxAttempts = time.Second, 4
		})
		r.server.Script(download,
			testserver.Hang().Sent(1),
			testserver.Hang(),
			testserver.Do(numbers(3)))
		stream, err := r.Download(t.Context(), &testv1.Request{Key: "a"})
		require.NoError(t, err)
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "1", "2"}, keys)
		assert.Equal(t, []time.Duration{0, 1100 * ms, 2300 * ms}, r.starts(), "the second never answered")
		r.assertOneLedger(t, trailer, err)
	})
}

// TestAckedIdleTimeout: a stream may be quiet as long as no request waits for its answer;
// one that does is given all the time that there is.
func TestAckedIdleTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) { p.IdleTimeout = time.Second })
		answered := 0
		r.server.Handle(exchange, func(ss grpc.ServerStream) error {
			for {
				request := &testv1.Request{}
				if err := ss.RecvMsg(request); err != nil {
					return err
				}
				if answered++; answered == 3 {
					<-ss.Context().Done() // it has died without a word
					return ss.Context().Err()
				}
				time.Sleep(900 * ms)
				if err := ss.SendMsg(&testv1.Response{Key: request.GetKey()}); err != nil {
					return err
				}
			}
		})
		stream := acked(t, r)
		for _, at := range []time.Duration{0, 10500 * ms, 15 * time.Second} {
			time.AfterFunc(at, func() { assert.NoError(t, stream.Send(&testv1.Request{Key: at.String()})) })
		}
		start := time.Now()
		for _, want := range []time.Duration{900 * ms, 11400 * ms, 17 * time.Second} {
			_, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, want, time.Since(start))
		}
		assert.Equal(t, []time.Duration{0, 16100 * ms}, r.starts())
	})
}

// TestAckedIdleTimeoutCommitted: once it is not known any more what waits, the timeout
// always runs.
func TestAckedIdleTimeoutCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, received := range []int{1, 2} { // Context is called in the Recv that follows the first, or before
			r := recovering(t, grpcretry.Acked(keyOf), func(p *grpcretry.Policy) { p.IdleTimeout = time.Second })
			r.server.Script(exchange, testserver.Hang().Sent(received))
			stream := acked(t, r)
			for i := range received {
				require.NoError(t, stream.Send(&testv1.Request{Key: strconv.Itoa(i)}))
				_, err := stream.Recv()
				require.NoError(t, err)
				if received == 2 && i == 0 {
					stream.Context()
				}
			}
			if received == 1 {
				time.AfterFunc(1500*ms, func() { stream.Context() })
			}
			start := time.Now()
			_, err := stream.Recv()
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			assert.ErrorIs(t, err, grpcretry.ErrCommitted)
			assert.Equal(t, map[int]time.Duration{1: 2500 * ms, 2: time.Second}[received], time.Since(start))
		}
	})
}

// TestRecoveryTimesEachAttempt: AttemptTimeout is for each attempt, until it answers.
func TestRecoveryTimesEachAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil), func(p *grpcretry.Policy) { p.AttemptTimeout = time.Second })
		r.server.Script(download, busy.Sent(1).Delay(900*ms), testserver.Hang(), testserver.Do(func(ss grpc.ServerStream) error {
			_ = ss.SendMsg(&testv1.Response{Key: "a"})
			time.Sleep(time.Hour)
			return ss.SendMsg(&testv1.Response{Key: "b"})
		}))
		keys, trailer, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, keys)
		assert.Equal(t, []time.Duration{0, time.Second, 2200 * ms}, r.starts())
		r.assertOneLedger(t, trailer, err)
	})
}

// TestResetAfter: the allowance is that of the stream's life, or of the time since it
// was well; what is told counts on.
func TestResetAfter(t *testing.T) {
	for _, row := range []struct {
		name     string
		reset    grpcretry.ResetAfter
		change   func(*grpcretry.Policy)
		script   []testserver.Step
		starts   []time.Duration
		reason   error
		attempts int
	}{
		{
			name: "never", script: []testserver.Step{busy.Sent(1).Forever()},
			starts: []time.Duration{0, 100 * ms, 300 * ms}, reason: grpcretry.ErrExhausted,
		},
		{
			name: "each response", reset: grpcretry.ResetAfter{Responses: 1},
			script: []testserver.Step{busy.Sent(1).Times(5), testserver.OK()},
			starts: []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 400 * ms, 500 * ms},
		},
		{
			name: "the attempt under way is the first", reset: grpcretry.ResetAfter{Responses: 1},
			script: []testserver.Step{busy.Times(2), busy.Sent(1), busy.Forever()},
			starts: []time.Duration{0, 100 * ms, 300 * ms, 400 * ms, 600 * ms}, reason: grpcretry.ErrExhausted,
		},
		{
			name: "every two responses", reset: grpcretry.ResetAfter{Responses: 2},
			script: []testserver.Step{busy.Sent(1).Times(4), busy, busy, busy},
			starts: []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 500 * ms, 700 * ms}, reason: grpcretry.ErrExhausted,
		},
		{
			name: "quiet", reset: grpcretry.ResetAfter{Quiet: time.Second},
			script: []testserver.Step{busy.Delay(time.Second).Times(4), busy.Delay(999 * ms), busy},
			starts: []time.Duration{0, 1100 * ms, 2200 * ms, 3300 * ms, 4400 * ms, 5599 * ms}, reason: grpcretry.ErrExhausted,
		},
		{
			name: "a timeout is not quiet", reset: grpcretry.ResetAfter{Quiet: time.Second},
			change: func(p *grpcretry.Policy) { p.AttemptTimeout = 2 * time.Second },
			script: []testserver.Step{testserver.Hang().Forever()},
			starts: []time.Duration{0, 2100 * ms, 4300 * ms}, reason: grpcretry.ErrExhausted,
		},
		{
			name: "kinds", reset: grpcretry.ResetAfter{Responses: 1},
			change: func(p *grpcretry.Policy) { p.MaxLost, p.MaxAttempts = 2, 10 },
			script: []testserver.Step{busy.Sent(1).Times(4), busy.SendHeader("h", "1")},
			starts: []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 400 * ms}, reason: grpcretry.ErrExhausted,
		},
		{
			name: "one attempt is one", reset: grpcretry.ResetAfter{Responses: 1},
			change: func(p *grpcretry.Policy) { p.MaxAttempts = 1 },
			script: []testserver.Step{busy.Sent(1).Forever()},
			starts: []time.Duration{0},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, grpcretry.Resume(func(any) ([]any, error) { return []any{&testv1.Request{Key: "a"}}, nil }), func(p *grpcretry.Policy) {
					p.ResetAfter = row.reset
					if row.change != nil {
						row.change(p)
					}
				})
				r.server.Script(download, row.script...)
				_, trailer, err := callDownload(t.Context(), r)
				if row.reason != nil {
					assert.ErrorIs(t, err, row.reason)
				} else if len(row.starts) > 1 {
					assert.NoError(t, err)
				}
				assert.Equal(t, row.starts, r.starts())
				n, _ := grpcretry.AttemptsFromMD(trailer)
				assert.Equal(t, len(row.starts), n, "the total")
				r.assertOneLedger(t, trailer, err)
			})
		})
	}
}
