// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

const (
	download = testv1.TestService_Download_FullMethodName // NO_SIDE_EFFECTS
	upload   = testv1.TestService_Upload_FullMethodName   // IDEMPOTENT
	exchange = testv1.TestService_Exchange_FullMethodName // no idempotency_level
)

// shape is a kind of stream, and a whole call of it: three messages each way where
// the kind has so many.
type shape struct {
	method string
	call   func(ctx context.Context, c testv1.TestServiceClient, opts ...grpc.CallOption) (keys []string, trailer metadata.MD, err error)
}

func shapes() []shape {
	return []shape{{download, callDownload}, {upload, callUpload}, {exchange, callExchange}}
}

func callDownload(ctx context.Context, c testv1.TestServiceClient, opts ...grpc.CallOption) ([]string, metadata.MD, error) {
	stream, err := c.Download(ctx, &testv1.Request{Key: "a"}, opts...)
	if err != nil {
		return nil, nil, err
	}
	return receiveAll(stream)
}

func callUpload(ctx context.Context, c testv1.TestServiceClient, opts ...grpc.CallOption) ([]string, metadata.MD, error) {
	stream, err := c.Upload(ctx, opts...)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := stream.Send(&testv1.Request{Key: key}); err != nil && !errors.Is(err, io.EOF) {
			return nil, stream.Trailer(), err
		}
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return nil, stream.Trailer(), err
	}
	return []string{response.GetKey()}, stream.Trailer(), nil
}

func callExchange(ctx context.Context, c testv1.TestServiceClient, opts ...grpc.CallOption) ([]string, metadata.MD, error) {
	stream, err := c.Exchange(ctx, opts...)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := stream.Send(&testv1.Request{Key: key}); err != nil && !errors.Is(err, io.EOF) {
			return nil, stream.Trailer(), err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, nil, err
	}
	return receiveAll(stream)
}

// receiveAll receives to the end of a stream of responses.
func receiveAll(stream interface {
	Recv() (*testv1.Response, error)
	Trailer() metadata.MD
},
) (keys []string, trailer metadata.MD, err error) {
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return keys, stream.Trailer(), nil
		}
		if err != nil {
			return keys, stream.Trailer(), err
		}
		keys = append(keys, response.GetKey())
	}
}

// answers are what each shape's call gets from a server that behaves.
var answers = map[string][]string{download: {"a"}, upload: {"c"}, exchange: {"a", "b", "c"}}

// requests are what each shape's call sends.
var requests = map[string][]string{download: {"a"}, upload: {"a", "b", "c"}, exchange: {"a", "b", "c"}}

func keysOf(messages []proto.Message) []string {
	var keys []string
	for _, m := range messages {
		request, _ := m.(*testv1.Request)
		keys = append(keys, request.GetKey())
	}
	return keys
}

// TestStreamSchedule holds laws 1, 3, 5 and 6 for streams of every kind.
func TestStreamSchedule(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct {
		name    string
		policy  grpcretry.Policy
		script  []testserver.Step
		timeout time.Duration
		starts  []time.Duration
		elapsed time.Duration
		code    codes.Code
		reason  error
		partial bool // the caller has a part of the answer when it fails
	}{
		{name: "success", starts: []time.Duration{0}},
		{name: "backoff", script: []testserver.Step{busy.Times(2)}, starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms},
		{name: "after it read the requests", script: []testserver.Step{busy.Received(1), busy.Applied()}, starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms},
		{name: "exhausted", script: []testserver.Step{busy.Forever()}, starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms, code: codes.Unavailable, reason: grpcretry.ErrExhausted},
		{name: "headers that nobody asked for do not commit", script: []testserver.Step{busy.SendHeader("h", "1").Times(2)}, starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms},
		{name: "cut", script: []testserver.Step{testserver.Cut(), testserver.Cut().SendHeader()}, starts: []time.Duration{0, 100 * ms, 300 * ms}, elapsed: 300 * ms},
		{name: "cut after it was done", script: []testserver.Step{testserver.Cut().Applied()}, starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms},
		{name: "pushback", script: []testserver.Step{busy.Pushback("250"), busy}, starts: []time.Duration{0, 250 * ms, 350 * ms}, elapsed: 350 * ms},
		{name: "pushback says no", script: []testserver.Step{busy.Pushback("-1")}, starts: []time.Duration{0}, code: codes.Unavailable, reason: grpcretry.ErrPushback},
		{name: "RetryInfo", script: []testserver.Step{busy.RetryInfo(time.Second)}, starts: []time.Duration{0, time.Second}, elapsed: time.Second},
		{name: "an unlisted code", script: []testserver.Step{testserver.Fail(codes.NotFound, "none")}, starts: []time.Duration{0}, code: codes.NotFound},
		{name: "an unlisted code later", script: []testserver.Step{busy, testserver.Fail(codes.NotFound, "none")}, starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms, code: codes.NotFound, reason: grpcretry.ErrNotRetryable},
		{name: "no wait beyond the deadline", timeout: 250 * ms, script: []testserver.Step{busy.Forever()}, starts: []time.Duration{0, 100 * ms}, elapsed: 100 * ms, code: codes.Unavailable, reason: grpcretry.ErrDeadline},
		{name: "the deadline ends an attempt", timeout: time.Second, script: []testserver.Step{busy, testserver.Hang()}, starts: []time.Duration{0, 100 * ms}, elapsed: time.Second, code: codes.DeadlineExceeded, reason: context.DeadlineExceeded},
		{name: "Timeout", policy: grpcretry.Policy{Timeout: time.Second}, script: []testserver.Step{busy, testserver.Hang()}, starts: []time.Duration{0, 100 * ms}, elapsed: time.Second, code: codes.DeadlineExceeded, reason: context.DeadlineExceeded},
		{name: "AttemptTimeout", policy: grpcretry.Policy{AttemptTimeout: time.Second}, script: []testserver.Step{testserver.Hang().Times(2)}, starts: []time.Duration{0, 1100 * ms, 2300 * ms}, elapsed: 2300 * ms},
		{name: "AttemptTimeout every time", policy: grpcretry.Policy{AttemptTimeout: time.Second, MaxAttempts: 2}, script: []testserver.Step{testserver.Hang().Forever()}, starts: []time.Duration{0, 1100 * ms}, elapsed: 2100 * ms, code: codes.DeadlineExceeded, reason: grpcretry.ErrExhausted},
		{name: "one attempt", policy: grpcretry.Policy{MaxAttempts: 1}, script: []testserver.Step{busy}, starts: []time.Duration{0}, code: codes.Unavailable},
		{name: "after a response", script: []testserver.Step{busy.Sent(1)}, starts: []time.Duration{0}, code: codes.Unavailable, reason: grpcretry.ErrCommitted, partial: true},
		{name: "cut after a response", script: []testserver.Step{testserver.Cut().Sent(1)}, starts: []time.Duration{0}, code: codes.Unavailable, reason: grpcretry.ErrCommitted, partial: true},
	} {
		for _, shape := range shapes() {
			if row.partial && shape.method == upload {
				continue // its one response is the end
			}
			t.Run(row.name+shape.method, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					policy := row.policy
					policy.Repeat = grpcretry.RepeatAlways
					r := newRig(t, policy)
					r.server.Script(shape.method, row.script...)
					ctx := t.Context()
					if row.timeout > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, row.timeout)
						defer cancel()
					}
					start := time.Now()
					var header, optionTrailer metadata.MD
					var from peer.Peer
					var finished []error
					keys, trailer, err := shape.call(ctx, r, grpc.Header(&header), grpc.Trailer(&optionTrailer), grpc.Peer(&from),
						grpc.OnFinish(func(err error) { finished = append(finished, err) }))

					assert.Equal(t, row.elapsed, time.Since(start), "elapsed")
					assert.Equal(t, row.starts, r.starts(), "starts")
					assert.Equal(t, row.code, status.Code(err), "%v", err)
					var retryError *grpcretry.Error
					if assert.Equal(t, row.reason != nil, errors.As(err, &retryError), "%v", err) && row.reason != nil {
						assert.ErrorIs(t, err, row.reason)
					}
					r.assertOneLedger(t, trailer, err)
					if err == nil {
						assert.Equal(t, answers[shape.method], keys)
						attempts := r.server.Attempts()
						last := attempts[len(attempts)-1]
						assert.Equal(t, requests[shape.method], keysOf(last.Requests), "law 3: all that was sent, in order")
						assert.True(t, last.HalfClosed)
					}
					assert.Equal(t, []error{err}, finished, "law 8")
					assert.Equal(t, trailer, optionTrailer, "law 8")
				})
			})
		}
	}
}

// TestStreamReplayDoesNotLie: gRPC's own replay reports a stream that fails while it
// is replayed as ended well, or by the code UNKNOWN.
func TestStreamReplayDoesNotLie(t *testing.T) {
	t.Parallel()
	for _, method := range []string{upload, exchange} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			server := testserver.New(t)
			client := clientOf(t, server, noWait)
			payload := bytes.Repeat([]byte("x"), 8<<10)
			for i := range 100 {
				server.Script(method, busy.Received(20), testserver.Fail(codes.NotFound, "none"))
				stream, err := client.Exchange(t.Context())
				if method == upload {
					var up grpc.ClientStreamingClient[testv1.Request, testv1.Response]
					up, err = client.Upload(t.Context())
					stream = &grpc.GenericClientStream[testv1.Request, testv1.Response]{ClientStream: up}
				}
				require.NoError(t, err)
				for range 20 {
					require.NoError(t, stream.Send(&testv1.Request{Payload: payload}))
				}
				require.NoError(t, stream.CloseSend())
				_, err = stream.Recv()
				require.Equal(t, codes.NotFound, status.Code(err), "call %d: %v", i, err)
			}
		})
	}
}

// TestStreamDuplexReplay: both sides send more than the windows hold while a stream
// is replayed.
func TestStreamDuplexReplay(t *testing.T) {
	t.Parallel()
	duplexReplay(t, 100) // 64 KiB each
}

// TestStreamDuplexReplay16MiB does the same with 16 MiB.
func TestStreamDuplexReplay16MiB(t *testing.T) {
	t.Parallel()
	duplexReplay(t, 256)
}

func duplexReplay(t *testing.T, messages int) {
	t.Helper()
	server := testserver.New(t)
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait), grpcretry.WithBuffer(grpcretry.Buffer{Memory: 32 << 20}))
	require.NoError(t, err)
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	server.Script(exchange, busy.Received(messages))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := client.Exchange(ctx)
	require.NoError(t, err)
	payload := bytes.Repeat([]byte("x"), 64<<10)
	for i := range messages {
		require.NoError(t, stream.Send(&testv1.Request{Sequence: int64(i), Payload: payload}))
	}
	require.NoError(t, stream.CloseSend())
	for i := range messages {
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.EqualValues(t, i, response.GetSequence())
		assert.True(t, bytes.Equal(payload, response.GetPayload()))
	}
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
}

// TestStreamReusedBuffer: a caller that fills one buffer anew for each Send, and
// even one message. All attempts must see what was sent.
func TestStreamReusedBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 4})
		r.server.Script(upload, busy.Received(50), busy.Received(50), busy.Received(50))
		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		want, buffer, message := sha256.New(), make([]byte, 1000), &testv1.Request{}
		for i := range 50 {
			for j := range buffer {
				buffer[j] = byte(i * j)
			}
			want.Write(buffer)
			message.Payload = buffer
			require.NoError(t, stream.Send(message))
		}
		_, err = stream.CloseAndRecv()
		require.NoError(t, err)
		attempts := r.server.Attempts()
		require.Len(t, attempts, 4)
		for _, a := range attempts {
			got := sha256.New()
			for _, request := range a.Requests {
				got.Write(request.(*testv1.Request).GetPayload())
			}
			assert.Equal(t, want.Sum(nil), got.Sum(nil))
		}
	})
}
