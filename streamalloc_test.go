// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// stubStream is a stream that does nothing.
type stubStream struct{ ctx context.Context }

func (s *stubStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (s *stubStream) Trailer() metadata.MD         { return nil }
func (s *stubStream) CloseSend() error             { return nil }
func (s *stubStream) Context() context.Context     { return s.ctx }
func (s *stubStream) SendMsg(any) error            { return nil }
func (s *stubStream) RecvMsg(any) error            { return nil }

// open opens a stream of the suite over one that does nothing.
func openStub(tb testing.TB, buffer grpcretry.Buffer, recovery ...grpcretry.Recovery) func() grpc.ClientStream {
	tb.Helper()
	policy := noWait
	if len(recovery) > 0 {
		policy.Recovery = recovery[0]
	}
	retrier, err := grpcretry.New(grpcretry.WithPolicy(policy), grpcretry.WithBuffer(buffer))
	require.NoError(tb, err)
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stub := &stubStream{ctx: context.Background()}
	streamer := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return stub, ctx.Err()
	}
	intercept, opts := retrier.StreamClientInterceptor(), []grpc.CallOption{grpc.StaticMethod()}
	return func() grpc.ClientStream {
		stream, err := intercept(context.Background(), desc, nil, exchange, streamer, opts...)
		if err != nil {
			tb.Fatal(err)
		}
		return stream
	}
}

// committed returns a stream whose first response was handed over.
func committed(tb testing.TB) grpc.ClientStream {
	tb.Helper()
	stream := openStub(tb, grpcretry.Buffer{})()
	require.NoError(tb, stream.RecvMsg(nil))
	return stream
}

// TestLaw10StreamAllocations holds what streams may cost where gRPC costs nothing.
func TestLaw10StreamAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	stream, message, reply := committed(t), &testv1.Request{Payload: make([]byte, 1024)}, &testv1.Response{}
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = stream.SendMsg(message) }), "SendMsg after commit")
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = stream.RecvMsg(reply) }), "RecvMsg after commit")

	open := openStub(t, grpcretry.Buffer{})
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { open() }), 10.0, "creation")

	const messages = 10_000
	open = openStub(t, grpcretry.Buffer{ByReference: true, Memory: 1 << 30, Total: 1 << 40})
	perStream := testing.AllocsPerRun(10, func() {
		stream := open()
		for range messages {
			_ = stream.SendMsg(message)
		}
		_ = stream.RecvMsg(reply)
	})
	assert.LessOrEqual(t, perStream/messages, 0.02, "a message buffered by reference")
}

// TestLaw10RecoveryAllocations: what a stream keeps for its recovery it keeps in memory
// that it has.
func TestLaw10RecoveryAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	message, reply := &testv1.Request{Key: "a", Payload: make([]byte, 1024)}, &testv1.Response{Key: "a"}
	for _, row := range []struct {
		name        string
		recovery    grpcretry.Recovery
		byReference bool
		want        float64
	}{
		{"Acked by reference", grpcretry.Acked(keyOf), true, 0},
		{"Acked", grpcretry.Acked(keyOf), false, 2}, // the copy and its bytes
		{"Resume", recoveries["Resume"], false, 0},
	} {
		stream := openStub(t, grpcretry.Buffer{ByReference: row.byReference}, row.recovery)()
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			_ = stream.SendMsg(message)
			_ = stream.RecvMsg(reply)
		}), row.want, row.name)
	}
}

func BenchmarkStreamStub(b *testing.B) {
	message, reply := &testv1.Request{Payload: make([]byte, 1024)}, &testv1.Response{}
	b.Run("SendMsg after commit", func(b *testing.B) {
		stream := committed(b)
		b.ReportAllocs()
		for b.Loop() {
			_ = stream.SendMsg(message)
		}
	})
	b.Run("RecvMsg after commit", func(b *testing.B) {
		stream := committed(b)
		b.ReportAllocs()
		for b.Loop() {
			_ = stream.RecvMsg(reply)
		}
	})
	b.Run("creation", func(b *testing.B) {
		open := openStub(b, grpcretry.Buffer{})
		b.ReportAllocs()
		for b.Loop() {
			open()
		}
	})
	b.Run("request and answer, Acked by reference", func(b *testing.B) {
		stream := openStub(b, grpcretry.Buffer{ByReference: true}, grpcretry.Acked(keyOf))()
		message, reply := &testv1.Request{Key: "a", Payload: make([]byte, 1024)}, &testv1.Response{Key: "a"}
		b.ReportAllocs()
		for b.Loop() {
			_ = stream.SendMsg(message)
			_ = stream.RecvMsg(reply)
		}
	})
	for name, buffer := range map[string]grpcretry.Buffer{"copy": {Memory: 1 << 40, Total: 1 << 40}, "by reference": {ByReference: true, Memory: 1 << 40, Total: 1 << 40}} {
		b.Run("SendMsg buffered, "+name, func(b *testing.B) {
			stream, sent := openStub(b, buffer)(), 0
			b.ReportAllocs()
			for b.Loop() {
				if sent++; sent%10_000 == 0 {
					stream = openStub(b, buffer)()
				}
				_ = stream.SendMsg(message)
			}
		})
	}
}
