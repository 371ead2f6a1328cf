// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"errors"
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

// acked is an Acked duplex stream.
func acked(t *testing.T, r *rig) testv1.TestService_ExchangeClient {
	t.Helper()
	stream, err := r.Exchange(t.Context())
	require.NoError(t, err)
	return stream
}

// TestAcked: what is answered is forgotten, and what is not is sent again.
func TestAcked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		r.server.Script(exchange, busy.Received(4).Sent(2), busy.Received(2), testserver.OK())
		stream := acked(t, r)
		for _, key := range []string{"a", "b", "c", "d"} {
			require.NoError(t, stream.Send(&testv1.Request{Key: key}))
		}
		for _, key := range []string{"a", "b", "c"} {
			response, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, key, response.GetKey())
		}
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}), "it was answered")
		require.NoError(t, stream.CloseSend())
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"d", "a"}, keys)
		attempts := r.server.Attempts()
		require.Len(t, attempts, 3)
		assert.Equal(t, []string{"c", "d"}, keysOf(attempts[1].Requests))
		assert.Equal(t, []string{"c", "d", "a"}, keysOf(attempts[2].Requests))
		assert.True(t, attempts[2].HalfClosed)
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
}

// TestAckedAllAnswered: a stream that breaks when it owes no answers has its end from
// another attempt, which is sent nothing.
func TestAckedAllAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		r.server.Script(exchange, busy.Sent(3), testserver.OK())
		keys, trailer, err := callExchange(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b", "c"}, keys)
		last := r.server.Attempts()[1]
		assert.Empty(t, last.Requests)
		assert.True(t, last.HalfClosed)
		r.assertOneLedger(t, trailer, err)
	})
}

// TestAckedKeys: every key has a defined outcome.
func TestAckedKeys(t *testing.T) {
	// backwards answers two requests in the opposite order, and some that nobody made.
	backwards := func(ss grpc.ServerStream) error {
		var keys []string
		for range 2 {
			request := &testv1.Request{}
			if err := ss.RecvMsg(request); err != nil {
				return err
			}
			keys = append(keys, request.GetKey())
		}
		for _, key := range []string{keys[1], "unknown", "", keys[1], keys[0]} {
			if err := ss.SendMsg(&testv1.Response{Key: key}); err != nil {
				return err
			}
		}
		return nil
	}
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		r.server.Handle(exchange, backwards)
		stream := acked(t, r)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		require.NoError(t, stream.Send(&testv1.Request{Key: "b"}))
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"b", "unknown", "", "b", "a"}, keys, "what no request waits for is delivered too")
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
	for _, row := range []struct {
		name, key, text string
	}{
		{"repeated", "a", `grpcretry: Acked: the key "a" of the request is that of another, which is not answered yet`},
		{"empty", "", "grpcretry: Acked: the key of the request is empty; a request that has no answer has the key NoAnswer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, grpcretry.Acked(keyOf))
				r.server.Script(exchange, testserver.Hang().Received(1))
				stream := acked(t, r)
				require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
				synctest.Wait()
				err := stream.Send(&testv1.Request{Key: row.key})
				assert.Equal(t, status.New(codes.InvalidArgument, row.text), status.Convert(err))
				_, err = stream.Recv()
				assert.Equal(t, codes.InvalidArgument, status.Code(err))
				assert.ErrorIs(t, stream.Send(&testv1.Request{Key: "b"}), io.EOF)
				assert.Zero(t, grpcretry.Buffered(r.retrier))
				synctest.Wait()
				assert.Equal(t, []string{"a"}, keysOf(r.server.Attempts()[0].Requests))
			})
		})
	}
}

// TestAckedGreeting: a request without an answer stays the first of each attempt.
func TestAckedGreeting(t *testing.T) {
	greeted := func(answers int) func(ss grpc.ServerStream) error {
		return func(ss grpc.ServerStream) error {
			for i := 0; ; i++ {
				request := &testv1.Request{}
				if err := ss.RecvMsg(request); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if i == 0 {
					continue
				}
				if i > answers {
					return status.Error(codes.Unavailable, "busy")
				}
				if err := ss.SendMsg(&testv1.Response{Key: request.GetKey()}); err != nil {
					return err
				}
			}
		}
	}
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(func(m any) string {
			if keyOf(m) == "hello" {
				return grpcretry.NoAnswer
			}
			return keyOf(m)
		}), func(p *grpcretry.Policy) { p.MaxAttempts, p.IdleTimeout = 10, time.Second })
		r.server.Script(exchange, testserver.Do(greeted(3)).Times(3), testserver.Do(greeted(100)))
		stream := acked(t, r)
		require.NoError(t, stream.Send(&testv1.Request{Key: "hello"}))
		for _, key := range upTo(12) {
			require.NoError(t, stream.Send(&testv1.Request{Key: key}))
			response, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, key, response.GetKey())
		}
		time.AfterFunc(time.Hour, func() { assert.NoError(t, stream.CloseSend()) }) // nobody waits for anything
		_, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		for i, a := range r.server.Attempts() {
			assert.Equal(t, "hello", keysOf(a.Requests)[0], "attempt %d", i+1)
		}
		r.assertOneLedger(t, trailer, err)
	})
}

// lateSender sends at once, and returns from that when it is told to.
type lateSender struct {
	grpc.ClientStream

	returns chan struct{}
}

func (s *lateSender) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	<-s.returns
	return err
}

// TestAckedAnsweredBeforeSendReturns: a request whose answer overtakes its Send is not
// sent again, whatever becomes of the attempt.
func TestAckedAnsweredBeforeSendReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		returns := make(chan struct{})
		below := below2(func(stream grpc.ClientStream) grpc.ClientStream { return &lateSender{stream, returns} })
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), below)...))
		r.server.Script(exchange, busy.Sent(1), testserver.OK())
		stream, err := client.Exchange(t.Context())
		require.NoError(t, err)
		go func() {
			assert.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
			assert.NoError(t, stream.CloseSend())
		}()
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, "a", response.GetKey())
		time.AfterFunc(time.Second, func() { close(returns) }) // when the second attempt is under way
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Empty(t, keys)
		assert.Empty(t, r.server.Attempts()[1].Requests)
		r.assertOneLedger(t, trailer, err)
	})
}

// TestAckedOwed: a stream that ends well while it owes answers has not.
func TestAckedOwed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		r.server.Script(exchange, testserver.OK().Received(3).Sent(1))
		keys, trailer, err := callExchange(t.Context(), r)
		assert.Equal(t, []string{"a"}, keys)
		assert.Equal(t, codes.DataLoss, status.Code(err))
		assert.ErrorIs(t, err, grpcretry.ErrNotRetryable)
		assert.ErrorContains(t, err, `grpcretry: Acked: attempt 1 ended well and owed 2 answers, the first of them to the request with the key "b"`)
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
}

// TestAckedAnsweredDuringReplay: what is answered before its turn to be sent again comes
// is not sent, but for what is on its way.
func TestAckedAnsweredDuringReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Acked(keyOf)},
			grpcretry.WithBuffer(grpcretry.Buffer{Memory: 16 << 20}))
		r.server.Script(exchange, busy.Received(100), testserver.Do(func(ss grpc.ServerStream) error {
			for _, key := range upTo(100) { // of what an earlier attempt was sent
				if err := ss.SendMsg(&testv1.Response{Key: key}); err != nil {
					return err
				}
			}
			time.Sleep(time.Second) // the caller has them all
			for {
				if err := ss.RecvMsg(&testv1.Request{}); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
			}
		}))
		stream := acked(t, r)
		for _, key := range upTo(100) {
			require.NoError(t, stream.Send(&testv1.Request{Key: key, Payload: make([]byte, 40<<10)}))
		}
		require.NoError(t, stream.CloseSend())
		keys, _, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, upTo(100), keys)
		assert.Less(t, len(r.server.Attempts()[1].Requests), 60, "as many as went into the windows")
	})
}
