// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// counter is a server's state: how often each method was applied.
type counter struct {
	mu      sync.Mutex
	applied map[string]int
}

func (c *counter) serve(server *testserver.Server, methods ...string) {
	c.applied = map[string]int{}
	for _, method := range methods {
		server.Handle(method, func(stream grpc.ServerStream) error {
			request := &testv1.Request{}
			if err := stream.RecvMsg(request); err != nil {
				return err
			}
			c.mu.Lock()
			c.applied[method]++
			c.mu.Unlock()
			return stream.SendMsg(&testv1.Response{Key: request.GetKey()})
		})
	}
}

func (c *counter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.applied)
}

// TestLaw7WhatMayHaveRun makes a server apply a call and then fail in every way
// there is. A method that is not repeatable is applied once, and the error says
// what to set; one that is repeatable is tried again.
func TestLaw7WhatMayHaveRun(t *testing.T) {
	t.Parallel()
	quick := grpcretry.Policy{
		AttemptTimeout: time.Second,
		Codes: []codes.Code{
			codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal,
			codes.Unknown, codes.Aborted, codes.ResourceExhausted, codes.DataLoss,
		},
	}
	failures := map[string]testserver.Step{
		"cut before headers":       testserver.Cut().Applied(),
		"cut after headers":        testserver.Cut().SendHeader().Applied(),
		"cut after the answer":     testserver.Cut().Sent(1),
		"reset":                    testserver.Reset().Applied(),
		"no answer":                testserver.Hang().Applied(),
		"headers and no answer":    testserver.Hang().SendHeader().Applied(),
		"an answer and no end":     testserver.Hang().Sent(1),
		"UNAVAILABLE with headers": busy.SendHeader("h", "1").Applied(),
		"UNAVAILABLE and answer":   busy.Sent(1),
		"REFUSED_STREAM as a text": testserver.Fail(codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM").Applied(),
		"draining as a text":       testserver.Fail(codes.Unavailable, "the connection is draining").Applied(),
		// With headers in front nothing but these tells it from a refused stream.
		"REFUSED_STREAM as a text after headers": testserver.Fail(codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM").SendHeader("h", "1").Applied(),
		"draining as a text after headers":       testserver.Fail(codes.Unavailable, "the connection is draining").SendHeader().Applied(),
		"rejected as a text after headers":       testserver.Fail(codes.Unavailable, "the stream is rejected because server is draining the connection").Header("h", "1").Applied(),
	}
	for _, code := range quick.Codes {
		failures[code.String()] = testserver.Fail(code, "failed").Applied()
	}
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, quick)
				applied := &counter{}
				applied.serve(r.server, write, put, read)
				r.server.Script(write, failure)
				r.server.Script(put, failure)
				r.server.Script(read, failure)

				_, err := r.call(t.Context(), write)
				require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
				assert.ErrorContains(t, err, "grpcretry.test.v1.TestService/Write has no idempotency_level; set Policy.Repeat")
				for _, method := range []string{put, read} {
					_, err = r.call(t.Context(), method)
					require.NoError(t, err)
				}
				_, err = r.call(t.Context(), write, grpcretry.WithCallPolicy(anyCall))
				require.NoError(t, err, "the script is used up")
				assert.Equal(t, map[string]int{write: 2, put: 2, read: 2}, applied.counts())
			})
		})
	}
}

func TestLaw7RepeatAlwaysAndNever(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		applied := &counter{}
		applied.serve(r.server, write, read)
		r.server.Script(write, testserver.Cut().Applied())
		_, err := r.call(t.Context(), write)
		require.NoError(t, err)

		r.server.Script(read, busy.Applied().Times(2))
		_, err = r.call(t.Context(), read, grpcretry.WithCallPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatNever}))
		assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy", "the policy allows no retry, so none was refused")
		assert.Equal(t, map[string]int{write: 2, read: 1}, applied.counts())
	})
}

// TestLaw7Proof holds that a call which provably did not run is retried, whatever
// its method.
func TestLaw7Proof(t *testing.T) {
	never := grpcretry.Policy{Repeat: grpcretry.RepeatNever}
	for name, step := range map[string]testserver.Step{
		"the server asks for a retry by pushback":   busy.Pushback("0"),
		"the server asks for a retry by RetryInfo":  busy.RetryInfo(0),
		"the server asks for a retry after headers": busy.SendHeader("h", "1").Pushback("0"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, never)
				r.server.Script(write, step.Times(2))
				_, err := r.call(t.Context(), write)
				require.NoError(t, err)
				assert.Len(t, r.server.Attempts(), 3)
			})
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, never)
			r.server.Stop()
			_, err := r.call(t.Context(), write)
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			for _, a := range r.journal.done[0].attempts {
				assert.Equal(t, grpcretry.Connect, a.Failure.Kind)
			}
		})
	})
	for name, step := range map[string]rawh2.Step{
		"REFUSED_STREAM":           rawh2.Reset(http2.ErrCodeRefusedStream), // once the message is there, so that gRPC cannot resend
		"GOAWAY of a lower stream": rawh2.GoAway(0, http2.ErrCodeNo).Then(rawh2.Close()),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				retrier, err := grpcretry.New(grpcretry.WithPolicy(never))
				require.NoError(t, err)
				server := rawh2.New(t, rawh2.Bufconn())
				server.Script(step, step, step)
				client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
				var trailer metadata.MD
				_, err = client.Write(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer), grpc.MaxRetryRPCBufferSize(1<<20),
					&grpc.MaxRetryRPCBufferSizeCallOption{MaxRetryRPCBufferSize: 1 << 20})
				require.NoError(t, err)
				streams := server.Record().Streams
				require.Len(t, streams, 4)
				var previous [][]string
				for _, stream := range streams {
					previous = append(previous, stream.Header["grpc-previous-rpc-attempts"])
				}
				assert.Equal(t, [][]string{nil, nil, {"1"}, {"2"}}, previous, "the first is sent again and not counted")
				assert.Equal(t, []string{"3"}, trailer["jina-client-attempts"])
			})
		})
	}
}

// TestLaw7MaxAttempts1 holds that not even a text that looks like a refusal makes a
// call run twice that may run but once.
func TestLaw7MaxAttempts1(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 1, Repeat: grpcretry.RepeatAlways})
		r.server.Script("", testserver.Fail(codes.Unavailable, "the connection is draining").SendHeader().Forever())
		for _, method := range []string{read, write} {
			_, err := r.call(t.Context(), method)
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.Len(t, r.server.Attempts(method), 1)
		}
	})
}

// TestLaw7OddMethod: a method must not pass for an idempotent one by its name.
func TestLaw7OddMethod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		conn := inMemory(t, func(*grpc.Server) {})(append(r.retrier.DialOptions(), below(
			func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				return status.Error(codes.Unavailable, "busy")
			}))...)
		err := conn.Invoke(t.Context(), "/grpcretry.test.v1/TestService.Read", nil, nil)
		assert.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
		assert.ErrorContains(t, err, "is not linked")
	})
}

// TestLaw7WithoutProof holds that a reset which says anything else than "refused"
// is none.
func TestLaw7WithoutProof(t *testing.T) {
	steps := map[string]rawh2.Step{
		"HTTP 503":                 rawh2.HTTPStatus(503, "text/html", "<p>no backend</p>"),
		"truncated message":        rawh2.Headers().Then(rawh2.TruncatedMessage(10, []byte("abc")), rawh2.EndStream()),
		"truncated frame":          rawh2.Headers().Then(rawh2.TruncatedFrame(100, []byte("abc"))),
		"closed":                   rawh2.Close(),
		"no grpc-status":           rawh2.Headers().Then(rawh2.Trailers("a", "b")),
		"GOAWAY of a later stream": rawh2.GoAway(rawh2.OwnStream, http2.ErrCodeNo).Then(rawh2.Close()),
	}
	for code := http2.ErrCodeNo; code <= http2.ErrCodeHTTP11Required; code++ {
		if code != http2.ErrCodeRefusedStream {
			steps["RST_STREAM "+code.String()] = rawh2.Reset(code)
		}
	}
	all := grpcretry.Policy{}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all.Codes = append(all.Codes, code)
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				retrier, err := grpcretry.New(grpcretry.WithPolicy(all))
				require.NoError(t, err)
				server := rawh2.New(t, rawh2.Bufconn())
				server.Always(step)
				client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
				_, err = client.Write(t.Context(), &testv1.Request{})
				assert.NotEqual(t, codes.OK, status.Code(err))
				require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
				assert.Len(t, server.Record().Streams, 1)
				_, err = client.Read(t.Context(), &testv1.Request{})
				require.ErrorIs(t, err, grpcretry.ErrExhausted)
				assert.Len(t, server.Record().Streams, 4)
			})
		})
	}
}
