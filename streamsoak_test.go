// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// TestSoakStreamReplay makes 10,000 calls of each of the two kinds of stream that
// send, whose second attempt fails with NOT_FOUND while 20 × 8 KiB are replayed to
// it. gRPC's own replay reports a third of such calls as ended well.
func TestSoakStreamReplay(t *testing.T) {
	soak(t)
	replayNotFound(t, 20_000)
}

// TestSoakStreamRefused does the same where the first attempt is refused
// unprocessed; there gRPC's own replay never tells the truth.
func TestSoakStreamRefused(t *testing.T) {
	soak(t)
	for range 40 { // the server keeps what it is sent
		replayRefused(t, 500)
	}
}

// TestStreamRefusedKeepsTheStatus does it a few times.
func TestStreamRefusedKeepsTheStatus(t *testing.T) {
	t.Parallel()
	replayRefused(t, 100)
}

func replayRefused(t *testing.T, calls int) {
	t.Helper()
	server, err := rawh2.Start()
	require.NoError(t, err)
	defer server.Close()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait))
	require.NoError(t, err)
	conn, err := grpc.NewClient(server.Target(), append(retrier.DialOptions(), server.DialOptions()...)...)
	require.NoError(t, err)
	defer conn.Close()
	client := testv1.NewTestServiceClient(conn)
	for i := range calls {
		server.Script(rawh2.Reset(http2.ErrCodeRefusedStream), rawh2.Trailers("grpc-status", "5", "grpc-message", "none").AtHeaders())
		if err := send20(t.Context(), client, i%2 == 0); status.Code(err) != codes.NotFound {
			t.Fatalf("call %d got %v", i, err)
		}
	}
}

// TestStreamReplayKeepsTheStatus does the same a few hundred times.
func TestStreamReplayKeepsTheStatus(t *testing.T) {
	t.Parallel()
	replayNotFound(t, 200)
}

func replayNotFound(t *testing.T, calls int64) {
	t.Helper()
	connect := plainStreams(t, func(stream grpc.ServerStream, previous int) error {
		if previous > 0 {
			return status.Error(codes.NotFound, "none")
		}
		for range 20 {
			if err := stream.RecvMsg(&testv1.Request{}); err != nil {
				return err
			}
		}
		return status.Error(codes.Unavailable, "busy")
	})
	client := testv1.NewTestServiceClient(connect(noWait))
	var left atomic.Int64
	left.Store(calls)
	var callers sync.WaitGroup
	for worker := range 4 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				if err := send20(t.Context(), client, worker%2 == 0); status.Code(err) != codes.NotFound {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	callers.Wait()
}

// send20 sends 20 × 8 KiB on a stream of one of the two kinds, and returns how it
// ends.
func send20(ctx context.Context, client testv1.TestServiceClient, duplex bool) error {
	var stream grpc.ClientStream
	var err error
	if duplex {
		stream, err = client.Exchange(ctx)
	} else {
		stream, err = client.Upload(ctx)
	}
	if err != nil {
		return err
	}
	message := &testv1.Request{Payload: make([]byte, 8<<10)}
	for range 20 {
		if err := stream.SendMsg(message); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	return stream.RecvMsg(&testv1.Response{})
}

// plainStreams starts a server that serves every stream by a function, which is
// told how many attempts came before, and records nothing.
func plainStreams(
	t *testing.T, serve func(stream grpc.ServerStream, previous int) error, opts ...grpcretry.Option,
) func(grpcretry.Policy) *grpc.ClientConn {
	t.Helper()
	listener, dial := memoryListener()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return serve(stream, grpcretry.PreviousAttempts(stream.Context()))
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return func(p grpcretry.Policy) *grpc.ClientConn {
		retrier, err := grpcretry.New(append(opts, grpcretry.WithPolicy(p))...)
		require.NoError(t, err)
		return dialMemory(t, dial, retrier.DialOptions()...)
	}
}

// TestSoakStreamsFlat makes 100,000 streams that fail, are dropped, cancelled or
// end well, and holds that nothing of them is left.
func TestSoakStreamsFlat(t *testing.T) {
	soak(t)
	streamsFlat(t, 100_000)
}

// TestStreamsFlat does the same a thousand times.
func TestStreamsFlat(t *testing.T) { //nolint:paralleltest // counts the goroutines of the process
	streamsFlat(t, 1_000)
}

func streamsFlat(t *testing.T, streams int) {
	t.Helper()
	var seen atomic.Int64
	connect := plainStreams(t, func(stream grpc.ServerStream, _ int) error {
		n := seen.Add(1)
		if n%3 == 0 {
			return status.Error(codes.Unavailable, "busy")
		}
		for i := 0; ; i++ {
			request := &testv1.Request{}
			if err := stream.RecvMsg(request); err != nil {
				return nil //nolint:nilerr // half-closed or gone
			}
			if n%5 == 0 && i == 1 {
				return status.Error(codes.Unavailable, "busy")
			}
			if i%2 == 1 {
				if err := stream.SendMsg(&testv1.Response{Key: request.GetKey()}); err != nil {
					return err
				}
			}
		}
	})
	policy := noWait
	policy.MaxAttempts = 4
	client := testv1.NewTestServiceClient(connect(policy))
	run := func(streams int) (heap uint64, goroutines int) {
		var callers sync.WaitGroup
		for worker := range 4 {
			callers.Go(func() {
				for i := range streams / 4 {
					abuse(t.Context(), client, worker+i)
				}
			})
		}
		callers.Wait()
		for i := 0; i < 100 && runtime.NumGoroutine() > 40; i++ {
			runtime.Gosched()
			runtime.GC()
		}
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc, runtime.NumGoroutine()
	}
	heap, goroutines := run(400)
	heapAfter, goroutinesAfter := run(streams)
	t.Logf("heap %d then %d bytes, goroutines %d then %d", heap, heapAfter, goroutines, goroutinesAfter)
	assert.Less(t, heapAfter, heap+4<<20)
	assert.Less(t, goroutinesAfter, goroutines+30)
}

// abuse uses a stream in one of several ways, not all of them kind.
func abuse(ctx context.Context, client testv1.TestServiceClient, way int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Exchange(ctx)
	if err != nil {
		return
	}
	for i := range 4 {
		if stream.Send(&testv1.Request{Key: strconv.Itoa(i)}) != nil {
			break
		}
	}
	switch way % 4 {
	case 0: // dropped
	case 1:
		_, _ = stream.Header()
	case 2:
		_, _ = stream.Recv()
	default:
		_ = stream.CloseSend()
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}
}
