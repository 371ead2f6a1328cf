// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"io"
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

// behind resumes a Download behind the last number.
func behind(last any) ([]any, error) {
	return []any{&testv1.Request{Sequence: last.(*testv1.Response).GetSequence() + 1}}, nil
}

// TestResume: next knows what to ask for.
func TestResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Resume(behind))
		r.server.Handle(download, numbers(10, 0, 4))
		stream, err := r.Download(t.Context(), &testv1.Request{Key: "first"})
		require.NoError(t, err)
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, upTo(10), keys)
		attempts := r.server.Attempts()
		require.Len(t, attempts, 3)
		assert.Equal(t, []string{"first"}, keysOf(attempts[0].Requests))
		assert.Equal(t, []string{"first"}, keysOf(attempts[1].Requests), "before the first response all is sent again")
		assert.Equal(t, int64(4), attempts[2].Requests[0].(*testv1.Request).GetSequence())
		assert.True(t, attempts[2].HalfClosed)
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
}

// TestResumeDuplex: what next gives comes first, then what is sent from then on.
func TestResumeDuplex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		sub := func(any) ([]any, error) { return []any{&testv1.Request{Key: "x"}, &testv1.Request{Key: "y"}}, nil }
		r := recovering(t, grpcretry.Resume(sub))
		r.server.Script(exchange, busy.Sent(2), testserver.OK())
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, stream.Send(&testv1.Request{Key: key}))
		}
		for _, key := range []string{"a", "b", "x"} {
			response, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, key, response.GetKey())
		}
		require.NoError(t, stream.Send(&testv1.Request{Key: "d"}))
		require.NoError(t, stream.CloseSend())
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"y", "d"}, keys)
		last := r.server.Attempts()[1]
		assert.Equal(t, []string{"x", "y", "d"}, keysOf(last.Requests))
		assert.True(t, last.HalfClosed)
		r.assertOneLedger(t, trailer, err)
	})
}

// errCursor is an error of next's own.
var errCursor = status.Error(codes.OutOfRange, "the cursor is gone")

// TestResumeRefused: what next gives in error ends the call without another attempt.
func TestResumeRefused(t *testing.T) {
	one := &testv1.Request{}
	for _, row := range []struct {
		name   string
		method string
		next   func(any) ([]any, error)
		code   codes.Code
		text   string
	}{
		{"an error", download, func(any) ([]any, error) { return nil, errCursor }, codes.OutOfRange, "the cursor is gone"},
		{"an error without a status", download, func(any) ([]any, error) { return nil, errBroken }, codes.Unknown, "grpcretry: Resume: next failed: " + errBroken.Error()},
		{"io.EOF", download, func(any) ([]any, error) { return nil, io.EOF }, codes.Unknown, "grpcretry: Resume: next failed: EOF"},
		{"nothing", download, func(any) ([]any, error) { return nil, nil }, codes.Internal, "grpcretry: Resume: next gave 0 requests, and " + download + " takes 1"},
		{"too much", download, func(any) ([]any, error) { return []any{one, one}, nil }, codes.Internal, "grpcretry: Resume: next gave 2 requests, and " + download + " takes 1"},
		{"nil", download, func(any) ([]any, error) { return []any{nil}, nil }, codes.Internal, "grpcretry: Resume: next gave nil as request 1"},
		{"nil of a type", download, func(any) ([]any, error) { return []any{(*testv1.Request)(nil)}, nil }, codes.Internal, "grpcretry: Resume: next gave nil as request 1"},
		{"another type", exchange, func(any) ([]any, error) { return []any{one, &testv1.Response{}}, nil }, codes.Internal, "grpcretry: Resume: next gave *testv1.Response as request 2, and " + exchange + " takes *testv1.Request"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, grpcretry.Resume(row.next))
				r.server.Script(row.method, busy.Sent(1).Forever())
				call := callDownload
				if row.method == exchange {
					call = callExchange
				}
				keys, trailer, err := call(t.Context(), r)
				assert.Equal(t, []string{"a"}, keys)
				assert.Equal(t, row.code, status.Code(err))
				assert.Contains(t, status.Convert(err).Message(), row.text)
				assert.ErrorIs(t, err, grpcretry.ErrLocal)
				assert.NotErrorIs(t, err, io.EOF)
				assert.ErrorContains(t, err, "busy", "law 4: the last real failure is in the chain")
				assert.Len(t, r.server.Attempts(), 1)
				assert.Zero(t, grpcretry.Buffered(r.retrier))
				r.assertOneLedger(t, trailer, err)
			})
		})
	}
}

// TestResumeSameForever: next gets what it asks for, and MaxAttempts ends it; or the
// deadline, where each response counts as progress.
func TestResumeSameForever(t *testing.T) {
	same := func(any) ([]any, error) { return []any{&testv1.Request{Key: "a"}}, nil }
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Resume(same))
		r.server.Script(download, busy.Sent(1).Forever())
		keys, trailer, err := callDownload(t.Context(), r)
		assert.Equal(t, []string{"a", "a", "a"}, keys, "the server began anew each time, as it was asked to")
		assert.ErrorIs(t, err, grpcretry.ErrExhausted)
		r.assertOneLedger(t, trailer, err)

		ctx, cancel := context.WithTimeout(t.Context(), 950*ms)
		defer cancel()
		policy := grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Resume(same), ResetAfter: grpcretry.ResetAfter{Responses: 1}}
		keys, trailer, err = callDownload(ctx, r, grpcretry.WithCallPolicy(policy))
		assert.Len(t, keys, 10)
		assert.ErrorIs(t, err, grpcretry.ErrDeadline)
		assert.Equal(t, []string{"10"}, trailer["jina-client-attempts"])
	})
}

// TestResumeAnswersDuringReplay: what is sent again before the first response is sent to
// its end, though nothing is kept from the response on.
func TestResumeAnswersDuringReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Resume(behind)},
			grpcretry.WithBuffer(grpcretry.Buffer{Memory: 8 << 20}))
		r.server.Script(exchange, busy.Received(200), testserver.Do(func(ss grpc.ServerStream) error {
			if err := ss.SendMsg(&testv1.Response{Key: "early"}); err != nil {
				return err
			}
			time.Sleep(time.Second) // while the pump waits for the window
			for {
				if err := ss.RecvMsg(&testv1.Request{}); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
			}
		}))
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		for i := range 200 {
			require.NoError(t, stream.Send(&testv1.Request{Key: strconv.Itoa(i), Payload: make([]byte, 4<<10)}))
		}
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, "early", response.GetKey())
		require.NoError(t, stream.Send(&testv1.Request{Key: "200"}))
		require.NoError(t, stream.CloseSend())
		_, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, upTo(201), keysOf(r.server.Attempts()[1].Requests))
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
}

// TestResumeSendBetween: what is sent between two attempts follows what next gave.
func TestResumeSendBetween(t *testing.T) {
	bubble(t, func(t *testing.T) {
		greet := func(any) ([]any, error) {
			return []any{&testv1.Request{Key: "hello"}, &testv1.Request{Key: "world"}}, nil
		}
		r := recovering(t, grpcretry.Resume(greet))
		r.server.Script(exchange, busy.Sent(1), testserver.OK())
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		time.AfterFunc(50*ms, func() {
			assert.NoError(t, stream.Send(&testv1.Request{Key: "b"}))
			assert.NoError(t, stream.Send(&testv1.Request{Key: "c"}))
			assert.NoError(t, stream.CloseSend())
		})
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "hello", "world", "b", "c"}, keys)
		r.assertOneLedger(t, trailer, err)
	})
}
