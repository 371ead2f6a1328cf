// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// Exchange answers each request with its key.
func (streams) Exchange(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response]) error {
	response := &testv1.Response{Payload: make([]byte, messageSize)}
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response.Key = request.GetKey()
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// keys are those of all messages, so that making them takes no part in what is measured.
var keys = func() []string {
	keys := make([]string, messages)
	for i := range keys {
		keys[i] = "request-" + strconv.Itoa(i)
	}
	return keys
}()

// converse makes a duplex stream of all messages, with at most some outstanding.
func converse(tb testing.TB, client testv1.TestServiceClient, outstanding int) {
	tb.Helper()
	stream, err := client.Exchange(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	room := make(chan struct{}, outstanding)
	sent := make(chan error, 1)
	go func() {
		payload := make([]byte, messageSize)
		for _, key := range keys {
			room <- struct{}{}
			if err := stream.Send(&testv1.Request{Key: key, Payload: payload}); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for n := 0; ; n++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) && n == messages {
			break
		} else if err != nil {
			tb.Fatal(n, err)
		}
		<-room
	}
	if err := <-sent; err != nil {
		tb.Fatal(err)
	}
}

// recovered returns the dial options of the suite with a recovery.
func recovered(tb testing.TB, byReference bool, recovery grpcretry.Recovery) []grpc.DialOption {
	tb.Helper()
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: recovery}),
		grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1 << 30, Total: 1 << 32, ByReference: byReference}),
	)
	require.NoError(tb, err)
	return retrier.DialOptions()
}

// BenchmarkRecovery compares streams that are recovered, but need not be, with the same
// streams without interceptor, as BenchmarkStreams does.
func BenchmarkRecovery(b *testing.B) {
	key := func(message any) string { return message.(interface{ GetKey() string }).GetKey() }
	next := func(any) ([]any, error) { return []any{&testv1.Request{}}, nil }
	duplex := func(outstanding int) func(testing.TB, testv1.TestServiceClient) {
		return func(tb testing.TB, client testv1.TestServiceClient) {
			tb.Helper()
			converse(tb, client, outstanding)
		}
	}
	for _, bench := range []struct {
		name string
		call func(testing.TB, testv1.TestServiceClient)
		dial []grpc.DialOption
	}{
		{"Acked, 64 outstanding/lib=grpcretry-by-reference", duplex(64), recovered(b, true, grpcretry.Acked(key))},
		{"Acked, 64 outstanding/lib=grpcretry", duplex(64), recovered(b, false, grpcretry.Acked(key))},
		{"Acked, 1 outstanding/lib=grpcretry-by-reference", duplex(1), recovered(b, true, grpcretry.Acked(key))},
		{"Acked, 1 outstanding/lib=grpcretry", duplex(1), recovered(b, false, grpcretry.Acked(key))},
		{"duplex stream/lib=grpcretry", duplex(64), recovered(b, false, grpcretry.Recovery{})},
		{"duplex stream/lib=control", duplex(64), nil},
		{"Skip, server stream/lib=grpcretry", receive, recovered(b, false, grpcretry.Skip(nil))},
		{"Resume, server stream/lib=grpcretry", receive, recovered(b, false, grpcretry.Resume(next))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			plain, with := streamClient(b), streamClient(b, bench.dial...)
			ratio(b, func() { bench.call(b, plain) }, func() { bench.call(b, with) })
		})
	}
}
