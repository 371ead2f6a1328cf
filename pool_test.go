// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"fmt"
	"sync"
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
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestPoolRetryKeepsTheOptions: a retry after an end that gRPC did not report takes
// a capture from the pool, which may have served calls with other options.
func TestPoolRetryKeepsTheOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := testserver.New(t)
		server.Script(write, testserver.OK().Delay(time.Second).Forever())
		shed := below(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if n, _ := grpcretry.AttemptFromContext(ctx); n == 0 && method == read {
				return status.Error(codes.Unavailable, "shed on this side")
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		})
		client := clientOf(t, server, grpcretry.Policy{}, shed)
		var writes sync.WaitGroup
		for i := range 8 { // captures with Header, and with options of their own, are left
			writes.Go(func() { _, _ = client.Write(t.Context(), &testv1.Request{}, grpc.MaxCallRecvMsgSize(1000+i)) })
		}
		writes.Wait()
		var from peer.Peer
		_, err := client.Read(t.Context(), &testv1.Request{}, grpc.PerRPCCredentials(bearer("me")), grpc.Peer(&from))
		require.NoError(t, err)
		assert.Equal(t, []string{"me"}, server.Attempts(read)[0].Metadata["user"])
		assert.NotNil(t, from.Addr)
		_, err = client.Read(t.Context(), &testv1.Request{Key: "k"}, grpc.MaxCallRecvMsgSize(1))
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	})
}

// TestPoolSwappedOptions: an interceptor that puts options of its own in the place
// of the suite's, once, must not concern other calls.
func TestPoolSwappedOptions(t *testing.T) {
	for name, swapped := range map[string]func(grpc.CallOption) grpc.CallOption{
		"Peer": func(opt grpc.CallOption) grpc.CallOption {
			if _, is := opt.(grpc.PeerCallOption); is {
				return grpc.Peer(&peer.Peer{})
			}
			return nil
		},
		"Header": func(opt grpc.CallOption) grpc.CallOption {
			if _, is := opt.(grpc.HeaderCallOption); is {
				return grpc.Header(&metadata.MD{})
			}
			return nil
		},
		"Trailer": func(opt grpc.CallOption) grpc.CallOption {
			if _, is := opt.(grpc.TrailerCallOption); is {
				return grpc.Trailer(&metadata.MD{})
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := testserver.New(t)
				server.Script(write, testserver.OK().Header("h", "1").Trailer("t", "1").Times(2),
					testserver.Fail(codes.Unavailable, "the connection is draining").SendHeader("h", "1").Applied())
				first := true
				swap := below(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					for i, opt := range opts {
						if mine := swapped(opt); first && mine != nil {
							opts[i], first = mine, false
						}
					}
					return invoker(ctx, method, req, reply, cc, opts...)
				})
				client := clientOf(t, server, grpcretry.Policy{}, swap)
				_, err := client.Write(t.Context(), &testv1.Request{})
				require.NoError(t, err)
				require.False(t, first)
				var header, trailer metadata.MD
				var from peer.Peer
				_, err = client.Write(t.Context(), &testv1.Request{}, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
				require.NoError(t, err)
				assert.Equal(t, []string{"1"}, header["h"])
				assert.Equal(t, []string{"1"}, trailer["t"])
				assert.NotNil(t, from.Addr)
				_, err = client.Write(t.Context(), &testv1.Request{})
				require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
				assert.Len(t, server.Attempts(write), 3)
			})
		})
	}
}

// boxed is an error that compares at first sight, and panics at the second.
type boxed struct{ error }

// several is an error that does not compare.
type several []error

func (several) Error() string { return "several" }

// TestPoolUncomparableErrors: errors of balancers and credentials come as they are.
func TestPoolUncomparableErrors(t *testing.T) {
	t.Parallel()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait))
	require.NoError(t, err)
	for _, failure := range []error{several{}, boxed{several{}}, fmt.Errorf("wrapped: %w", boxed{several{}})} {
		err := retrier.UnaryClientInterceptor()(t.Context(), read, nil, nil, nil,
			func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
				for _, opt := range opts {
					if o, ok := opt.(grpc.OnFinishCallOption); ok {
						o.OnFinish(failure)
					}
				}
				return failure
			})
		assert.Equal(t, codes.Unknown, status.Code(err))
	}
}
