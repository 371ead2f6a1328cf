// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestWindow holds how many requests are under way, of which one more is drawn: 1000, or
// on a stream 16 MiB with all that is in them, of which what is answered is no part.
func TestWindow(t *testing.T) {
	t.Parallel()
	const large = 6 << 20
	for _, row := range []struct {
		name                                         string
		stream                                       bool
		doc, parameter, prefetch, answered, underWay int
	}{
		{"small", true, 1, 0, 1000, 0, 1000},
		{"small, without streaming", false, 1, 0, 1000, 0, 1000},
		{"large documents", true, large, 0, 1000, 4, 2},
		{"large parameters", true, 1, large, 1000, 0, 2},
		{"large documents, without streaming", false, large, 0, 4, 0, 4},
	} {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.gateway.Script(singleMethod, testserver.Hang().Forever())
			r.gateway.Server.Handle(callMethod, func(stream grpc.ServerStream) (err error) {
				for i := 0; err == nil; i++ {
					request := &jinaRequest{}
					if err = stream.RecvMsg(request); err == nil && i < row.answered {
						err = stream.SendMsg(&jinaRequest{Header: request.GetHeader()})
					}
				}
				return err
			})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			drawn, doc := 0, make(jina.Document, row.doc)
			opts := []jina.Option{
				jina.WithRequestSize(1), jina.WithStream(row.stream),
				jina.WithParameters(map[string]any{"p": strings.Repeat("x", row.parameter)}),
			}
			if row.prefetch != 1000 { // the default
				opts = append(opts, jina.WithPrefetch(row.prefetch))
			}
			for _, err := range r.client.Post(ctx, "/x", jina.Sequence(func(yield func(jina.Document) bool) {
				for goOn := true; goOn && drawn < row.answered+row.underWay+5; goOn = yield(doc) {
					drawn++
				}
			}), opts...) {
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
			}
			assert.Equal(t, row.answered+row.underWay+1, drawn)
		})
	}
}

// TestGeneratorIsOver holds that the context of an iterator that has ended has, too,
// though the Post goes on, and that the error of one is its own.
func TestGeneratorIsOver(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
				time.Sleep(time.Minute)
				return docs, nil
			})
			begun, over := time.Now(), make(chan time.Time, 1)
			o := r.post(t.Context(), jina.Generator(func(ctx context.Context) iter.Seq2[jina.Document, error] {
				context.AfterFunc(ctx, func() { over <- time.Now() })
				return func(yield func(jina.Document, error) bool) { yield(jina.Document("1"), nil) }
			}), inOrder(m)...)
			require.NoError(t, o.err)
			assert.Equal(t, begun, <-over)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, r.post(ctx, failingAfter(0, errMine), inOrder(m)...).err, errMine)
		})
	}
}

// TestBare holds that a response is a result if it has anything beside its request_id.
func TestBare(t *testing.T) {
	t.Parallel()
	endpoint := "/x"
	for name, fill := range map[string]func(*jinaRequest){
		"endpoint": func(m *jinaRequest) { m.Header.ExecEndpoint = &endpoint },
		"status":   func(m *jinaRequest) { m.Header.Status = &jinapb.StatusProto{} },
		"routes":   func(m *jinaRequest) { m.Routes = []*jinapb.RouteProto{{}} },
		"data":     func(m *jinaRequest) { m.Data = &jinapb.DataRequestProto_DataContentProto{} },
		"parameters": func(m *jinaRequest) {
			m.Parameters = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNullValue()}}
		},
		"no id": func(m *jinaRequest) { m.Header = nil },
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.answer(func(all []*jinaRequest) []*jinaRequest {
				m := &jinaRequest{Header: &jinapb.HeaderProto{RequestId: all[0].GetHeader().GetRequestId()}}
				fill(m)
				return []*jinaRequest{m}
			})
			o := r.post(t.Context(), jina.Documents(texts(1)...))
			if name == "no id" {
				require.ErrorContains(t, o.err, `the request_id is ""`)
				return
			}
			require.NoError(t, o.err)
			assert.Len(t, o.responses, 1)
		})
	}
}

// refusing is a stream that does not send, which it says when it may have ended already.
type refusing struct {
	grpc.ClientStream

	after time.Duration
}

func (s *refusing) SendMsg(any) error {
	time.Sleep(s.after)
	return status.Error(codes.ResourceExhausted, "trying to send message larger than max (5 vs. 4)")
}

func (s *refusing) RecvMsg(m any) error {
	if s.after > 0 {
		return status.Error(codes.Internal, "it is over")
	}
	return s.ClientStream.RecvMsg(m)
}

// TestSendFails holds that a Post ends with why a request could not be sent, and when.
func TestSendFails(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Second} {
		bubble(t, after.String(), func(t *testing.T) {
			r := newRig(t, jina.Params{}, grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
				method string, streamer grpc.Streamer, opts ...grpc.CallOption,
			) (grpc.ClientStream, error) {
				stream, err := streamer(ctx, desc, cc, method, opts...)
				return &refusing{stream, after}, err
			}))
			begun := time.Now()
			o := r.post(t.Context(), jina.Documents(texts(2)...))
			assert.Equal(t, after, time.Since(begun))
			assertFailed(t, o.err, "request 1 (documents 1 to 1): bad client input: ")
		})
	}
}

// assertFailed holds that an error has the trailer of the one attempt.
func assertFailed(t *testing.T, err error, text string) {
	t.Helper()
	require.ErrorContains(t, err, text)
	failed, ok := errors.AsType[*jina.Error](err)
	require.True(t, ok)
	assert.Equal(t, 1, failed.Attempts())
}

// TestErrorsSay holds what errors say that are for a gateway which breaks the protocol.
func TestErrorsSay(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		r.gateway.Server.Handle(singleMethod, func(stream grpc.ServerStream) error { return stream.SendMsg(&jinaRequest{}) })
		assertFailed(t, r.post(t.Context(), jina.Input{}, jina.WithStream(false)).err, "request 1 (no documents): bad server flow: ")
		r.answer(func([]*jinaRequest) []*jinaRequest {
			return []*jinaRequest{{Header: &jinapb.HeaderProto{RequestId: "x"}}}
		})
		assertFailed(t, r.post(t.Context(), jina.Documents(texts(1)...)).err, "(1 responses had nothing but a request_id")
		r.unkept()
		r.answer(func(all []*jinaRequest) []*jinaRequest { return all[1:] })
		assertFailed(t, r.post(t.Context(), jina.Documents(texts(2)...)).err, "owes 1 responses, the first to request 1 (documents 1 to 1)")
	})
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{}, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(9)))
			require.ErrorIs(t, r.post(t.Context(), m.input(texts(1)), inOrder(m)...).err, jina.ErrBadServerFlow, "it was sent")
		})
	}
	_, ok := status.FromError(&jina.Error{Cause: errMine})
	assert.False(t, ok)
	require.EqualError(t, &jina.ExecutorError{Endpoint: "/x", Name: "E", Args: []string{"a", "b"}}, "jina: /x: executor: E(a, b)")
}

// TestCallbacksComeFirst holds that the progress is told last, and what is logged or said of a callback's error.
func TestCallbacksComeFirst(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		told, logged := "", bytes.Buffer{}
		opts := append(inOrder(both[0]), jina.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))), jina.WithOnAlways(func(*jina.Response) error {
			told += "a"
			return errMine
		}), jina.WithProgress(func(jina.Progress) { told += "p" }))
		o := r.post(t.Context(), jina.Documents(texts(2)...), opts...)
		require.EqualError(t, o.err, "jina: /echo: the callback of WithOnAlways: mine")
		o = r.post(t.Context(), jina.Documents(texts(1)...), append(opts, jina.WithContinueOnError(true))...)
		require.NoError(t, o.err)
		assert.Equal(t, "aap", told)
		assert.Contains(t, logged.String(), "request_id="+o.responses[0].RequestID())
	})
}

// TestOrderForgets holds that a response which was handed over is not kept for the order.
func TestOrderForgets(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		var all []weak.Pointer[jina.Response]
		for response, err := range newRig(t, jina.Params{}).client.Post(t.Context(), "/x", jina.Documents(texts(9)...),
			jina.WithRequestSize(1), jina.WithResultsInOrder(true)) {
			require.NoError(t, err)
			all = append(all, weak.Make(response))
			runtime.GC()
			assert.True(t, len(all) < 9 || all[0].Value() == nil)
		}
	})
}
