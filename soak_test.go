// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
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

// soak skips a test that takes long, unless make soak runs it. It returns how long
// a test may take that has no end of its own.
func soak(t *testing.T) time.Duration {
	t.Helper()
	value := os.Getenv("GRPCRETRY_SOAK")
	if value == "" {
		t.Skip("runs in make soak")
	}
	d, err := time.ParseDuration(value)
	require.NoError(t, err, "GRPCRETRY_SOAK")
	require.Positive(t, d, "GRPCRETRY_SOAK")
	return d
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
