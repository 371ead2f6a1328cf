// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// The tests of this file are of ends of which gRPC reports one thing to OnFinish, and
// another to RecvMsg, which is what callers go by.

type duplex = grpc.BidiStreamingClient[testv1.Request, testv1.Response]

// unsent runs a test with a stream whose headers are still in gRPC's queue when the
// connection breaks. gRPC then reports the stream as ended well to whoever asks for
// its header, and only RecvMsg tells the truth.
func unsent(t *testing.T, dial func(*grpcretry.Retrier) []grpc.DialOption, test func(t *testing.T, stream duplex, cancel func())) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		client, server := net.Pipe()
		go func() { // a server that greets, and then reads no more
			_, _ = io.ReadFull(server, make([]byte, len(http2.ClientPreface)))
			framer := http2.NewFramer(server, server)
			_, _ = framer.ReadFrame()
			_ = framer.WriteSettings()
			_, _ = framer.ReadFrame() // the acknowledgement
		}()
		retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 1}))
		require.NoError(t, err)
		conn, err := grpc.NewClient("passthrough:///pipe", append(dial(retrier),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return client, nil }),
		)...)
		require.NoError(t, err)
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = testv1.NewTestServiceClient(conn).Exchange(ctx) // its headers block the writer
		require.NoError(t, err)
		synctest.Wait()
		stream, err := testv1.NewTestServiceClient(conn).Exchange(ctx)
		require.NoError(t, err)
		server.Close()
		synctest.Wait()
		test(t, stream, cancel)
	})
}

func TestStreamUnsent(t *testing.T) {
	for name, dial := range map[string]func(*grpcretry.Retrier) []grpc.DialOption{
		"plain": func(*grpcretry.Retrier) []grpc.DialOption { return nil },
		"ours":  (*grpcretry.Retrier).DialOptions,
	} {
		for what, ask := range map[string]func(stream duplex){
			"Header":             func(stream duplex) { _, _ = stream.Header() },
			"Context and Header": func(stream duplex) { stream.Context(); _, _ = stream.Header() },
			"Send":               func(stream duplex) { _ = stream.Send(&testv1.Request{}) },
			"nothing":            func(duplex) {},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				unsent(t, dial, func(t *testing.T, stream duplex, _ func()) {
					ask(stream)
					_, err := stream.Recv()
					assert.Equal(t, codes.Unavailable, status.Code(err))
				})
			})
			t.Run(name+", "+what+", then cancel", func(t *testing.T) {
				unsent(t, dial, func(t *testing.T, stream duplex, cancel func()) {
					ask(stream)
					cancel()
					synctest.Wait()
					_, err := stream.Recv()
					assert.NotErrorIs(t, err, io.EOF)
					assert.Contains(t, []codes.Code{codes.Canceled, codes.Unavailable}, status.Code(err))
				})
			})
		}
	}
}

// lateReader takes two seconds over each response.
type lateReader struct{ stats.Handler }

func (lateReader) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (lateReader) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (lateReader) HandleConn(context.Context, stats.ConnStats)                       {}
func (lateReader) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InPayload); ok {
		time.Sleep(2 * time.Second)
	}
}

// TestStreamTimeoutBehindTheResponse lets timeouts end an attempt whose one response
// and status are here already, while gRPC is still busy with them. Caller, OnFinish
// and observer must agree on what became of the call: AttemptTimeout would make
// another attempt, so that a response is welcome, but an IdleTimeout ends the call.
func TestStreamTimeoutBehindTheResponse(t *testing.T) {
	for name, p := range map[string]grpcretry.Policy{
		"AttemptTimeout": {AttemptTimeout: time.Second},
		"IdleTimeout":    {IdleTimeout: time.Second},
	} {
		want := map[string]codes.Code{"IdleTimeout": codes.DeadlineExceeded}[name]
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, p)
				conn := r.server.Dial(append(r.retrier.DialOptions(), grpc.WithStatsHandler(lateReader{}))...)
				var finished []error
				stream, err := testv1.NewTestServiceClient(conn).Upload(t.Context(), grpc.OnFinish(func(err error) { finished = append(finished, err) }))
				require.NoError(t, err)
				if p.IdleTimeout > 0 { // it bounds what comes after the header
					_ = stream.CloseSend()
					_, err = stream.Header()
					require.NoError(t, err)
				}
				_, err = stream.CloseAndRecv()
				assert.Equal(t, want, status.Code(err), "%v", err)
				assert.Equal(t, []error{err}, finished)
				if err == nil {
					assert.Empty(t, r.journal.done)
				} else {
					assert.Equal(t, err, r.journal.done[0].err)
				}
			})
		})
	}
}
