// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// everyShape runs a test for each of the four shapes, in a bubble of its own.
func everyShape(t *testing.T, test func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn)) {
	t.Helper()
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t)
				test(t, s, srv, srv.Dial())
			})
		})
	}
}

func TestDefaultAnswer(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		o := s.call(t.Context(), cc, "a", "b", "c")
		require.NoError(t, o.err)
		want := []string{"a"}
		switch {
		case s.desc.ClientStreams && s.desc.ServerStreams:
			want = []string{"a", "b", "c"}
		case s.desc.ClientStreams:
			want = []string{"c"}
		}
		assert.Equal(t, want, keysOf(o.replies))
		all := srv.Attempts()
		require.Len(t, all, 1)
		assert.True(t, all[0].HalfClosed)
		assert.Equal(t, codes.OK, all[0].Status.Code())
	})
}

func TestFail(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Script(s.method, testserver.Fail(codes.ResourceExhausted, "quota", &errdetails.ErrorInfo{Reason: "R"}).
			RetryInfo(3*time.Second).Pushback("250", "x").Trailer("T", "1"))
		o := s.call(t.Context(), cc, "a")
		st := status.Convert(o.err)
		assert.Equal(t, codes.ResourceExhausted, st.Code())
		assert.Equal(t, "quota", st.Message())
		require.Len(t, st.Details(), 2)
		assert.Equal(t, "R", st.Details()[0].(*errdetails.ErrorInfo).GetReason())
		assert.Equal(t, 3*time.Second, st.Details()[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
		assert.Equal(t, []string{"250", "x"}, o.trailer.Get("grpc-retry-pushback-ms"))
		assert.Equal(t, []string{"1"}, o.trailer.Get("t"))
		assert.Equal(t, []string{"application/grpc"}, o.trailer.Get("content-type"), "trailers-only")
		assert.Nil(t, o.header)
		assert.Empty(t, o.replies)

		all := srv.Attempts(s.method)
		require.Len(t, all, 1)
		assert.Equal(t, codes.ResourceExhausted, all[0].Status.Code())
		assert.Empty(t, all[0].Requests)
		assert.NoError(t, s.call(t.Context(), cc, "a").err, "the script is used up")
	})
}

func TestHeaders(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Script(s.method,
			testserver.Fail(codes.Aborted, "").Header("k", "1", "k", "2"),
			testserver.Fail(codes.Aborted, "").SendHeader("k", "3").Header("k", "4"),
			testserver.OK().Header("k", "5").Trailer("t", "6"))
		o := s.call(t.Context(), cc, "a")
		assert.Equal(t, codes.Aborted, status.Code(o.err))
		assert.Equal(t, []string{"1", "2"}, o.header.Get("k"))
		assert.Empty(t, o.trailer.Get("content-type"), "not trailers-only")
		assert.Equal(t, []string{"3", "4"}, s.call(t.Context(), cc, "a").header.Get("k"))
		o = s.call(t.Context(), cc, "a")
		require.NoError(t, o.err)
		assert.Equal(t, []string{"5"}, o.header.Get("k"))
		assert.Equal(t, []string{"6"}, o.trailer.Get("t"))
	})
}

// SendHeader must reach the client while the attempt still hangs.
func TestSendHeaderAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.Hang().SendHeader("k", "1"))
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := testv1.NewTestServiceClient(srv.Dial()).Exchange(ctx)
		require.NoError(t, err)
		header, err := stream.Header()
		require.NoError(t, err)
		assert.Equal(t, []string{"1"}, header.Get("k"))
		cancel()
		all := srv.Await(t, testserver.Ended(1))
		assert.True(t, all[0].Cancelled)
	})
}

func TestDelay(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Script(s.method, testserver.OK().Delay(3*time.Second).Times(2))
		start := time.Now()
		require.NoError(t, s.call(t.Context(), cc, "a").err)
		assert.Equal(t, 3*time.Second, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(s.call(ctx, cc, "a").err))
		assert.Equal(t, 4*time.Second, time.Since(start))
		all := srv.Await(t, testserver.Ended(2))
		assert.False(t, all[0].Cancelled)
		assert.True(t, all[0].Deadline.IsZero())
		assert.True(t, all[1].Cancelled)
		assert.Empty(t, all[1].Requests)
		assert.Equal(t, time.Second, all[1].Deadline.Sub(all[1].Start))
	})
}

// Received reads before the step goes on, and takes nothing from the handler.
func TestReceived(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Script(s.method, testserver.Fail(codes.Aborted, "").Received(1), testserver.OK().Received(1), testserver.OK().Received(4))
		assert.Equal(t, codes.Aborted, status.Code(s.call(t.Context(), cc, "a", "b").err))
		o := s.call(t.Context(), cc, "a", "b")
		require.NoError(t, o.err)
		last := "a"
		if s.desc.ClientStreams {
			last = "b"
		}
		assert.Equal(t, last, o.replies[len(o.replies)-1].GetKey())
		o = s.call(t.Context(), cc, "a", "b")
		assert.Equal(t, codes.Internal, status.Code(o.err))
		assert.ErrorContains(t, o.err, "the step waits for 4 requests, the client half-closed after")

		all := srv.Attempts()
		require.Len(t, all, 3)
		require.Len(t, all[0].Requests, 1)
		assert.Equal(t, "a", all[0].Requests[0].(*testv1.Request).GetKey())
	})
}

func TestDo(t *testing.T) {
	everyShape(t, func(t *testing.T, s shape, srv *testserver.Server, cc *grpc.ClientConn) {
		srv.Script(s.method,
			testserver.Do(answers(1)),
			testserver.Do(func(grpc.ServerStream) error { return context.DeadlineExceeded }))
		o := s.call(t.Context(), cc, "a")
		require.NoError(t, o.err)
		assert.Equal(t, []string{"1"}, keysOf(o.replies))
		assert.Equal(t, []string{"done"}, o.trailer.Get("handler"))
		assert.Equal(t, codes.DeadlineExceeded, status.Code(s.call(t.Context(), cc, "a").err))
		assert.Equal(t, codes.DeadlineExceeded, srv.Attempts()[1].Status.Code())
	})
}

// A step is a value: what is made from it leaves it as it was.
func TestStepIsImmutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		base := testserver.Fail(codes.Aborted, "").Trailer("k", "base").Details(&errdetails.ErrorInfo{})
		one := base.Trailer("k", "one").RetryInfo(time.Second)
		two := base.Trailer("k", "two").Times(2)
		srv.Script("", one, two, base)
		cc := srv.Dial()
		want := [][]string{{"base", "one"}, {"base", "two"}, {"base", "two"}, {"base"}}
		for i, values := range want {
			o := shapes[0].call(t.Context(), cc, "a")
			assert.Equal(t, values, o.trailer.Get("k"))
			details := 1
			if i == 0 {
				details = 2
			}
			assert.Len(t, status.Convert(o.err).Details(), details)
		}
	})
}
