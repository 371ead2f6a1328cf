// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"strconv"
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

const ms = time.Millisecond

// keyOf is the key of requests and responses.
func keyOf(message any) string { return message.(interface{ GetKey() string }).GetKey() }

// recovering is a rig whose streams are repeated and recovered.
func recovering(t *testing.T, recovery grpcretry.Recovery, change ...func(*grpcretry.Policy)) *rig {
	t.Helper()
	p := grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: recovery}
	for _, f := range change {
		f(&p)
	}
	return newRig(t, p)
}

// numbers makes a Download answer with the numbers from that in the request's sequence
// up to some number, and then fail where it is told to.
func numbers(to int, failAfter ...int) func(grpc.ServerStream) error {
	attempt := 0
	return func(ss grpc.ServerStream) error {
		request := &testv1.Request{}
		if err := ss.RecvMsg(request); err != nil {
			return err
		}
		limit := to
		if attempt < len(failAfter) {
			limit = failAfter[attempt]
		}
		attempt++
		sent := 0
		for i := int(request.GetSequence()); i < to; i++ {
			if sent == limit {
				return status.Error(codes.Unavailable, "busy")
			}
			if err := ss.SendMsg(&testv1.Response{Key: strconv.Itoa(i), Sequence: int64(i)}); err != nil {
				return err
			}
			sent++
		}
		if sent == limit && limit < to {
			return status.Error(codes.Unavailable, "busy")
		}
		return nil
	}
}

func upTo(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	return keys
}

// TestRecoveryAfterHeader: the header that was asked for is no obstacle.
func TestRecoveryAfterHeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, recovery := range map[string]grpcretry.Recovery{"Skip": grpcretry.Skip(nil), "Resume": grpcretry.Resume(behind), "Acked": grpcretry.Acked(keyOf)} {
			r := recovering(t, recovery)
			r.server.Script(exchange, busy.Delay(10*ms).SendHeader("h", "1"), testserver.OK().SendHeader("h", "2"))
			stream := acked(t, r)
			require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
			header, err := stream.Header()
			require.NoError(t, err)
			assert.Equal(t, []string{"1"}, header["h"])
			_, err = stream.Recv()
			require.NoError(t, err, name)
			header, err = stream.Header()
			require.NoError(t, err)
			assert.Equal(t, []string{"2"}, header["h"])
			require.NoError(t, stream.CloseSend())
			_, trailer, err := receiveAll(stream)
			require.NoError(t, err)
			r.assertOneLedger(t, trailer, err)
		}
	})
}

// TestRecoveryAndContext: Context commits, and Skip still drops what it was dropping.
func TestRecoveryAndContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []string
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Skip(nil)}, commits(&causes))
		r.server.Handle(download, func(ss grpc.ServerStream) error {
			for i, key := range upTo(6) {
				if i == 3 && grpcretry.PreviousAttempts(ss.Context()) == 0 || i == 5 {
					return status.Error(codes.Unavailable, "busy")
				}
				time.Sleep(10 * ms)
				_ = ss.SendMsg(&testv1.Response{Key: key})
			}
			return nil
		})
		stream, err := r.Download(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		time.AfterFunc(145*ms, func() { stream.Context() }) // while the second attempt is at its second response
		keys, _, err := receiveAll(stream)
		synctest.Wait()
		assert.Equal(t, upTo(5), keys)
		assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		assert.ErrorContains(t, err, "Context was called")
		assert.Equal(t, []string{"Context was called"}, causes)
		assert.Len(t, r.server.Attempts(), 2)
		assert.Zero(t, grpcretry.Buffered(r.retrier))
	})
}

// TestRecoveryFreesAtCommit holds law 9: a stream that is committed keeps nothing.
func TestRecoveryFreesAtCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, recovery := range recoveries {
			r := recovering(t, recovery)
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			for range 2 {
				for _, key := range []string{"a", "b"} {
					require.NoError(t, stream.Send(&testv1.Request{Key: key}))
				}
				_, err = stream.Recv()
				require.NoError(t, err)
				assert.Positive(t, grpcretry.Buffered(r.retrier), name)
				_, err = stream.Recv()
				require.NoError(t, err)
			}
			stream.Context()
			require.NoError(t, stream.Send(&testv1.Request{Key: "c"}))
			_, err = stream.Recv()
			require.NoError(t, err)
			assert.Zero(t, grpcretry.Buffered(r.retrier), name)
			require.NoError(t, stream.CloseSend())
			_, _, err = receiveAll(stream)
			require.NoError(t, err)
		}
	})
}

// TestRecoveryNeedsRepeat holds law 7 for streams that were begun.
func TestRecoveryNeedsRepeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Recovery: grpcretry.Acked(keyOf)})
		r.server.Script(exchange, busy.Sent(1).Forever())
		_, _, err := callExchange(t.Context(), r)
		assert.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
		assert.ErrorContains(t, err, "grpcretry.test.v1.TestService/Exchange has no idempotency_level; set Policy.Repeat in WithPolicy")
	})
}

// TestWithRecovery: the call's own counts, whatever policy it has.
func TestWithRecovery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		own := grpcretry.WithCallPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways})
		for _, opts := range [][]grpc.CallOption{
			{grpcretry.WithRecovery(grpcretry.Skip(nil)), own},
			{own, grpcretry.WithRecovery(grpcretry.Skip(nil))},
			{grpcretry.WithRecovery(grpcretry.Recovery{}), grpcretry.WithRecovery(grpcretry.Skip(nil))},
		} {
			r.server.Script(download, busy.Sent(1), testserver.OK())
			keys, _, err := callDownload(t.Context(), r, opts...)
			require.NoError(t, err)
			assert.Equal(t, []string{"a"}, keys)
		}
		r.server.Script(exchange, busy.Sent(1), testserver.OK())
		_, _, err := callExchange(t.Context(), r, grpcretry.WithRecovery(grpcretry.Recovery{}))
		assert.ErrorIs(t, err, grpcretry.ErrCommitted, "the zero Recovery commits")

		r.server.Script(download, busy.Sent(1), testserver.OK())
		_, _, err = callDownload(t.Context(), r, grpcretry.WithRecovery(grpcretry.Skip(nil)), grpcretry.Disable())
		assert.Equal(t, "busy", status.Convert(err).Message())

		_, err = r.Put(t.Context(), &testv1.Request{}, grpcretry.WithRecovery(grpcretry.Skip(nil)))
		assert.NoError(t, err, "unary calls do not look at it")
		_, _, err = callUpload(t.Context(), r, grpcretry.WithRecovery(grpcretry.Skip(nil)))
		assert.NoError(t, err, "a client stream has nothing to skip")
	})
}

// TestRecoveryRefused: what cannot be is refused by New, or before the first attempt.
func TestRecoveryRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Acked(keyOf))
		for _, row := range []struct {
			call func(context.Context, testv1.TestServiceClient, ...grpc.CallOption) ([]string, metadata.MD, error)
			opts []grpc.CallOption
			text string
		}{
			{callDownload, nil, "grpcretry: the policy in WithPolicy: Recovery is Acked; it is for duplex streams, and grpcretry.test.v1.TestService/Download is a server stream"},
			{callUpload, nil, "grpcretry: the policy in WithPolicy: Recovery is Acked; it is for duplex streams, and grpcretry.test.v1.TestService/Upload is a client stream"},
			{callUpload, []grpc.CallOption{grpcretry.WithRecovery(grpcretry.Resume(behind))}, "grpcretry: WithRecovery: Recovery is Resume; it is for streams of responses, and grpcretry.test.v1.TestService/Upload is a client stream"},
			{callExchange, []grpc.CallOption{grpcretry.WithRecovery(grpcretry.Acked(nil))}, "grpcretry: WithRecovery: Recovery is Acked(nil); it must be given a function"},
			{callExchange, []grpc.CallOption{grpcretry.WithRecovery(grpcretry.Resume(nil))}, "grpcretry: WithRecovery: Recovery is Resume(nil); it must be given a function"},
			{callExchange, []grpc.CallOption{grpcretry.WithCallPolicy(grpcretry.Policy{Recovery: grpcretry.Resume(nil)})}, "grpcretry: WithCallPolicy: Recovery is Resume(nil); it must be given a function"},
		} {
			_, _, err := row.call(t.Context(), r, row.opts...)
			assert.Equal(t, status.New(codes.Internal, row.text), status.Convert(err))
		}
		assert.Empty(t, r.server.Attempts())
	})
	_, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{Recovery: grpcretry.Acked(nil), ResetAfter: grpcretry.ResetAfter{Responses: -1, Quiet: -1}}),
		grpcretry.WithMethodPolicy(put, grpcretry.Policy{Recovery: grpcretry.Skip(nil)}),
		grpcretry.WithMethodPolicy(download, grpcretry.Policy{Recovery: grpcretry.Acked(keyOf)}),
		grpcretry.WithMethodPolicy(upload, grpcretry.Policy{Recovery: grpcretry.Resume(behind)}),
	)
	for _, text := range []string{
		"WithPolicy: Recovery is Acked(nil); it must be given a function",
		"WithPolicy: ResetAfter.Responses is -1; it must not be negative",
		"WithPolicy: ResetAfter.Quiet is -1ns; it must not be negative",
		`WithMethodPolicy("/grpcretry.test.v1.TestService/Put"): Recovery is Skip; it is for streams, and grpcretry.test.v1.TestService/Put is unary`,
		"Recovery is Acked; it is for duplex streams, and grpcretry.test.v1.TestService/Download is a server stream",
		"Recovery is Resume; it is for streams of responses, and grpcretry.test.v1.TestService/Upload is a client stream",
	} {
		assert.ErrorContains(t, err, text)
	}
	_, err = grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{Recovery: grpcretry.Skip(nil), ResetAfter: grpcretry.ResetAfter{Responses: 1}}),
		grpcretry.WithChannelRetry(download),
	)
	assert.ErrorContains(t, err, "Recovery is Skip; it must not be set: gRPC's own retry has nothing of the kind")
	assert.ErrorContains(t, err, "ResetAfter is {1 0s}; it must not be set")
}
