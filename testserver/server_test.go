// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func TestRestart(t *testing.T) {
	bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
		addr := srv.Addr()
		srv.Script("", testserver.Hang(), testserver.Fail(codes.Aborted, "still scripted"))
		cc := srv.Dial(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: time.Minute,
		}))
		failed := make(chan error, 1)
		go func() { failed <- shapes[0].call(t.Context(), cc, "a").err }()
		srv.Await(t, testserver.Begun(1))
		srv.Stop()
		srv.Stop()
		assert.Equal(t, codes.Unavailable, status.Code(<-failed))
		assert.Equal(t, codes.Unavailable, status.Code(shapes[0].call(t.Context(), cc, "a").err))
		a := srv.Await(t, testserver.Ended(1))[0]
		assert.True(t, a.Cancelled)

		require.NoError(t, srv.Start())
		assert.ErrorContains(t, srv.Start(), "the server is not stopped")
		assert.Equal(t, addr, srv.Addr())
		client := testv1.NewTestServiceClient(cc)
		_, err := client.Read(t.Context(), &testv1.Request{}, grpc.WaitForReady(true))
		assert.Equal(t, codes.Aborted, status.Code(err))
		_, err = client.Read(t.Context(), &testv1.Request{}, grpc.WaitForReady(true))
		require.NoError(t, err)
		assert.Len(t, srv.Attempts(), 3)
	})
}

func TestStoppedPortRefuses(t *testing.T) {
	srv := testserver.New(t, testserver.TCP())
	nc, err := net.Dial("tcp", srv.Addr())
	require.NoError(t, err)
	require.NoError(t, nc.Close())
	srv.Stop()
	_, err = net.Dial("tcp", srv.Addr())
	require.Error(t, err)
	require.NoError(t, srv.Start())
	srv.Close()
	srv.Close()
	_, err = net.Dial("tcp", srv.Addr())
	require.Error(t, err)
	assert.ErrorContains(t, srv.Start(), "the server is closed")
}

func TestGracefulStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.OK().Delay(time.Minute))
		cc := srv.Dial()
		answered := make(chan error, 1)
		go func() { answered <- shapes[0].call(t.Context(), cc, "a").err }()
		srv.Await(t, testserver.Begun(1))
		start := time.Now()
		srv.GracefulStop()
		assert.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, <-answered)
		assert.Equal(t, codes.Unavailable, status.Code(shapes[0].call(t.Context(), cc, "a").err))
		require.NoError(t, srv.Start())
	})
}

// A stop that waits for a call that never ends is cut short by another.
func TestStopCutsGracefulStopShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.Hang())
		cc := srv.Dial()
		go shapes[0].call(t.Context(), cc, "a")
		srv.Await(t, testserver.Begun(1))
		stopped := make(chan struct{})
		go func() {
			srv.GracefulStop()
			close(stopped)
		}()
		synctest.Wait()
		srv.Stop()
		<-stopped
		require.NoError(t, srv.Start())
	})
}

// A handler may stop the server that it runs on.
func TestStopFromHandler(t *testing.T) {
	bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
		srv.Script("", testserver.Do(func(grpc.ServerStream) error {
			srv.Stop()
			return nil
		}))
		assert.Equal(t, codes.Unavailable, status.Code(shapes[0].call(t.Context(), srv.Dial(), "a").err))
		srv.Await(t, testserver.Ended(1))
		require.NoError(t, srv.Start())
	})
}

func TestCloseWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.Do(func(stream grpc.ServerStream) error {
			<-stream.Context().Done()
			time.Sleep(time.Second) // virtual
			return nil
		}))
		go shapes[0].call(t.Context(), srv.Dial(), "a")
		srv.Await(t, testserver.Begun(1))
		srv.Stop()
		require.NoError(t, srv.Start())
		assert.True(t, srv.Attempts()[0].End.IsZero())
		srv.Close()
		a := srv.Attempts()[0]
		assert.Equal(t, time.Second, a.End.Sub(a.Start))
	})
}

func TestCloseReportsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		text := failure(t, func(tb testing.TB) {
			srv := testserver.New(tb)
			srv.Script("", testserver.Do(func(grpc.ServerStream) error {
				<-release
				return nil
			}))
			cc := srv.Dial()
			go shapes[0].call(context.Background(), cc, "a")
			srv.Await(tb, testserver.Begun(1))
		})
		assert.Contains(t, text, "handlers still run after 30s")
		assert.Contains(t, text, "TestService/Read previous=-1 requests=0 running")
		close(release)
	})
}

func TestServerOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.ServerOptions(grpc.MaxRecvMsgSize(100)),
			testserver.ServerOptions(grpc.MaxConcurrentStreams(7), grpc.UnknownServiceHandler(nil)))
		client := testv1.NewTestServiceClient(srv.Dial())
		_, err := client.Read(t.Context(), &testv1.Request{Payload: make([]byte, 200)})
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		_, err = client.Read(t.Context(), &testv1.Request{Payload: make([]byte, 20)})
		assert.NoError(t, err)
	})
}

// DialOptions and Target are enough for grpc.NewClient.
func TestDialOptions(t *testing.T) {
	bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
		cc, err := grpc.NewClient(srv.Target(), srv.DialOptions()...)
		require.NoError(t, err)
		defer cc.Close()
		assert.NoError(t, shapes[0].call(t.Context(), cc, "a").err)
	})
}
