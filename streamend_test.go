// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// The tests of this file hold how streams end where several parties have a hand in
// it: gRPC's own goroutine, the other operations, hooks, interceptors below.

// tampered is a stream as an interceptor below may have changed it. Functions that
// are nil leave the operation as it is.
type tampered struct {
	grpc.ClientStream

	recv    func(m any) error
	context func() context.Context
}

func (s *tampered) RecvMsg(m any) error {
	if s.recv != nil {
		return s.recv(m)
	}
	return s.ClientStream.RecvMsg(m)
}

func (s *tampered) Context() context.Context {
	if s.context != nil {
		return s.context()
	}
	return s.ClientStream.Context()
}

// tamper is a stream interceptor below that changes the attempts' streams.
func tamper(change func(s *tampered, attempt int), options ...grpc.CallOption) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, append(options, opts...)...)
		if err != nil {
			return nil, err
		}
		attempt, later := grpcretry.AttemptFromContext(ctx)
		if !later {
			attempt = 1
		}
		s := &tampered{ClientStream: stream}
		change(s, attempt)
		return s, nil
	})
}

// untouched changes nothing.
func untouched(*tampered, int) {}

// TestStreamEndsWellAsItsContextEnds: what RecvMsg returns then must not be success.
func TestStreamEndsWellAsItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		ctx, cancel := context.WithCancel(t.Context())
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(),
			tamper(untouched, grpc.OnFinish(func(error) { cancel() })))...))
		r.server.Script(exchange, testserver.Do(func(grpc.ServerStream) error { return nil }))
		stream, err := client.Exchange(ctx)
		require.NoError(t, err)
		for range 3 {
			_, err = stream.Recv()
			assert.Equal(t, io.EOF, err)
		}
	})
}

// TestStreamServersOwnDeadline: a server's DEADLINE_EXCEEDED or CANCELLED is no
// timeout of the attempt's, whatever ends the attempt afterwards.
func TestStreamServersOwnDeadline(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(code.String()+timeout.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, AttemptTimeout: timeout})
					r.server.Script(exchange, busy, testserver.Fail(code, "mine"))
					_, _, err := callExchange(t.Context(), r)
					assert.Equal(t, code, status.Code(err))
					assert.ErrorIs(t, err, grpcretry.ErrNotRetryable)
					assert.Len(t, r.server.Attempts(), 2)
				})
			})
		}
	}
}

// TestStreamContextHidden: gRPC's own replay stays off even if an interceptor below
// has a context of its own.
func TestStreamContextHidden(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	hide := tamper(func(s *tampered, _ int) { s.context = t.Context })
	client := clientOf(t, server, noWait, hide)
	for range 50 {
		server.Script(upload, busy.Received(20), testserver.Fail(codes.NotFound, "none"))
		assert.Equal(t, codes.NotFound, status.Code(send20(t.Context(), client, false)))
	}
}

func fault() {
	panic("hook") //nolint:forbidigo // a hook's own fault
}

// TestStreamHookPanics: a hook that panics ends the call, and nothing hangs.
func TestStreamHookPanics(t *testing.T) {
	t.Run("between attempts", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall, grpcretry.WithObserver(grpcretry.Observer{
				Attempt: func(context.Context, string, grpcretry.Attempt) { fault() },
			}))
			r.server.Script(exchange, busy.Forever())
			for _, operation := range []func(testv1.TestService_ExchangeClient){
				func(s testv1.TestService_ExchangeClient) { _, _ = s.Recv() },
				func(s testv1.TestService_ExchangeClient) { _, _ = s.Header() },
			} {
				stream, err := r.Exchange(t.Context())
				require.NoError(t, err)
				assert.PanicsWithValue(t, "hook", func() { operation(stream) })
				assert.Equal(t, io.EOF, stream.Send(&testv1.Request{}))
				_, err = stream.Recv()
				assert.ErrorContains(t, err, "a hook or a function of the policy panicked")
			}
		})
	})
	t.Run("as a committed stream fails", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p := anyCall
			p.Retryable = func(grpcretry.Failure) bool {
				fault()
				return true
			}
			p.Timeout = time.Hour
			r := newRig(t, p)
			r.server.Script(exchange, busy.Sent(1))
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&testv1.Request{}))
			_, err = stream.Recv()
			require.NoError(t, err)
			assert.PanicsWithValue(t, "hook", func() { _, _ = stream.Recv() })
			_, err = stream.Recv()
			assert.ErrorContains(t, err, "a hook or a function of the policy panicked")
		})
	})
	t.Run("at the end", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			stream, err := r.Exchange(t.Context(), grpc.OnFinish(func(error) { fault() }))
			require.NoError(t, err)
			require.NoError(t, stream.CloseSend())
			assert.PanicsWithValue(t, "hook", func() { _, _ = stream.Recv() })
			_, err = stream.Recv()
			assert.Equal(t, io.EOF, err)
		})
	})
}

// TestStreamHooksUseTheStream: a hook at the end may look at the stream.
func TestStreamHooksUseTheStream(t *testing.T) {
	for name, steps := range map[string][]testserver.Step{
		"exhausted": {busy.Forever()}, "committed": {busy.Sent(1)}, "success": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, anyCall)
				r.server.Script(exchange, steps...)
				var stream testv1.TestService_ExchangeClient
				var err error
				stream, err = r.Exchange(t.Context(), grpc.OnFinish(func(error) {
					_ = stream.Context()
					_, _ = stream.Header()
					_ = stream.Trailer()
					_ = stream.Send(&testv1.Request{})
				}))
				require.NoError(t, err)
				_ = stream.Send(&testv1.Request{}) // which may meet the end of the last attempt
				_ = stream.CloseSend()
				for err == nil {
					_, err = stream.Recv()
				}
			})
		})
	}
}

// TestStreamDroppedAfterItsAttemptEnded: the attempt ends by itself, then the caller
// cancels and never calls again.
func TestStreamDroppedAfterItsAttemptEnded(t *testing.T) {
	for name, end := range map[string]func(*rig, *grpc.ClientConn){
		"AttemptTimeout": func(*rig, *grpc.ClientConn) { time.Sleep(2 * time.Second) },
		"Close":          func(_ *rig, conn *grpc.ClientConn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, AttemptTimeout: time.Second})
				r.server.Script(exchange, testserver.Hang().Forever())
				conn := r.server.Dial(r.retrier.DialOptions()...)
				ctx, cancel := context.WithCancel(t.Context())
				var finished atomic.Int32
				stream, err := testv1.NewTestServiceClient(conn).Exchange(ctx, grpc.OnFinish(func(error) { finished.Add(1) }))
				require.NoError(t, err)
				require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
				end(r, conn)
				synctest.Wait()
				cancel()
				synctest.Wait()
				assert.EqualValues(t, 1, finished.Load())
				assert.Zero(t, grpcretry.Buffered(r.retrier))
			})
		})
	}
}

// TestStreamEndMetByTwo: Header and Recv both meet the end of an attempt. Whichever
// is first, the server's word counts.
func TestStreamEndMetByTwo(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	client := clientOf(t, server, never)
	for range 300 {
		server.Script(exchange, busy.Pushback("0"))
		stream, err := client.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{}))
		var other sync.WaitGroup
		other.Go(func() {
			md, err := stream.Header()
			assert.NoError(t, err)
			assert.NotNil(t, md)
		})
		_, err = stream.Recv()
		other.Wait()
		require.NoError(t, err)
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		require.Equal(t, io.EOF, err)
	}
}

// TestStreamTimeoutsAndCommits: AttemptTimeout runs until the first response even if
// the stream is committed before, and IdleTimeout not before that.
func TestStreamTimeoutsAndCommits(t *testing.T) {
	t.Run("AttemptTimeout", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, AttemptTimeout: time.Second})
			r.server.Script(upload, testserver.Hang().Forever())
			stream, err := r.Upload(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&testv1.Request{Payload: make([]byte, 300<<10)}))
			start := time.Now()
			_, err = stream.CloseAndRecv()
			assert.Equal(t, time.Second, time.Since(start))
			assert.ErrorContains(t, err, "AttemptTimeout of 1s exceeded")
			assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		})
	})
	t.Run("IdleTimeout", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, IdleTimeout: time.Second})
			r.server.Script(exchange, testserver.OK().Delay(5*time.Second))
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			_ = stream.Context()
			require.NoError(t, stream.Send(&testv1.Request{}))
			_, err = stream.Recv()
			assert.NoError(t, err)
		})
	})
}

// TestStreamLastAttemptWithoutStream: nothing of an earlier attempt shows then.
func TestStreamLastAttemptWithoutStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, MaxAttempts: 2})
		refuse := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if _, later := grpcretry.AttemptFromContext(ctx); later {
				return nil, status.Error(codes.Unavailable, "no way")
			}
			return streamer(ctx, desc, cc, method, opts...)
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), refuse)...))
		r.server.Script(exchange, busy.SendHeader("h", "1").Trailer("t", "1"))
		var header, trailer metadata.MD
		stream, err := client.Exchange(t.Context(), grpc.Header(&header), grpc.Trailer(&trailer))
		require.NoError(t, err)
		_, err = stream.Recv()
		assert.ErrorContains(t, err, "no way")
		assert.Equal(t, metadata.MD{"jina-client-attempts": {"2"}}, trailer)
		assert.Equal(t, trailer, stream.Trailer())
		md, _ := stream.Header()
		assert.Nil(t, md)
	})
}

// TestStreamOptionsDropped: an interceptor below that drops the options hides how
// attempts end; the caller's options are served all the same.
func TestStreamOptionsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Timeout: time.Hour})
		drop := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(ctx, desc, cc, method)
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), drop)...))
		for i, shape := range shapes() {
			r.server.Script(shape.method, busy)
			finished := 0
			var trailer metadata.MD
			keys, _, err := shape.call(t.Context(), client, grpc.OnFinish(func(error) { finished++ }), grpc.Trailer(&trailer))
			require.NoError(t, err)
			assert.Equal(t, answers[shape.method], keys)
			assert.Equal(t, 1, finished)
			assert.Equal(t, []string{"2"}, trailer["jina-client-attempts"])
			assert.Len(t, r.journal.done, i+1)
		}
	})
}

// TestStreamFailureFromBelow: an attempt that only an interceptor below declared
// failed is cancelled at once.
func TestStreamFailureFromBelow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		inject := tamper(func(s *tampered, attempt int) {
			if attempt == 1 {
				s.recv = func(any) error { return status.Error(codes.Unavailable, "injected") }
			}
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), inject)...))
		r.server.Script(exchange, testserver.Hang())
		stream, err := client.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		_, err = stream.Recv()
		require.NoError(t, err)
		synctest.Wait()
		assert.True(t, r.server.Attempts()[0].Cancelled)
	})
}

// TestStreamResponseAfterOptions: a response that ends the call is returned after
// the caller's options are served, even if another operation found the end.
func TestStreamResponseAfterOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		slowly := tamper(func(s *tampered, _ int) {
			s.recv = func(m any) error {
				err := s.ClientStream.RecvMsg(m)
				time.Sleep(10 * time.Millisecond)
				return err
			}
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), slowly)...))
		finished := false
		stream, err := client.Upload(t.Context(), grpc.OnFinish(func(error) {
			time.Sleep(20 * time.Millisecond)
			finished = true
		}))
		require.NoError(t, err)
		var other sync.WaitGroup
		other.Go(func() {
			time.Sleep(5 * time.Millisecond)
			_, _ = stream.Header()
		})
		_, err = stream.CloseAndRecv()
		require.NoError(t, err)
		assert.True(t, finished)
		other.Wait()
	})
}
