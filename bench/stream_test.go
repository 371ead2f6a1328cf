// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

const (
	messages    = 10_000
	messageSize = 1 << 10
)

// streams serves streams of every kind. A client stream whose first request has the
// key "fail" fails after all of them, unless it is a replay.
type streams struct {
	testv1.UnimplementedTestServiceServer
}

func (streams) Upload(stream grpc.ClientStreamingServer[testv1.Request, testv1.Response]) error {
	var received int64
	fail := false
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		received++
		fail = fail || request.GetKey() == "fail"
	}
	if fail && grpcretry.PreviousAttempts(stream.Context()) == 0 {
		return status.Error(codes.Unavailable, "busy")
	}
	return stream.SendAndClose(&testv1.Response{Count: received})
}

func (streams) Download(_ *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) error {
	response := &testv1.Response{Payload: make([]byte, messageSize)}
	for range messages {
		if err := stream.Send(response); err != nil {
			return err
		}
	}
	return nil
}

func streamClient(tb testing.TB, dial ...grpc.DialOption) testv1.TestServiceClient {
	tb.Helper()
	return serve(tb, streams{}, dial...)
}

// suite returns the dial options of the suite with a buffer for everything.
func suite(tb testing.TB, byReference bool) []grpc.DialOption {
	tb.Helper()
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: -1}, Repeat: grpcretry.RepeatAlways}),
		grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1 << 30, Total: 1 << 32, ByReference: byReference}),
	)
	require.NoError(tb, err)
	return retrier.DialOptions()
}

// send makes a client stream of all messages.
func send(tb testing.TB, client testv1.TestServiceClient, key string) {
	tb.Helper()
	stream, err := client.Upload(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	message := &testv1.Request{Key: key, Payload: make([]byte, messageSize)}
	for range messages {
		if err := stream.Send(message); err != nil {
			tb.Fatal(err)
		}
	}
	if answer, err := stream.CloseAndRecv(); err != nil || answer.GetCount() != messages {
		tb.Fatal(answer, err)
	}
}

// receive makes a server stream of all messages.
func receive(tb testing.TB, client testv1.TestServiceClient) {
	tb.Helper()
	stream, err := client.Download(context.Background(), &testv1.Request{})
	if err != nil {
		tb.Fatal(err)
	}
	for n := 0; ; n++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) && n == messages {
			return
		} else if err != nil {
			tb.Fatal(n, err)
		}
	}
}

// BenchmarkStreams compares streams of 10,000 messages of 1 KiB with the same
// streams without interceptor, as BenchmarkConnection does for calls. Client streams
// are buffered to their end, server streams are committed after the first message.
func BenchmarkStreams(b *testing.B) {
	native := []grpc.DialOption{
		grpc.WithDefaultServiceConfig(nativeConfig),
		grpc.WithDefaultCallOptions(grpc.MaxRetryRPCBufferSize(1 << 30)),
	}
	middleware := []grpc.DialOption{
		grpc.WithChainStreamInterceptor(retry.StreamClientInterceptor(retry.WithMax(attempts), retry.WithBackoff(atOnce))),
		grpc.WithDisableRetry(),
	}
	for _, lib := range []struct {
		name    string
		dial    []grpc.DialOption
		uploads bool
	}{
		{"control", nil, true},
		{"grpcretry", suite(b, false), true},
		{"grpcretry-by-reference", suite(b, true), true},
		{"native", native, true},
		{"middleware", middleware, false}, // it refuses them
	} {
		if lib.uploads {
			b.Run("client stream/lib="+lib.name, func(b *testing.B) {
				plain, with := streamClient(b), streamClient(b, lib.dial...)
				ratio(b, func() { send(b, plain, "") }, func() { send(b, with, "") })
			})
		}
		b.Run("server stream/lib="+lib.name, func(b *testing.B) {
			plain, with := streamClient(b), streamClient(b, lib.dial...)
			ratio(b, func() { receive(b, plain) }, func() { receive(b, with) })
		})
	}
	// What is measured here is the second sending of a stream by the first.
	b.Run("replay/lib=grpcretry-by-reference", func(b *testing.B) {
		with := streamClient(b, suite(b, true)...)
		once := func() { send(b, with, "") }
		ratio(b, func() { once(); once() }, func() { send(b, with, "fail") })
	})
}
