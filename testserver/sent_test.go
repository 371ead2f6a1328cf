// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func TestSent(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Handle(s.method, answers(s.most(3)))
		srv.Script(s.method, testserver.Fail(codes.Aborted, "bug").Sent(s.most(2)), testserver.Fail(codes.Aborted, "bug").Sent(0))
		o := s.call(t.Context(), cc, "a")
		if s.desc.ServerStreams {
			assert.Equal(t, []string{"1", "2"}, keysOf(o.replies))
		}
		assert.Equal(t, "bug", status.Convert(o.err).Message())
		assert.NotNil(t, o.header)
		o = s.call(t.Context(), cc, "a")
		assert.Empty(t, o.replies)
		assert.Equal(t, "bug", status.Convert(o.err).Message())
		assert.Nil(t, o.header)
	})
}

// answers returns a handler that reads a request and sends n responses.
func answers(n int) func(grpc.ServerStream) error {
	return func(stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&testv1.Request{}); err != nil {
			return err
		}
		for i := range n {
			if err := stream.SendMsg(&testv1.Response{Key: string(rune('1' + i))}); err != nil {
				return err
			}
		}
		stream.SetTrailer(metadata.Pairs("handler", "done"))
		return nil
	}
}

// The attempt ends with the n-th response, also where the handler would wait for
// another request, and whatever it does in goroutines of its own.
func TestSentDoesNotWaitForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Handle(testv1.TestService_Exchange_FullMethodName, func(stream grpc.ServerStream) error {
			read := make(chan error, 1)
			go func() {
				var err error
				for err == nil {
					err = stream.RecvMsg(&testv1.Request{})
				}
				read <- err
			}()
			if err := stream.SendMsg(&testv1.Response{Key: "1"}); err != nil {
				<-read
				return err
			}
			return <-read
		})
		srv.Script("", testserver.Fail(codes.Aborted, "now").Sent(1))
		stream, err := testv1.NewTestServiceClient(srv.Dial()).Exchange(t.Context())
		require.NoError(t, err)
		reply, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, "1", reply.GetKey())
		_, err = stream.Recv()
		assert.Equal(t, "now", status.Convert(err).Message())
	})
}

// The handler does not go on past its n-th response.
func TestSentHaltsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		after := make(chan error, 1)
		srv.Handle(shapes[1].method, func(stream grpc.ServerStream) error {
			err := stream.SendMsg(&testv1.Response{})
			after <- err
			return err
		})
		srv.Script("", testserver.Hang().Sent(1))
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := testv1.NewTestServiceClient(srv.Dial()).Download(ctx, &testv1.Request{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		synctest.Wait()
		assert.Empty(t, after)
		cancel()
		assert.Equal(t, codes.Aborted, status.Code(<-after))
	})
}

func TestSentTooFew(t *testing.T) {
	for name, step := range map[string]testserver.Step{
		"halted":  testserver.Cut().Sent(2),
		"applied": testserver.Fail(codes.Aborted, "").Applied().Sent(2),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t)
				srv.Script("", step)
				o := shapes[1].call(t.Context(), srv.Dial(), "a")
				assert.Equal(t, codes.Internal, status.Code(o.err))
				assert.ErrorContains(t, o.err, "the step sends 2 responses, the handler ended after 1")
			})
		})
	}
}

func TestApplied(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		var applied atomic.Int32
		srv.Handle(s.method, func(stream grpc.ServerStream) error {
			defer applied.Add(1)
			return answers(s.most(3))(stream)
		})
		srv.Script(s.method,
			testserver.Fail(codes.Unavailable, "gone").Applied(),
			testserver.Fail(codes.Unavailable, "gone").Applied().Sent(1),
			testserver.Hang().Applied())
		o := s.call(t.Context(), cc, "a")
		assert.Equal(t, codes.Unavailable, status.Code(o.err))
		assert.Nil(t, o.header)
		assert.Empty(t, o.replies)
		assert.Empty(t, o.trailer.Get("handler"))
		assert.EqualValues(t, 1, applied.Load())

		o = s.call(t.Context(), cc, "a")
		assert.Equal(t, codes.Unavailable, status.Code(o.err))
		assert.NotNil(t, o.header)
		if s.desc.ServerStreams {
			assert.Equal(t, []string{"1"}, keysOf(o.replies))
		}
		assert.EqualValues(t, 2, applied.Load())

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(s.call(ctx, cc, "a").err))
		assert.EqualValues(t, 3, applied.Load())
	})
}

func TestHang(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Handle(s.method, answers(s.most(2)))
		srv.Script(s.method, testserver.Hang(), testserver.Hang().Sent(1))
		for i := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			o := s.call(ctx, cc, "a")
			cancel()
			assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
			if s.desc.ServerStreams {
				assert.Len(t, o.replies, i)
			}
			a := srv.Await(t, testserver.Ended(i+1))[i]
			assert.True(t, a.Cancelled)
			assert.Equal(t, time.Hour, a.End.Sub(a.Start))
		}
	})
}
