// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"io"
	"strconv"
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

// The tests of this file hold faults that recoveries once had.

// readAhead is a stream that reads ahead of its caller.
type readAhead struct {
	grpc.ClientStream

	got chan *testv1.Response
	err error
}

func newReadAhead(stream grpc.ClientStream) grpc.ClientStream {
	s := &readAhead{ClientStream: stream, got: make(chan *testv1.Response, 100)}
	go func() {
		defer close(s.got)
		for {
			response := &testv1.Response{}
			if s.err = s.ClientStream.RecvMsg(response); s.err != nil {
				return
			}
			s.got <- response
		}
	}()
	return s
}

func (s *readAhead) RecvMsg(m any) error {
	response, ok := <-s.got
	if !ok {
		return s.err
	}
	into, _ := m.(*testv1.Response)
	into.Key, into.Sequence = response.GetKey(), response.GetSequence()
	return nil
}

// TestRecoveryContextIsNoCleanEnd: the end of the context was a clean end where the
// attempt had ended well, though the caller had not got all of it.
func TestRecoveryContextIsNoCleanEnd(t *testing.T) {
	for _, recovery := range []grpcretry.Recovery{{}, grpcretry.Skip(nil), grpcretry.Resume(behind)} {
		for _, got := range []int{0, 2} {
			t.Run(recovery.String()+strconv.Itoa(got), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := recovering(t, recovery)
					client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), below2(newReadAhead))...))
					r.server.Handle(download, numbers(5))
					ctx, cancel := context.WithCancel(t.Context())
					stream, err := client.Download(ctx, &testv1.Request{})
					require.NoError(t, err)
					synctest.Wait()
					for range got {
						_, err = stream.Recv()
						require.NoError(t, err)
					}
					cancel()
					synctest.Wait()
					keys, _, err := receiveAll(stream)
					if err == nil {
						assert.Len(t, keys, 5-got)
					} else {
						assert.Equal(t, codes.Canceled, status.Code(err))
					}
					assert.Zero(t, grpcretry.Buffered(r.retrier))
				})
			})
		}
	}
}

// headerFirst asks for the header before each response, and takes its time then.
type headerFirst struct{ grpc.ClientStream }

func (s *headerFirst) RecvMsg(m any) error {
	_, _ = s.Header()
	time.Sleep(2 * time.Second)
	return s.ClientStream.RecvMsg(m)
}

// TestSkipContextIsNoCleanEnd: the same, of a replay that has fewer responses than the
// caller.
func TestSkipContextIsNoCleanEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil))
		attempts := 0
		below := below2(func(stream grpc.ClientStream) grpc.ClientStream {
			if attempts++; attempts == 2 {
				return &headerFirst{stream}
			}
			return stream
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), below)...))
		r.server.Script(download, busy.Sent(1), testserver.Do(func(grpc.ServerStream) error { return nil }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := callDownload(ctx, client)
		assert.NotErrorIs(t, err, io.EOF)
		assert.Contains(t, []codes.Code{codes.DataLoss, codes.DeadlineExceeded}, status.Code(err))
	})
}

// TestRecoveryHeaderIsNoResponse: AttemptTimeout ended with the header, so that there was
// none before the first response.
func TestRecoveryHeaderIsNoResponse(t *testing.T) {
	for name, recovery := range recoveries {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, recovery, func(p *grpcretry.Policy) { p.AttemptTimeout = time.Second })
				r.server.Script(exchange, testserver.Hang().SendHeader("h", "1"), testserver.OK())
				stream := acked(t, r)
				require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
				_, err := stream.Header()
				require.NoError(t, err)
				start := time.Now()
				_, err = stream.Recv()
				require.NoError(t, err)
				assert.Equal(t, 1100*ms, time.Since(start))
			})
		})
	}
}

// TestRecoveryPaysBack: a stream without an end never paid back to the retry budget.
func TestRecoveryPaysBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		again := grpcretry.Resume(func(any) ([]any, error) { return []any{&testv1.Request{Key: "a"}}, nil })
		r := newRig(t, grpcretry.Policy{Recovery: again, ResetAfter: grpcretry.ResetAfter{Responses: 1}},
			grpcretry.WithThrottle(grpcretry.Throttle{MaxTokens: 10, TokenRatio: 1}))
		r.server.Script(download, busy.Sent(1).Times(50), testserver.OK())
		keys, _, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Len(t, keys, 51)
	})
}

// TestRecoveryFreesAtOnce holds law 9: what was kept of responses was held until the next
// one after the commit.
func TestRecoveryFreesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, recovery := range recoveries {
			r := recovering(t, recovery)
			stream := acked(t, r)
			require.NoError(t, stream.Send(&testv1.Request{Key: "a", Payload: make([]byte, 1000)}))
			_, err := stream.Recv()
			require.NoError(t, err)
			stream.Context()
			assert.Zero(t, grpcretry.Buffered(r.retrier), name)
			require.NoError(t, stream.CloseSend())
			_, _, err = receiveAll(stream)
			require.NoError(t, err)
		}
	})
}

// TestResetAfterAndDelay: Backoff.Delay was given the number of the attempt in the life
// of the stream.
func TestResetAfterAndDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Resume(func(any) ([]any, error) { return []any{&testv1.Request{}}, nil }), func(p *grpcretry.Policy) {
			p.ResetAfter.Responses = 1
			p.Backoff.Delay = func(attempt int, _ grpcretry.Failure, _ float64) time.Duration { return 100 * ms << (attempt - 1) }
		})
		r.server.Script(download, busy.Sent(1).Times(3), busy, busy.Sent(1), testserver.OK())
		_, _, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 500 * ms, 600 * ms}, r.starts())
	})
}

// TestResetAfterQuietIsOfTheStream: the time before there was a stream counted too.
func TestResetAfterQuietIsOfTheStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil), func(p *grpcretry.Policy) { p.ResetAfter.Quiet = time.Second })
		slowly := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			time.Sleep(time.Minute)
			return streamer(ctx, desc, cc, method, opts...)
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), slowly)...))
		r.server.Script(download, busy.Forever())
		_, _, err := callDownload(t.Context(), client)
		assert.ErrorIs(t, err, grpcretry.ErrExhausted)
		assert.Len(t, r.server.Attempts(), 3)
	})
}

// TestRecoveryPushbackIsNoProof holds law 7: a server that asks for another attempt after
// it has answered has run the call.
func TestRecoveryPushbackIsNoProof(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Recovery: grpcretry.Skip(nil)})
		r.server.Script(exchange, busy.Sent(2).Pushback("50"), testserver.OK())
		_, _, err := callExchange(t.Context(), r)
		assert.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
		assert.Len(t, r.server.Attempts(), 1)
	})
}

// TestResumeSlow holds law 5: no attempt is made on a context that ended while next was
// at work.
func TestResumeSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Resume(func(any) ([]any, error) { time.Sleep(time.Hour); return []any{&testv1.Request{}}, nil }))
		r.server.Script(download, busy.Sent(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, trailer, err := callDownload(ctx, r)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.ErrorContains(t, err, "busy")
		assert.Equal(t, []string{"1"}, trailer["jina-client-attempts"])
	})
}

// TestResumeReuses: what next gave was read while next was at work again.
func TestResumeReuses(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	shared := make([]any, 40)
	for i := range shared {
		shared[i] = &testv1.Request{Key: strconv.Itoa(i), Payload: make([]byte, 16<<10)}
	}
	client := clientOf(t, server, grpcretry.Policy{
		Repeat: grpcretry.RepeatAlways, MaxAttempts: 30, Backoff: grpcretry.Backoff{Initial: time.Microsecond, Max: time.Microsecond},
		Recovery: grpcretry.Resume(func(any) ([]any, error) {
			for _, request := range shared {
				request.(*testv1.Request).Sequence++
			}
			return shared, nil
		}),
	})
	server.Script(exchange, busy.Sent(1).Forever())
	_, _, err := callExchange(t.Context(), client)
	assert.ErrorIs(t, err, grpcretry.ErrExhausted)
}

// TestRecoveryLeavesTheMessage: a RecvMsg that failed for good reset the caller's message.
func TestRecoveryLeavesTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Resume(behind))
		r.server.Script(download, busy.Sent(1), busy.Forever())
		stream, err := r.Download(t.Context(), &testv1.Request{Key: "a"})
		require.NoError(t, err)
		message := &testv1.Response{}
		for err == nil {
			err = stream.RecvMsg(message)
		}
		assert.Equal(t, "a", message.GetKey())
	})
}

// obedient is a stream whose SendMsg waits for the end of its context.
type obedient struct {
	grpc.ClientStream

	ctx context.Context
}

func (s *obedient) SendMsg(any) error {
	<-s.ctx.Done()
	return status.FromContextError(s.ctx.Err()).Err()
}

// TestPumpTimesOut: a replay that met the timeout of its attempt ended the call.
func TestPumpTimesOut(t *testing.T) {
	for name, recovery := range map[string]grpcretry.Recovery{"none": {}, "Acked": grpcretry.Acked(keyOf), "Skip": grpcretry.Skip(nil)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, recovery, func(p *grpcretry.Policy) { p.AttemptTimeout = time.Second })
				attempts := 0
				below := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					stream, err := streamer(ctx, desc, cc, method, opts...)
					if attempts++; attempts == 2 {
						return &obedient{stream, ctx}, err
					}
					return stream, err
				})
				client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), below)...))
				r.server.Script(exchange, busy)
				stream, err := client.Exchange(t.Context())
				require.NoError(t, err)
				require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
				time.Sleep(10 * ms) // the attempt has failed
				assert.NoError(t, stream.Send(&testv1.Request{Key: "b"}))
				assert.NoError(t, stream.CloseSend())
				keys, _, err := receiveAll(stream)
				require.NoError(t, err)
				assert.Equal(t, []string{"a", "b"}, keys)
			})
		})
	}
}

// TestSkipPaysBack: the responses that are dropped kept a stream from paying back.
func TestSkipPaysBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Recovery: grpcretry.Skip(nil), ResetAfter: grpcretry.ResetAfter{Responses: 1}},
			grpcretry.WithThrottle(grpcretry.Throttle{MaxTokens: 10, TokenRatio: 1}))
		r.server.Handle(download, func(ss grpc.ServerStream) error {
			for i, key := range upTo(30) {
				if i == grpcretry.PreviousAttempts(ss.Context())+1 {
					return status.Error(codes.Unavailable, "busy")
				}
				if err := ss.SendMsg(&testv1.Response{Key: key}); err != nil {
					return err
				}
			}
			return nil
		})
		keys, _, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Len(t, keys, 30)
	})
}

// TestSkipFreesAfterDropping holds law 9: what a committed stream had kept to drop was
// held until its next response.
func TestSkipFreesAfterDropping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil))
		r.server.Handle(download, func(ss grpc.ServerStream) error {
			for i, key := range upTo(4) {
				if i == 3 {
					if grpcretry.PreviousAttempts(ss.Context()) == 0 {
						return status.Error(codes.Unavailable, "busy")
					}
					time.Sleep(time.Hour)
				}
				time.Sleep(10 * ms)
				_ = ss.SendMsg(&testv1.Response{Key: key, Payload: make([]byte, 1000)})
			}
			return nil
		})
		stream, err := r.Download(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		time.AfterFunc(145*ms, func() { stream.Context() })
		time.AfterFunc(time.Minute, func() { assert.Zero(t, grpcretry.Buffered(r.retrier)) })
		keys, _, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, upTo(4), keys)
	})
}

// TestRecoveryPanicConcludes: a call in which a function panicked was never over for its
// options and its observer.
func TestRecoveryPanicConcludes(t *testing.T) {
	for name, recovery := range map[string]grpcretry.Recovery{
		"key":  grpcretry.Acked(func(m any) string { fault(); return keyOf(m) }),
		"next": grpcretry.Resume(func(any) ([]any, error) { fault(); return nil, nil }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, recovery)
				r.server.Script(exchange, busy.Sent(1), testserver.OK())
				var finished []error
				stream, err := r.Exchange(t.Context(), grpc.OnFinish(func(err error) { finished = append(finished, err) }))
				require.NoError(t, err)
				assert.Panics(t, func() {
					_ = stream.Send(&testv1.Request{Key: "a"})
					_, _, _ = receiveAll(stream)
				})
				synctest.Wait()
				require.Len(t, finished, 1)
				assert.Equal(t, codes.Internal, status.Code(finished[0]))
				assert.Len(t, r.journal.done, 1)
			})
		})
	}
}

// TestSkipLeavesTheMessage: what was dropped was decoded into the caller's message.
func TestSkipLeavesTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil))
		r.server.Handle(download, numbers(5, 2, 1, 0))
		stream, err := r.Download(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		message := &testv1.Response{}
		for err == nil {
			err = stream.RecvMsg(message)
		}
		assert.Equal(t, "1", message.GetKey())
	})
}
