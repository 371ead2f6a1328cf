// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// service fails each call the given number of times before it answers. It is not
// the scripted test server, whose records would be measured too.
type service struct {
	testv1.UnimplementedTestServiceServer

	failures int64
	seen     atomic.Int64
}

func (s *service) Read(_ context.Context, request *testv1.Request) (*testv1.Response, error) {
	if s.failures > 0 && s.seen.Add(1)%(s.failures+1) != 0 {
		return nil, status.Error(codes.Unavailable, "busy")
	}
	return &testv1.Response{Key: request.GetKey()}, nil
}

// serve returns a client of a server of its own, in memory.
func serve(tb testing.TB, service testv1.TestServiceServer, dial ...grpc.DialOption) testv1.TestServiceClient {
	tb.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	testv1.RegisterTestServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///bench", append(dial,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return testv1.NewTestServiceClient(conn)
}

// connect returns a client whose calls fail so often.
func connect(tb testing.TB, failures int64, lib contender) testv1.TestServiceClient {
	tb.Helper()
	return serve(tb, &service{failures: failures}, lib.dial...)
}

// calls makes n calls, so many at a time.
func calls(tb testing.TB, client testv1.TestServiceClient, n, concurrency int, wantFailure bool) {
	tb.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := client.Read(context.Background(), &testv1.Request{Key: "k"}); (err != nil) != wantFailure {
					tb.Errorf("unexpected result: %v", err)
					return
				}
			}
		})
	}
	workers.Wait()
}

// BenchmarkConnection compares each library with no interceptor over an in-memory
// connection. Times of one run differ by half on small machines, so that single
// numbers say little: each library's calls alternate with plain ones in short
// turns, and what is reported is the median of the ratios (metric "ratio"). The
// row lib=control is a plain connection too; what it differs from 1 is noise.
func BenchmarkConnection(b *testing.B) {
	for _, c := range []struct {
		name        string
		failures    int64
		timeout     bool
		concurrency int
	}{
		{name: "success", concurrency: 1},
		{name: "success", concurrency: 100},
		{name: "success", concurrency: 10_000},
		{name: "success,attempt timeout", timeout: true, concurrency: 1},
	} {
		plain := contenders(b, c.timeout)[0]
		control := plain
		control.name = "control"
		for _, lib := range append([]contender{control}, contenders(b, c.timeout)[1:]...) {
			b.Run(fmt.Sprintf("%s,%d at a time/lib=%s", c.name, c.concurrency, lib.name), func(b *testing.B) {
				paired(b, connect(b, c.failures, plain), connect(b, c.failures, lib), c.concurrency)
			})
		}
	}
}

// turn is how many calls a turn has at least.
const turn = 50

func paired(b *testing.B, plain, with testv1.TestServiceClient, concurrency int) {
	b.Helper()
	n := max(turn, 2*concurrency)
	ratio(b, func() { calls(b, plain, n, concurrency, false) }, func() { calls(b, with, n, concurrency, false) })
}

// ratio reports the median of the ratios of two functions' times, in turns.
func ratio(b *testing.B, plain, with func()) {
	b.Helper()
	measure := func(f func()) float64 {
		start := time.Now()
		f()
		return float64(time.Since(start))
	}
	measure(plain)
	measure(with)
	var ratios []float64
	for b.Loop() {
		var first, second float64
		if len(ratios)%2 == 0 {
			first, second = measure(plain), measure(with)
		} else {
			second, first = measure(with), measure(plain)
		}
		ratios = append(ratios, second/first)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op") // the time of a pair says nothing
}

// BenchmarkRetries measures calls of which each needs three attempts, or fails in
// all of them.
func BenchmarkRetries(b *testing.B) {
	for _, c := range []struct {
		name     string
		failures int64
	}{{"two failures", 2}, {"all fail", 1 << 62}} {
		for _, lib := range contenders(b, false)[1:] {
			b.Run(c.name+"/lib="+lib.name, func(b *testing.B) {
				client := connect(b, c.failures, lib)
				b.ReportAllocs()
				for b.Loop() {
					calls(b, client, 1, 1, c.failures > attempts)
				}
			})
		}
	}
}

// BenchmarkFootprint reports the memory and the goroutines that a library adds to
// each of 1,000 calls that wait for their answer.
func BenchmarkFootprint(b *testing.B) {
	const waiting = 1000
	for _, lib := range contenders(b, false) {
		b.Run("lib="+lib.name, func(b *testing.B) {
			var bytes, goroutines float64
			rounds := 0
			for b.Loop() {
				more, routines := footprint(b, lib, waiting)
				bytes, goroutines, rounds = bytes+more, goroutines+routines, rounds+1
			}
			b.ReportMetric(bytes/float64(rounds)/waiting, "B/call")
			b.ReportMetric(goroutines/float64(rounds)/waiting, "goroutines/call")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func footprint(b *testing.B, lib contender, waiting int) (bytes, goroutines float64) {
	b.Helper()
	hold, arrived := make(chan struct{}), make(chan struct{}, waiting)
	invoker := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		arrived <- struct{}{}
		<-hold
		return ctx.Err()
	}
	intercept := lib.unary
	switch {
	case lib.name == "native":
		b.Skip("it has no interceptor to hold calls in")
	case intercept == nil:
		intercept = func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
	}
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	routines := runtime.NumGoroutine()
	var callers sync.WaitGroup
	for range waiting {
		callers.Go(func() {
			_ = intercept(context.Background(), testv1.TestService_Read_FullMethodName, nil, nil, nil, invoker)
		})
	}
	for range waiting {
		<-arrived
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	goroutines = float64(runtime.NumGoroutine() - routines)
	close(hold)
	callers.Wait()
	return float64(during.HeapAlloc+during.StackInuse) - float64(before.HeapAlloc+before.StackInuse), goroutines
}
