// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// Scripts come before the gateway, and records tell what reached it.
func TestScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/e", suffixed("1"))
		g.Script(jinapb.JinaSingleDataRequestRPC_ProcessSingleData_FullMethodName,
			testserver.Fail(codes.Unavailable, "busy"), testserver.OK())
		g.Script(jinapb.JinaRPC_Call_FullMethodName,
			testserver.Fail(codes.Unavailable, "half").Sent(2), testserver.Cut().Sent(1), testserver.Hang().Received(1))
		cc := g.Dial()
		assert.Equal(t, codes.Unavailable, status.Code(single(t.Context(), cc, request("1", "/e", "d")).err))
		assert.Equal(t, []string{"d1"}, texts(t, single(t.Context(), cc, request("1", "/e", "d")).answers[0]))

		in := []*jinapb.DataRequestProto{request("1", "/e", "d"), request("2", "/e", "d"), request("3", "/e", "d")}
		o := call(t.Context(), cc, []string{ordered, "true"}, in...)
		assert.Equal(t, "half", status.Convert(o.err).Message())
		assert.Equal(t, []string{"1", "2"}, ids(o.answers))
		o = call(t.Context(), cc, []string{ordered, "true"}, in...)
		assert.Equal(t, codes.Unavailable, status.Code(o.err))
		assert.Equal(t, []string{"1"}, ids(o.answers))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o = call(ctx, cc, nil, in...)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
		o = call(t.Context(), cc, []string{ordered, "true"}, in...)
		require.NoError(t, o.err)
		assert.Equal(t, []string{"1", "2", "3"}, ids(o.answers))
		all := g.Attempts(jinapb.JinaRPC_Call_FullMethodName)
		assert.Len(t, all, 4)
		assert.Len(t, all[3].Requests, 3)
	})
}

// The server goes away with its handlers, and comes back with its executors.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/slow", slow)
		cc := g.Dial()
		done := make(chan outcome, 1)
		go func() { done <- call(t.Context(), cc, nil, request("1", "/slow", "1h")) }()
		g.Await(t, testserver.Begun(1))
		g.Stop()
		assert.Equal(t, codes.Unavailable, status.Code((<-done).err))
		require.NoError(t, g.Start())
		answer, err := jinapb.NewJinaSingleDataRequestRPCClient(cc).ProcessSingleData(t.Context(),
			request("1", "/slow", "1s"), grpc.WaitForReady(true))
		require.NoError(t, err)
		assert.Equal(t, "1", answer.GetHeader().GetRequestId())
	})
}

func TestTCP(t *testing.T) {
	g := jinatest.New(t, testserver.TCP())
	g.Handle("a", "/e", suffixed("1"))
	cc := g.Dial()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	o := single(ctx, cc, request("1", "/e", "d"))
	require.NoError(t, o.err)
	assert.Equal(t, []string{"d1"}, texts(t, o.answers[0]))
	var in []*jinapb.DataRequestProto
	for range 100 {
		in = append(in, request("1", "/e", "d"))
	}
	o = call(ctx, cc, []string{window, "3"}, in...)
	require.NoError(t, o.err)
	assert.Len(t, o.answers, 100)
}

// A request keeps the executors that there were when it came.
func TestHandleMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/e", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			g.Handle("b", "/e", suffixed("new"))
			g.Handle("c", "/e", suffixed("c"))
			return nil, nil
		})
		g.Handle("b", "/e", suffixed("old"))
		cc := g.Dial()
		assert.Equal(t, []string{"dold"}, texts(t, single(t.Context(), cc, request("1", "/e", "d")).answers[0]))
		assert.Equal(t, []string{"dnewc"}, texts(t, single(t.Context(), cc, request("1", "/e", "d")).answers[0]))
	})
}

// Executors may come while requests are under way.
func TestHandleWhileServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		cc := g.Dial()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { assert.NoError(t, single(t.Context(), cc, request("1", "/e", "d")).err) })
			all.Go(func() { g.Handle("a", "/e", suffixed("1")) })
		}
		all.Wait()
		assert.Equal(t, []string{"d1"}, texts(t, single(t.Context(), cc, request("1", "/e", "d")).answers[0]))
	})
}

// What a gateway does not have is not made up by the server.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := jinatest.New(t).Dial()
		for _, method := range []string{
			jinapb.JinaExecutorSnapshot_Snapshot_FullMethodName,
			jinapb.JinaExecutorSnapshotProgress_SnapshotStatus_FullMethodName,
			jinapb.JinaExecutorRestore_Restore_FullMethodName,
			jinapb.JinaExecutorRestoreProgress_RestoreStatus_FullMethodName,
			jinapb.JinaSingleDocumentRequestRPC_StreamDoc_FullMethodName,
		} {
			err := cc.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
			assert.Equal(t, codes.Unimplemented, status.Code(err), method)
		}
	})
}

var mistakes = map[string]struct {
	executor, endpoint string
	handler            jinatest.Handler
	text               string
}{
	"name":     {"", "/e", suffixed(""), `Handle: endpoint "/e": the name of the executor is empty`},
	"nil":      {"a", "/e", nil, `Handle: executor "a", endpoint "/e": the handler is nil`},
	"executor": {"a\xff", "/e", suffixed(""), `Handle: executor "a\xff", endpoint "/e": not valid UTF-8`},
	"endpoint": {"a", "/\xff", suffixed(""), `Handle: executor "a", endpoint "/\xff": not valid UTF-8`},
}

func TestMistakes(t *testing.T) {
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "jinatest: "+c.text, failure(t, func(tb testing.TB) {
				jinatest.New(tb).Handle(c.executor, c.endpoint, c.handler)
			}))
		})
	}
}

// Without a test to end, a mistake shows in every call.
func TestMistakesWithoutTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := jinatest.Start()
		require.NoError(t, err)
		defer g.Close()
		cc := g.Dial()
		require.NoError(t, single(t.Context(), cc, request("1", "/e")).err)
		for _, c := range mistakes {
			g.Handle(c.executor, c.endpoint, c.handler)
		}
		empty := &emptypb.Empty{}
		_, dryRun := jinapb.NewJinaGatewayDryRunRPCClient(cc).DryRun(t.Context(), empty)
		_, info := jinapb.NewJinaInfoRPCClient(cc).XStatus(t.Context(), empty)
		_, discovery := jinapb.NewJinaDiscoverEndpointsRPCClient(cc).EndpointDiscovery(t.Context(), empty)
		_, data := jinapb.NewJinaDataRequestRPCClient(cc).ProcessData(t.Context(), &jinapb.DataRequestListProto{})
		for _, err := range []error{
			single(t.Context(), cc, request("1", "/e")).err, call(t.Context(), cc, nil, request("1", "/e")).err,
			dryRun, info, discovery, data,
		} {
			assert.Equal(t, codes.Internal, status.Code(err))
			for _, c := range mistakes {
				assert.ErrorContains(t, err, c.text)
			}
		}
	})
}

func TestFaultyOptions(t *testing.T) {
	_, err := jinatest.Start(nil)
	require.EqualError(t, err, "jinatest: testserver: Start: option 1 is nil")
	assert.Equal(t, "testserver: New: option 1 is nil", failure(t, func(tb testing.TB) { jinatest.New(tb, nil) }))
}

func TestCloseReportsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		text := failure(t, func(tb testing.TB) {
			g := jinatest.New(tb)
			g.Handle("a", "/hang", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
				<-release
				return nil, nil
			})
			g.Handle("a", "/lost", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
				time.Sleep(time.Second) // so that the other one runs
				return nil, jinatest.Unreachable(codes.Unavailable, "")
			})
			call(t.Context(), g.Dial(), nil, request("1", "/hang"), request("2", "/lost"))
		})
		assert.Equal(t, "jinatest: Close: handlers still run after 30s", text)
		close(release)
	})
}

var errLoading = errors.New("still loading")
