// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// shouting is a stream that changes what is sent.
type shouting struct {
	grpc.ClientStream
}

func (s shouting) SendMsg(m any) error {
	request := m.(*testv1.Request)
	loud := proto.CloneOf(request)
	loud.Key = strings.ToUpper(loud.GetKey())
	return s.ClientStream.SendMsg(loud)
}

// TestSendAllBelowOthers holds that a source is not run again where an interceptor
// given before the suite's changes what is sent, but that its errors still end the
// call.
func TestSendAllBelowOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		outer := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, opts...)
			return shouting{stream}, err
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append([]grpc.DialOption{outer}, r.retrier.DialOptions()...)...))
		r.server.Script(upload, busy.Received(3))
		answer, sendErr, err := sendSources(t.Context(), client, runs("abc"))
		require.NoError(t, errors.Join(sendErr, err))
		assert.Equal(t, "C", answer.GetKey())
		assert.Equal(t, []string{"ABC", "ABC"}, received(r.server.Attempts()))

		_, sendErr, err = sendSources(t.Context(), client, runs("a!"))
		assert.Equal(t, errBroken, sendErr)
		assert.Equal(t, errBroken, err)
		assert.True(t, r.server.Await(t, testserver.Ended(3))[2].Cancelled)
	})
}

// oldStub is the stream of a stub that was generated before gRPC had generic ones, or
// one of somebody's own who changes what is sent: nobody can tell.
type oldStub struct {
	grpc.ClientStream
}

func (s *oldStub) Send(m *testv1.Request) error { return s.SendMsg(m) }
func (s *oldStub) SendMsg(m any) error          { return shouting{s.ClientStream}.SendMsg(m) }

func TestSendAllOfOldStubs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(exchange, busy.Received(3))
		conn := r.server.Dial(r.retrier.DialOptions()...)
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchange)
		require.NoError(t, err)
		require.NoError(t, grpcretry.SendAll(&oldStub{stream}, runs("abc")))
		require.NoError(t, stream.CloseSend())
		require.NoError(t, stream.RecvMsg(&testv1.Response{}))
		for stream.RecvMsg(&testv1.Response{}) == nil {
			continue
		}
		assert.Equal(t, []string{"ABC", "ABC"}, received(r.server.Attempts()))
	})
}

// ring is a stream made of itself.
type ring struct {
	grpc.ClientStream
}

func (*ring) SendMsg(any) error          { return io.EOF }
func (*ring) Send(*testv1.Request) error { return io.EOF }

// TestSendAllWithoutUs holds that SendAll just sends where there is no Retrier.
func TestSendAllWithoutUs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		plain := testv1.NewTestServiceClient(r.server.Dial())
		for _, source := range []grpcretry.Source[*testv1.Request]{once("abc"), runs("abc")} {
			answer, sendErr, err := sendSources(t.Context(), plain, source)
			require.NoError(t, errors.Join(sendErr, err))
			assert.Equal(t, "c", answer.GetKey())
		}
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := r.Upload(ctx, grpcretry.Disable())
		require.NoError(t, err)
		assert.Equal(t, errBroken, grpcretry.SendAll(stream, runs("a!")))
		cancel()

		r.server.Script(exchange, busy)
		duplex, err := plain.Exchange(t.Context())
		require.NoError(t, err)
		_, err = duplex.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err))
		assert.NoError(t, grpcretry.SendAll(duplex, runs("abc")), "Recv had the outcome")
		self := &ring{}
		self.ClientStream = self
		assert.NoError(t, grpcretry.SendAll(self, runs("abc")))
		assert.NoError(t, grpcretry.SendAll(&ring{}, runs("abc")))
	})
}

func TestSendAllMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		assert.EqualError(t, grpcretry.SendAll[*testv1.Request](nil, once("a")), "grpcretry: SendAll: the stream is nil")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.Upload(ctx)
		require.NoError(t, err)
		for _, source := range []grpcretry.Source[*testv1.Request]{
			{}, grpcretry.Once[*testv1.Request](nil), grpcretry.Replayable[*testv1.Request](nil),
		} {
			assert.ErrorContains(t, grpcretry.SendAll(stream, source), "the source is nothing")
		}
	})
}
