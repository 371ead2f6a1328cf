// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// soak skips a test that takes long, unless make soak runs it.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("GRPCRETRY_SOAK") != "1" {
		t.Skip("runs in make soak")
	}
}

// TestPooling attacks what calls share: interceptors below that return before
// their invoker, calls that are cancelled at random, callers that reuse their
// messages. Every call must see its own answer and its own trailer.
func TestPooling(t *testing.T) {
	t.Parallel()
	attackPool(t, 2_000)
}

// TestSoakRacePooling does the same 100,000 times under the race detector.
func TestSoakRacePooling(t *testing.T) {
	soak(t)
	if !raceEnabled {
		t.Skip("needs the race detector")
	}
	attackPool(t, 100_000)
}

func attackPool(t *testing.T, calls int64) {
	t.Helper()
	listener, client := tagging(t)
	defer listener()
	var left atomic.Int64
	left.Store(calls)
	var callers sync.WaitGroup
	for worker := range 8 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			request := &testv1.Request{}
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				request.Key = strconv.FormatInt(i, 10)
				ctx, cancel := context.WithCancel(t.Context())
				switch random.IntN(10) {
				case 0:
					cancel()
				case 1:
					go cancel()
				}
				var header, trailer metadata.MD
				var from peer.Peer
				finished := 0
				response, err := client.Read(ctx, request, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from),
					grpc.OnFinish(func(error) { finished++ }))
				cancel()
				if err == nil && (response.GetKey() != request.GetKey() || trailer.Get("tag")[0] != request.GetKey() || header.Get("tag")[0] != request.GetKey()) {
					t.Errorf("call %s got %v, header %v, trailer %v", request.GetKey(), response, header, trailer)
				}
				if code := status.Code(err); code != codes.OK && code != codes.Canceled {
					t.Errorf("call %s: %v", request.GetKey(), err)
				}
				if _, reported := grpcretry.AttemptsFromMD(trailer); !reported || finished != 1 {
					t.Errorf("call %s: trailer %v, finished %d times", request.GetKey(), trailer, finished)
				}
			}
		})
	}
	callers.Wait()
}

// tagging returns a client whose server marks header and trailer with the key of
// the request, and fails every third attempt. Below the suite an interceptor
// returns early: as soon as the context ends, and at times for no reason at all.
func tagging(t *testing.T) (stop func(), client testv1.TestServiceClient) {
	t.Helper()
	var background sync.WaitGroup
	var seen atomic.Int64
	server := startPlain(t, func(ctx context.Context, request *testv1.Request) (*testv1.Response, error) {
		tag := metadata.Pairs("tag", request.GetKey())
		if seen.Add(1)%3 == 0 {
			return nil, status.Error(codes.Unavailable, "busy")
		}
		_ = grpc.SetHeader(ctx, tag)
		_ = grpc.SetTrailer(ctx, tag)
		return &testv1.Response{Key: request.GetKey()}, nil
	})
	hasty := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		own := &testv1.Response{}
		request := &testv1.Request{Key: req.(*testv1.Request).GetKey()}
		ended := make(chan error, 1)
		background.Go(func() { ended <- invoker(ctx, method, request, own, cc, opts...) })
		if len(request.GetKey())%2 == 0 && request.GetKey()[0] == '1' {
			if number, _ := grpcretry.AttemptFromContext(ctx); number == 0 {
				return status.Error(codes.Unavailable, "too slow for me")
			}
		}
		select {
		case err := <-ended:
			reply.(*testv1.Response).Key = own.GetKey()
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	policy := noWait
	policy.MaxAttempts = 100
	retrier, err := grpcretry.New(grpcretry.WithPolicy(policy))
	require.NoError(t, err)
	conn := server(append(retrier.DialOptions(), grpc.WithChainUnaryInterceptor(hasty))...)
	return background.Wait, testv1.NewTestServiceClient(conn)
}

// plainService is a server of Read that records nothing.
type plainService struct {
	testv1.UnimplementedTestServiceServer

	read func(context.Context, *testv1.Request) (*testv1.Response, error)
}

func (s plainService) Read(ctx context.Context, request *testv1.Request) (*testv1.Response, error) {
	return s.read(ctx, request)
}

// startPlain starts such a server and returns how to connect to it.
func startPlain(t *testing.T, read func(context.Context, *testv1.Request) (*testv1.Response, error)) func(...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return inMemory(t, func(server *grpc.Server) {
		testv1.RegisterTestServiceServer(server, plainService{read: read})
	})
}

// TestSoakFlat makes a million calls, a third of whose attempts fail, and holds
// that memory and goroutines are what they were after the first ten thousand.
func TestSoakFlat(t *testing.T) {
	soak(t)
	var seen atomic.Int64
	connect := startPlain(t, func(_ context.Context, request *testv1.Request) (*testv1.Response, error) {
		switch seen.Add(1) % 6 {
		case 0, 2:
			return nil, status.Error(codes.Unavailable, "busy")
		case 3:
			return nil, status.Error(codes.NotFound, "none")
		}
		return &testv1.Response{Key: request.GetKey()}, nil
	})
	policy := noWait
	policy.AttemptTimeout, policy.Timeout = time.Minute, time.Hour
	retrier, err := grpcretry.New(grpcretry.WithPolicy(policy))
	require.NoError(t, err)
	client := testv1.NewTestServiceClient(connect(retrier.DialOptions()...))
	run := func(calls int64) (heap uint64, goroutines int) {
		var left atomic.Int64
		left.Store(calls)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for left.Add(-1) >= 0 {
					var trailer metadata.MD
					_, err := client.Read(context.Background(), &testv1.Request{Key: "k"}, grpc.Trailer(&trailer))
					if code := status.Code(err); code != codes.OK && code != codes.NotFound && code != codes.Unavailable {
						t.Errorf("unexpected: %v", err)
					}
				}
			})
		}
		callers.Wait()
		runtime.GC()
		runtime.GC() // what sync.Pool holds survives one
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc, runtime.NumGoroutine()
	}
	heap, goroutines := run(10_000)
	heapAfter, goroutinesAfter := run(990_000)
	t.Logf("heap %d then %d bytes, goroutines %d then %d", heap, heapAfter, goroutines, goroutinesAfter)
	assert.Less(t, heapAfter, heap+1<<20)
	assert.LessOrEqual(t, goroutinesAfter, goroutines+4)
}

// TestSoakStreamReplay makes 10,000 calls of both kinds of stream that send, whose
// second attempt fails with NOT_FOUND while 20 × 8 KiB are replayed to it. gRPC's
// own replay reports a third of such calls as ended well.
func TestSoakStreamReplay(t *testing.T) {
	soak(t)
	replayNotFound(t, 10_000)
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
func plainStreams(t *testing.T, serve func(stream grpc.ServerStream, previous int) error) func(grpcretry.Policy) *grpc.ClientConn {
	t.Helper()
	listener, dial := memoryListener()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return serve(stream, grpcretry.PreviousAttempts(stream.Context()))
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return func(p grpcretry.Policy) *grpc.ClientConn {
		retrier, err := grpcretry.New(grpcretry.WithPolicy(p))
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
