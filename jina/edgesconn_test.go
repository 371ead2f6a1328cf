// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestTargetIsResolved holds that gRPC resolves the host of grpc://, which may be of IPv6.
func TestTargetIsResolved(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"grpc://[::1]:80", "grpc://localhost:80"} {
		dialled := make(chan string, 10)
		client, err := jina.Dial(target, jina.Params{}, grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) {
			dialled <- address
			return nil, errMine
		}))
		require.NoError(t, err)
		require.ErrorIs(t, client.Ready(t.Context()), jina.ErrConnection)
		require.NoError(t, client.Close())
		host, port, err := net.SplitHostPort(<-dialled)
		require.NoError(t, err)
		assert.True(t, net.ParseIP(host).IsLoopback(), host)
		assert.Equal(t, "80", port)
	}
}

// TestKeepalive holds that an idle connection is probed every 10 seconds, and given up
// if nothing has come 4999 ms later.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		here, there := net.Pipe()
		options, err := jina.DialOptions(jina.Params{})
		require.NoError(t, err)
		conn, err := grpc.NewClient("passthrough:///x", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return here, nil }))...)
		require.NoError(t, err)
		defer conn.Close()
		conn.Connect()
		go func() { _, _ = there.Write([]byte{3: 4, 8: 0}) }() // settings of HTTP/2, all by default
		_, err = io.CopyN(io.Discard, there, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		begun, header := time.Now(), make([]byte, 9)
		var pings []time.Duration
		for err == nil {
			if _, err = io.ReadFull(there, header); err == nil && header[3] == 6 {
				pings = append(pings, time.Since(begun))
			}
			_, _ = io.CopyN(io.Discard, there, int64(binary.BigEndian.Uint32(header)>>8))
		}
		assert.Equal(t, []time.Duration{10 * time.Second}, pings)
		assert.Equal(t, 14999*time.Millisecond, time.Since(begun))
	})
}

// unkept replaces the client by one that keeps nothing of streams.
func (r *rig) unkept() {
	options, err := jina.DialOptions(jina.Params{MaxAttempts: 2}, grpcretry.WithBuffer(grpcretry.Buffer{Memory: -1}))
	require.NoError(r, err)
	r.client = jina.NewClient(r.gateway.Dial(options...))
}

// TestLaterOptionsWin holds that the caller's options come after those of the params.
func TestLaterOptionsWin(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		r.unkept()
		r.gateway.Script(callMethod, testserver.Fail(codes.Unavailable, "x").Received(3))
		o := r.post(t.Context(), jina.Documents(texts(3)...))
		require.ErrorIs(t, o.err, grpcretry.ErrCommitted)
		client, err := jina.Dial(r.gateway.Target(), jina.Params{}, append(r.gateway.DialOptions(),
			grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(100)))...)
		require.NoError(t, err)
		_, err = only(client.Post(t.Context(), "/x", jina.Documents(make(jina.Document, 100))))
		require.ErrorContains(t, err, "trying to send message larger than max")
		require.NoError(t, client.Close())
	})
}

// TestReadyTwice holds that it is the channel that retries from two attempts on: its
// waits have jitter, ours have none.
func TestReadyTwice(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 2})
		r.gateway.Script("", testserver.Fail(codes.Unavailable, "x").Forever())
		begun := time.Now()
		require.ErrorIs(t, r.client.Ready(t.Context()), jina.ErrConnection)
		assert.Len(t, r.gateway.Attempts(), 2)
		assert.NotEqual(t, 500*time.Millisecond, time.Since(begun))
	})
}

// TestProbeGoesAstray holds that the question for our options has an end, and whose it is.
func TestProbeGoesAstray(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		client := jina.NewClient(newRig(t, jina.Params{}).gateway.Dial(grpc.WithUnaryInterceptor(
			func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				<-ctx.Done()
				return errMine
			})))
		begun := time.Now()
		require.ErrorIs(t, client.Ready(t.Context()), errMine)
		assert.Equal(t, 5*time.Second, time.Since(begun))
	})
}

// TestMetadataAtTheEdges holds which keys and values are refused, and that others arrive.
func TestMetadataAtTheEdges(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"content-type": "x", "te": "x", "ü": "x", "a/b": "x", "a": "\x1f", "b": "\x7f"} {
		_, err := only(jina.NewClient(nil).Post(t.Context(), "/x", jina.Documents(), jina.WithMetadata(metadata.Pairs(key, value))))
		require.ErrorContains(t, err, `the key "`+key+`" `)
	}
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		require.NoError(t, r.post(t.Context(), jina.Documents(texts(1)...), jina.WithMetadata(metadata.Pairs("a0.b-c_9", "x y~"))).err)
		assert.Equal(t, []string{"x y~"}, r.gateway.Attempts()[0].Metadata.Get("a0.b-c_9"))
	})
}

// TestWaitOrStopAtTheEdges holds that a wait which fits exactly does not, and what is an error's own.
func TestWaitOrStopAtTheEdges(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		params := jina.Params{MaxAttempts: 100, AnyCode: true}
		require.ErrorIs(t, jina.WaitOrStop(t.Context(), 1, &jina.Error{Cause: errMine}, params), errMine)
		require.Error(t, jina.WaitOrStop(t.Context(), 1, errors.Join(errBusy, &jina.ExecutorError{}), params))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		require.Error(t, jina.WaitOrStop(ctx, 1, errBusy, params))
		cancel()
		require.ErrorIs(t, jina.WaitOrStop(ctx, 1, &jina.Error{Cause: errBusy}, params), context.Canceled)
		assert.Zero(t, time.Since(begun))
		require.NoError(t, jina.WaitOrStop(t.Context(), 99, errBusy, params))
		assert.NotZero(t, time.Since(begun))
	})
}
