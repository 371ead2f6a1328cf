// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// The tests of this file hold faults of streams, as those of faults_test.go do for
// unary calls.

// TestPeerMiddleware1: a stream that failed after a message was opened again from
// its beginning, and the message came twice. 2: each Recv had attempts of its own,
// so that there was no end to them.
func TestPeerMiddleware1And2DuplicatesWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(download, busy.Sent(1).Forever())
		keys, _, err := callDownload(t.Context(), r)
		assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		assert.Equal(t, []string{"a"}, keys)
		assert.Len(t, r.server.Attempts(), 1)
	})
}

// TestPeerMiddleware3: attempts at creation and at Recv were counted apart, and
// exceeded the maximum together.
func TestPeerMiddleware3CreationAndRecv(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{ConnectWait: -1})
		r.server.Script("", busy.Forever())
		r.server.Stop()
		time.AfterFunc(150*time.Millisecond, func() { _ = r.server.Start() })
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), steady)...))
		_, trailer, err := callExchange(t.Context(), client, grpcretry.WithCallPolicy(grpcretry.Policy{
			Repeat: grpcretry.RepeatAlways, ConnectWait: -1,
			Backoff: grpcretry.Backoff{Initial: 900 * time.Millisecond, Multiplier: 1}, // gRPC dials each second
		}))
		require.ErrorIs(t, err, grpcretry.ErrExhausted)
		assert.Equal(t, []string{"3"}, trailer["jina-client-attempts"])
		assert.Len(t, r.server.Attempts(), 1, "the others found nobody")
	})
}

// TestPeerMiddleware4: a replay whose Send met the end of the stream was reported as
// a clean end, and its stream leaked.
func TestPeerMiddleware4FalseEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		raw := below2(func(stream grpc.ClientStream) grpc.ClientStream { return &eofSender{stream} })
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), raw)...))
		for range 50 {
			r.server.Script(download, busy.Forever())
			_, _, err := callDownload(t.Context(), client)
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			assert.Equal(t, codes.Unavailable, status.Code(err))
		}
		// A stream that is not drained would be left, and the bubble would say so.
	})
}

// below2 is a stream interceptor that is installed after the suite's.
func below2(wrap func(grpc.ClientStream) grpc.ClientStream) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		return wrap(stream), nil
	})
}

// eofSender tells the sender that the stream has ended, always.
type eofSender struct{ grpc.ClientStream }

func (s *eofSender) SendMsg(m any) error {
	_ = s.ClientStream.SendMsg(m)
	return io.EOF
}

// TestPeerMiddleware12: Context raced with a restart. TestStreamCancelledAnywhere
// runs the operations side by side; this one asks for the context during one.
func TestPeerMiddleware12Context(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(exchange, busy.Received(1).Times(2))
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(50 * time.Millisecond) // the first backoff is under way
			assert.NoError(t, stream.Context().Err())
		}()
		_, err = stream.Recv()
		<-done
		assert.ErrorIs(t, err, grpcretry.ErrCommitted, "Context commits to the attempt that it belongs to")
		assert.Len(t, r.server.Attempts(), 2)
	})
}

// TestPeerMiddleware13: what was sent was kept for the life of the stream
// (go-grpc-middleware#88), and a replay half-closed although the caller had not.
func TestPeerMiddleware13BufferAndHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(exchange, busy.Received(2))
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		for i := range 3 {
			require.NoError(t, stream.Send(&testv1.Request{Key: fmt.Sprint(i)}))
		}
		assert.Positive(t, grpcretry.Buffered(r.retrier))
		_, err = stream.Recv()
		require.NoError(t, err)
		synctest.Wait()
		assert.Zero(t, grpcretry.Buffered(r.retrier), "freed with the first response")
		assert.False(t, r.server.Attempts()[1].HalfClosed)
		require.NoError(t, stream.CloseSend())
		for err == nil {
			_, err = stream.Recv()
		}
		assert.Equal(t, io.EOF, err)
		assert.True(t, r.server.Attempts()[1].HalfClosed)
	})
}

// TestIssueOnos81: streams were opened again although their context had ended.
func TestIssueOnos81DeadContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Backoff: grpcretry.Backoff{Initial: -1}})
		ctx, cancel := context.WithCancel(t.Context())
		r.server.Script(exchange, testserver.Do(func(grpc.ServerStream) error {
			cancel()
			return status.Error(codes.Unavailable, "busy")
		}).Forever())
		_, _, err := callExchange(ctx, r)
		assert.Equal(t, codes.Canceled, status.Code(err))
		assert.Len(t, r.server.Attempts(), 1)
	})
}

// TestIssueGrpc5507: an interceptor opened a server stream again without its request
// and half-close, and Recv hung.
func TestIssueGrpc5507RequestIsReplayed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(download, busy, testserver.Cut())
		keys, _, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, keys)
		assert.True(t, r.server.Attempts()[2].HalfClosed)
	})
}

// TestIssueHlf27: with retries on, every stream that sends failed UNIMPLEMENTED.
func TestIssueHlf27EveryKindWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 1})
		for _, shape := range shapes() {
			keys, trailer, err := shape.call(t.Context(), r)
			require.NoError(t, err)
			assert.Equal(t, answers[shape.method], keys)
			assert.Equal(t, []string{"1"}, trailer["jina-client-attempts"])
		}
	})
}

// TestIssueFailsafe65: the attempt's context ended when the stream was open, not
// when it was read.
func TestIssueFailsafe65ContextLivesWithTheStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{AttemptTimeout: time.Second, Timeout: time.Hour})
		r.server.Script(download, busy, testserver.OK().SendHeader())
		stream, err := r.Download(t.Context(), &testv1.Request{Key: "a"})
		require.NoError(t, err)
		_, err = stream.Header()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = stream.Recv()
		require.NoError(t, err)
	})
}

// TestNativeAgreesOnStreams holds that streams do what gRPC's own retry does with
// them, wherever that is right.
func TestNativeAgreesOnStreams(t *testing.T) {
	t.Parallel()
	for name, script := range map[string][]testserver.Step{
		"success":              nil,
		"third attempt":        {busy, busy},
		"exhausted":            {busy.Forever()},
		"unlisted":             {testserver.Fail(codes.NotFound, "none")},
		"unlisted later":       {busy, testserver.Fail(codes.NotFound, "none")},
		"requests are read":    {busy.Received(1)},
		"cut":                  {testserver.Cut()},
		"pushback":             {busy.Pushback("200")},
		"pushback says no":     {busy.Pushback("-1")},
		"after a response":     {busy.Sent(1)},
		"cut after a response": {testserver.Cut().Sent(1)},
	} {
		for _, shape := range shapes() {
			if shape.method == upload && (name == "after a response" || name == "cut after a response") {
				continue // it has one response, and never sees it
			}
			t.Run(name+shape.method, func(t *testing.T) {
				t.Parallel()
				see := func(native bool) (seen outcome, keys []string) {
					synctest.Test(t, func(t *testing.T) {
						server := testserver.New(t)
						server.Script(shape.method, script...)
						options := []grpc.DialOption{grpc.WithDefaultServiceConfig(oracleConfig)}
						if !native {
							retrier, err := grpcretry.New(grpcretry.WithPolicy(oraclePolicy))
							require.NoError(t, err)
							options = retrier.DialOptions()
						}
						var err error
						keys, _, err = shape.call(t.Context(), testv1.NewTestServiceClient(server.Dial(options...)))
						if errors.Is(err, io.EOF) {
							err = errors.New("a clean end for a failed call")
						}
						seen.code = status.Code(err)
						for _, a := range server.Attempts() {
							seen.attempts++
							seen.previous = append(seen.previous, a.PreviousAttempts)
						}
					})
					return seen, keys
				}
				native, nativeKeys := see(true)
				ours, ourKeys := see(false)
				assert.Equal(t, native, ours)
				assert.Equal(t, nativeKeys, ourKeys)
			})
		}
	}
}
