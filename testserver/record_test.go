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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		start := time.Now()
		srv.Script("", testserver.OK().Received(2).Trailer("k", "v"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "k", "1", "k", "2", "grpc-previous-rpc-attempts", "3")
		stream, err := testv1.NewTestServiceClient(srv.Dial()).Upload(ctx)
		require.NoError(t, err)
		sent := []*testv1.Request{{Key: "a"}, {Key: "b", Payload: []byte("x")}, {}}
		for _, m := range sent {
			time.Sleep(time.Second) // virtual
			require.NoError(t, stream.Send(m))
		}
		running := srv.Await(t, func(all []testserver.Attempt) bool { return len(all) == 1 && len(all[0].Requests) == 3 })[0]
		assert.True(t, running.End.IsZero())
		assert.False(t, running.HalfClosed)
		assert.Nil(t, running.Status)

		_, err = stream.CloseAndRecv()
		require.NoError(t, err)
		a := srv.Attempts()[0]
		assert.Equal(t, testv1.TestService_Upload_FullMethodName, a.Method)
		assert.Equal(t, 1, a.Number)
		assert.Equal(t, 3, a.PreviousAttempts)
		assert.Equal(t, start, a.Start)
		assert.Equal(t, start.Add(3*time.Second), a.End)
		assert.Equal(t, start.Add(time.Minute), a.Deadline)
		assert.Equal(t, []string{"1", "2"}, a.Metadata.Get("k"))
		assert.True(t, a.HalfClosed)
		assert.False(t, a.Cancelled)
		assert.Equal(t, codes.OK, a.Status.Code())
		require.Len(t, a.Requests, 3)
		for i := range sent {
			assert.True(t, proto.Equal(sent[i], a.Requests[i]))
		}
		assert.Len(t, running.Requests, 3, "a snapshot stays as it was")
		assert.Equal(t, `#1 /grpcretry.test.v1.TestService/Upload previous=3 requests=3 half-closed OK "" after 3s`, a.String())
	})
}

func TestRecordOfPreviousAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		client := testv1.NewTestServiceClient(srv.Dial())
		values := [][]string{nil, {"0"}, {"12"}, {"x"}, {"-1"}, {"1", "2"}}
		for _, vs := range values {
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"grpc-previous-rpc-attempts": vs})
			_, err := client.Read(ctx, &testv1.Request{})
			require.NoError(t, err)
		}
		var got []int
		for _, a := range srv.Attempts() {
			got = append(got, a.PreviousAttempts)
		}
		assert.Equal(t, []int{-1, 0, 12, -1, -1, -1}, got)
	})
}

func TestAwaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.Hang())
		ctx, cancel := context.WithCancel(t.Context())
		go shapes[0].call(ctx, srv.Dial(), "a")
		srv.Await(t, testserver.Begun(1))
		start := time.Now()
		text := failure(t, func(tb testing.TB) { srv.Await(tb, testserver.Ended(1)) })
		assert.Equal(t, 30*time.Second, time.Since(start))
		assert.Contains(t, text, "not so after 30s")
		assert.Contains(t, text, "#1 /grpcretry.test.v1.TestService/Read previous=-1 requests=0 running")
		cancel()
	})
}
