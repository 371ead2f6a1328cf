// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// commits collects what Observer.Commit is told.
func commits(into *[]string) grpcretry.Option {
	return grpcretry.WithObserver(grpcretry.Observer{Commit: func(_ context.Context, _ string, cause error) {
		*into = append(*into, cause.Error())
	}})
}

func TestStreamHeader(t *testing.T) {
	t.Run("restarts and commits", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			r.server.Script(exchange, busy, testserver.Cut(), testserver.OK().SendHeader("h", "3"))
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
			md, err := stream.Header()
			require.NoError(t, err)
			assert.Equal(t, []string{"3"}, md["h"])
			assert.Len(t, r.server.Attempts(), 3)
			r.server.Stop()
			for err == nil {
				_, err = stream.Recv()
			}
			assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		})
	})
	t.Run("leaves the error to Recv", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			r.server.Script(exchange, busy.Forever())
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			md, err := stream.Header()
			require.NoError(t, err)
			assert.Nil(t, md)
			for range 2 {
				_, err = stream.Recv()
				assert.ErrorIs(t, err, grpcretry.ErrExhausted)
			}
			assert.Equal(t, io.EOF, stream.Send(&testv1.Request{}))
			assert.Equal(t, []string{"3"}, stream.Trailer()["jina-client-attempts"])
		})
	})
	t.Run("of a stream that ends well without", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			r.server.Handle(exchange, func(grpc.ServerStream) error { return nil })
			r.server.Script(exchange, busy)
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			_, err = stream.Header()
			require.NoError(t, err)
			_, err = stream.Recv()
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, []string{"2"}, stream.Trailer()["jina-client-attempts"])
		})
	})
}

func TestStreamSendRestarts(t *testing.T) {
	// A client stream that fails while the caller only sends is restarted there.
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(upload, busy.Received(1), busy.Received(2))
		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprint(i))
			require.NoError(t, stream.Send(&testv1.Request{Key: fmt.Sprint(i)}))
			time.Sleep(time.Second) // the failure arrives meanwhile
		}
		assert.Len(t, r.server.Attempts(), 3)
		_, err = stream.CloseAndRecv()
		require.NoError(t, err)
		attempts := r.server.Attempts()
		assert.Equal(t, want, keysOf(attempts[2].Requests))
	})
}

func TestStreamContextCommits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []string
		r := newRig(t, anyCall, commits(&causes))
		r.server.Script(exchange, busy.Received(1))
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		assert.NotNil(t, stream.Context())
		assert.NotNil(t, stream.Context())
		require.NoError(t, stream.Send(&testv1.Request{}))
		_, err = stream.Recv()
		assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		assert.Equal(t, []string{"Context was called"}, causes)
	})
}

func TestStreamIdleTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{IdleTimeout: time.Second, Repeat: grpcretry.RepeatAlways})
		r.server.Script(exchange, busy, testserver.Hang().Sent(1))
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		_, err = stream.Recv()
		require.NoError(t, err)
		time.Sleep(time.Minute) // no Recv blocks, so nothing is idle
		start := time.Now()
		_, err = stream.Recv()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.ErrorContains(t, err, "IdleTimeout of 1s exceeded")
		assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestStreamAttemptTimeoutEndsWithTheFirstResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{AttemptTimeout: time.Second})
		r.server.Handle(download, func(stream grpc.ServerStream) error {
			for i := range 3 {
				if err := stream.SendMsg(&testv1.Response{Sequence: int64(i)}); err != nil {
					return err
				}
				time.Sleep(time.Minute)
			}
			return nil
		})
		keys, _, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Len(t, keys, 3)
		assert.Zero(t, r.server.Attempts()[0].Deadline, "it is not on the wire")
	})
}

// TestStreamRefused: refused unprocessed, a stream is sent again at once and not
// counted; the next time it is counted.
func TestStreamRefused(t *testing.T) {
	for name, step := range map[string]rawh2.Step{
		"REFUSED_STREAM":           rawh2.Reset(http2.ErrCodeRefusedStream),
		"REFUSED_STREAM at once":   rawh2.RefuseStream(),
		"GOAWAY of a lower stream": rawh2.GoAway(0, http2.ErrCodeNo).Then(rawh2.Close()),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				retrier, err := grpcretry.New(grpcretry.WithPolicy(never))
				require.NoError(t, err)
				server := rawh2.New(t, rawh2.Bufconn())
				server.Script(step, step)
				client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
				_, trailer, err := callUpload(t.Context(), client)
				require.NoError(t, err)
				streams := server.Record().Streams
				require.Len(t, streams, 3)
				assert.Equal(t, []string{"2"}, trailer["jina-client-attempts"])
				assert.Equal(t, []string{"1"}, streams[2].Header["grpc-previous-rpc-attempts"])
				assert.Len(t, streams[2].Messages(), 3)
			})
		})
	}
}

// TestStreamMayHaveRun holds law 7 for streams.
func TestStreamMayHaveRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		for _, step := range []testserver.Step{
			busy.Applied(), testserver.Cut().Applied(), busy.SendHeader().Applied(),
			testserver.Fail(codes.Unavailable, "the connection is draining").SendHeader().Applied(),
		} {
			r.server.Script("", step.Forever())
			before := len(r.server.Attempts(exchange))
			_, _, err := callExchange(t.Context(), r)
			require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
			assert.Len(t, r.server.Attempts(exchange), before+1)
		}
		r.server.Script("")
		r.server.Script(exchange, busy.Pushback("0").Times(2))
		_, _, err := callExchange(t.Context(), r)
		require.NoError(t, err)
	})
}

// TestStreamDropped holds law 9: a stream that nobody reads leaves nothing once its
// context ends, and its OnFinish is called.
func TestStreamDropped(t *testing.T) {
	for _, wait := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Timeout: time.Hour})
				r.server.Script(exchange, busy.Received(1), testserver.Hang())
				ctx, cancel := context.WithCancel(t.Context())
				finished := make(chan error, 5)
				stream, err := r.Exchange(ctx, grpc.OnFinish(func(err error) { finished <- err }))
				require.NoError(t, err)
				require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
				time.Sleep(wait)
				_ = stream.Send(&testv1.Request{Key: "b"})
				cancel()
				assert.Error(t, <-finished)
				synctest.Wait()
				assert.Empty(t, finished)
				assert.Zero(t, grpcretry.Buffered(r.retrier))
			})
		})
	}
}

// TestStreamCancelledAnywhere cancels a duplex stream after every few steps, and
// lets all its operations come to an end.
func TestStreamCancelledAnywhere(t *testing.T) {
	t.Parallel()
	for after := range 40 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{MaxAttempts: 9, Repeat: grpcretry.RepeatAlways, Backoff: grpcretry.Backoff{Initial: 10 * time.Millisecond}})
			r.server.Script(exchange, busy.Received(2), testserver.Cut().Received(1), busy)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(after)*2*time.Millisecond, cancel)
			stream, err := r.Exchange(ctx)
			if err != nil {
				assert.Equal(t, codes.Canceled, status.Code(err))
				return
			}
			var tasks sync.WaitGroup
			tasks.Go(func() {
				for i := range 10 {
					if stream.Send(&testv1.Request{Key: fmt.Sprint(i)}) != nil {
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
				_ = stream.CloseSend()
			})
			tasks.Go(func() { _, _ = stream.Header() })
			var got []string
			tasks.Go(func() {
				for {
					response, err := stream.Recv()
					if err != nil {
						if code := status.Code(err); !errors.Is(err, io.EOF) && code != codes.Canceled {
							t.Errorf("cancelled after %d: %v", after, err)
						}
						return
					}
					got = append(got, response.GetKey())
				}
			})
			tasks.Wait()
			cancel()
			for i, key := range got {
				assert.Equal(t, fmt.Sprint(i), key, "law 3: nothing twice, nothing lost")
			}
			_ = stream.Trailer()
			assert.NotNil(t, stream.Context())
		})
	}
}

func TestStreamMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.CloseSend())
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, codes.Internal, status.Code(stream.Send(&testv1.Request{})))
		_, err = stream.Recv()
		assert.Equal(t, io.EOF, err)
		_, err = stream.Recv()
		assert.Equal(t, io.EOF, err)
		require.NoError(t, stream.CloseSend())

		stream, err = r.Exchange(t.Context())
		require.NoError(t, err)
		r.server.Script(exchange, busy.Received(1))
		require.NoError(t, stream.SendMsg(nil), "an empty message, as without us")
		_, err = stream.Recv()
		require.NoError(t, err)

		stream, err = r.Exchange(t.Context())
		require.NoError(t, err)
		assert.Equal(t, codes.Internal, status.Code(stream.SendMsg(&testv1.Request{Key: "\xff"})))
		_, err = stream.Recv()
		assert.Equal(t, codes.Internal, status.Code(err))

		up, err := r.Upload(t.Context())
		require.NoError(t, err)
		_, err = up.CloseAndRecv()
		require.NoError(t, err)
		assert.Equal(t, io.EOF, up.RecvMsg(&testv1.Response{}), "a second Recv of a client stream")

		stream, err = r.Exchange(t.Context(), grpc.MaxCallSendMsgSize(10))
		require.NoError(t, err)
		err = stream.Send(&testv1.Request{Key: strings.Repeat("x", 100)})
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		_, err = stream.Recv()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	})
}

// TestStreamSendErrorAfterCommit: Send and Recv tell the same story.
func TestStreamSendErrorAfterCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(exchange, busy.Received(1))
		stream, err := r.Exchange(t.Context(), grpc.MaxCallSendMsgSize(10))
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		_, err = stream.Recv()
		require.NoError(t, err)
		sendErr := stream.Send(&testv1.Request{Key: strings.Repeat("x", 100)})
		assert.ErrorIs(t, sendErr, grpcretry.ErrLocal)
		assert.ErrorContains(t, sendErr, "2 attempts")
		_, err = stream.Recv()
		assert.Equal(t, sendErr, err)
	})
}

// TestStreamUnencodable: where the buffer fails calls, a message that cannot be
// encoded is still no matter of the buffer.
func TestStreamUnencodable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Fail: true}))
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		err = stream.Send(&testv1.Request{Key: "\xff"})
		assert.ErrorContains(t, err, "error while marshaling")
		assert.NotErrorIs(t, err, grpcretry.ErrBufferFull)
	})
}

func TestStreamCallOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script("", busy.Forever())
		_, _, err := callDownload(t.Context(), r, grpcretry.Disable())
		assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy")
		_, _, err = callDownload(t.Context(), r, grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: 2}))
		assert.ErrorContains(t, err, "2 attempts")
		_, err = r.Download(t.Context(), &testv1.Request{}, grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: -2}))
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "MaxAttempts is -2")
	})
}

func TestStreamNobodyListens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), steady)...))
		r.server.Stop()
		time.AfterFunc(500*time.Millisecond, func() { _ = r.server.Start() })
		start := time.Now()
		_, trailer, err := callExchange(t.Context(), client)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, []string{"2"}, trailer["jina-client-attempts"])
	})
}
