// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// The tests of this file put interceptors below the suite that do what they like
// with the options and the invoker that they are given.

// below is an interceptor that is installed after the suite's.
func below(f grpc.UnaryClientInterceptor) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(f)
}

// never repeats nothing without proof, and loses no time.
var never = grpcretry.Policy{Repeat: grpcretry.RepeatNever, Backoff: grpcretry.Backoff{Initial: -1}, ConnectWait: -1}

// clientOf returns a client of a server under a policy, with further options.
func clientOf(t *testing.T, server *testserver.Server, p grpcretry.Policy, opts ...grpc.DialOption) testv1.TestServiceClient {
	t.Helper()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(p))
	require.NoError(t, err)
	return testv1.NewTestServiceClient(server.Dial(append(retrier.DialOptions(), opts...)...))
}

// bearer is a credential that tells the server who calls.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"user": string(b)}, nil
}
func (bearer) RequireTransportSecurity() bool { return false }

// TestInnerUsesOptionsLater: a cache that answers at once and refreshes later must
// find the options of its own call, also while other calls are made.
func TestInnerUsesOptionsLater(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	refresh := make(chan struct{})
	var background sync.WaitGroup
	cache := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if req.(*testv1.Request).GetKey() != "A" {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		background.Go(func() {
			<-refresh
			_ = invoker(context.WithoutCancel(ctx), method, req, &testv1.Response{}, cc, opts...)
		})
		return nil
	}
	client := clientOf(t, server, grpcretry.Policy{}, below(cache))
	_, err := client.Read(t.Context(), &testv1.Request{Key: "A"}, grpc.PerRPCCredentials(bearer("A")))
	require.NoError(t, err)
	for i := range 50 {
		if i == 25 {
			close(refresh)
		}
		_, err = client.Read(t.Context(), &testv1.Request{Key: "B"}, grpc.PerRPCCredentials(bearer("B")))
		require.NoError(t, err)
	}
	background.Wait()
	for _, a := range server.Attempts() {
		assert.Equal(t, []string{a.Requests[0].(*testv1.Request).GetKey()}, a.Metadata["user"])
	}
}

// TestInnerKeepsTheOptions: an interceptor may keep the options for a log; they do
// not change under it.
func TestInnerKeepsTheOptions(t *testing.T) {
	t.Parallel()
	var kept [][]grpc.CallOption
	keep := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		kept = append(kept, opts)
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	client := clientOf(t, testserver.New(t), grpcretry.Policy{}, below(keep))
	for i := range 10 {
		_, err := client.Read(t.Context(), &testv1.Request{}, grpc.MaxCallRecvMsgSize(1000+i))
		require.NoError(t, err)
	}
	for i, opts := range kept {
		assert.Contains(t, opts, grpc.MaxCallRecvMsgSize(1000+i))
		assert.NotContains(t, opts, nil)
	}
}

// TestInnerFailsOver: an interceptor answers for a server that is away by asking
// another, whose failure says nothing of the first, not even if the two are wrapped
// together.
func TestInnerFailsOver(t *testing.T) {
	t.Parallel()
	for _, wrapped := range []bool{false, true} {
		primary, backup := testserver.New(t), testserver.New(t)
		primary.Stop()
		applied := &counter{}
		applied.serve(backup, write)
		backup.Script(write, testserver.Cut().Applied().Forever())
		second := backup.Dial()
		failover := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoker(ctx, method, req, reply, cc, opts...)
			if status.Code(err) != codes.Unavailable {
				return err
			}
			backupErr := second.Invoke(ctx, method, req, reply)
			if backupErr != nil && wrapped {
				return fmt.Errorf("%w; and the backup: %w", err, backupErr)
			}
			return backupErr
		}
		_, err := clientOf(t, primary, grpcretry.Policy{}, below(failover)).Write(t.Context(), &testv1.Request{})
		require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
		assert.ErrorContains(t, err, "an interceptor after the Retrier's")
		assert.Equal(t, map[string]int{write: 1}, applied.counts())
	}
}

// TestInnerDropsOptions: without its options the suite knows nothing, and so
// repeats nothing that must not be repeated; what the error itself says it obeys.
func TestInnerDropsOptions(t *testing.T) {
	t.Run("all of them", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			server := testserver.New(t)
			drop := below(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				return invoker(ctx, method, req, reply, cc)
			})
			client := clientOf(t, server, grpcretry.Policy{}, drop)
			server.Script(write, testserver.Cut().Applied())
			_, err := client.Write(t.Context(), &testv1.Request{})
			require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)

			server.Script(read, busy.RetryInfo(3*time.Second))
			start := time.Now()
			_, err = client.Read(t.Context(), &testv1.Request{})
			require.NoError(t, err)
			assert.Equal(t, 3*time.Second, time.Since(start))
		})
	})
	t.Run("the peer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			server := testserver.New(t)
			server.Script(write, testserver.Cut().Applied().Forever())
			drop := below(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				var rest []grpc.CallOption
				for _, opt := range opts {
					if _, isPeer := opt.(grpc.PeerCallOption); !isPeer {
						rest = append(rest, opt)
					}
				}
				return invoker(ctx, method, req, reply, cc, rest...)
			})
			_, err := clientOf(t, server, never, drop).Write(t.Context(), &testv1.Request{})
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.Len(t, server.Attempts(), 1)
		})
	})
}

// nameless is a connection that does not know its peer, as tunnels may be.
type nameless struct{ net.Conn }

func (nameless) RemoteAddr() net.Addr { return nil }

func TestConnectionWithoutAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		listener, dial := memoryListener()
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unavailable, "busy")
		}))
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		var seen []grpcretry.Attempt
		retrier, err := grpcretry.New(grpcretry.WithPolicy(never), grpcretry.WithObserver(grpcretry.Observer{
			Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) { seen = append(seen, a) },
		}))
		require.NoError(t, err)
		conn, err := grpc.NewClient("passthrough:///tunnel", append(retrier.DialOptions(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				conn, err := dial(ctx)
				return nameless{conn}, err
			}))...)
		require.NoError(t, err)
		defer conn.Close()
		require.Error(t, invoke(t.Context(), conn, write))
		require.Len(t, seen, 1)
		assert.Equal(t, grpcretry.Answered, seen[0].Failure.Kind)
	})
}

// TestInnerAnswersEarly: what an abandoned attempt leaves behind must reach neither
// the next attempt nor another call; the race detector watches.
func TestInnerAnswersEarly(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	server.Script(read, testserver.OK().Trailer("t", "late").Forever())
	var background sync.WaitGroup
	early := func(ctx context.Context, method string, req, _ any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if number, _ := grpcretry.AttemptFromContext(ctx); number == 0 {
			background.Go(func() {
				_ = invoker(context.WithoutCancel(ctx), method, req, &testv1.Response{}, cc, opts...)
			})
			return status.Error(codes.Unavailable, "gave up")
		}
		return invoker(ctx, method, req, &testv1.Response{}, cc, opts...)
	}
	client := clientOf(t, server, noWait, below(early))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 100 {
				var trailer metadata.MD
				_, err := client.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
				assert.NoError(t, err)
				assert.Equal(t, metadata.MD{"t": {"late"}, "jina-client-attempts": {"2"}}, trailer)
			}
		})
	}
	callers.Wait()
	background.Wait()
}

// TestInnerEndsTheContext: the context ends after an attempt did, and before its end
// is looked at. An answer that is final anyway is returned; anything else gives way
// to the end of the context.
func TestInnerEndsTheContext(t *testing.T) {
	for name, row := range map[string]struct {
		script []testserver.Step // the context ends after the last
		code   codes.Code
		ended  bool
	}{
		"a final answer":       {[]testserver.Step{testserver.Fail(codes.NotFound, "none")}, codes.NotFound, false},
		"a final answer later": {[]testserver.Step{busy, testserver.Fail(codes.NotFound, "none")}, codes.NotFound, false},
		"a listed answer":      {[]testserver.Step{busy}, codes.Canceled, true},
		"no answer":            {[]testserver.Step{busy, testserver.Cut()}, codes.Canceled, true},
		"no answer, unlisted":  {[]testserver.Step{busy, testserver.Fail(codes.Internal, "odd").SendHeader()}, codes.Canceled, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := testserver.New(t)
				server.Script(read, row.script...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				made := 0
				end := below(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					err := invoker(ctx, method, req, reply, cc, opts...)
					if made++; made == len(row.script) {
						cancel()
					}
					return err
				})
				_, err := clientOf(t, server, grpcretry.Policy{}, end).Read(ctx, &testv1.Request{})
				assert.Equal(t, row.code, status.Code(err), "%v", err)
				assert.Equal(t, row.ended, errors.Is(err, context.Canceled))
				assert.Len(t, server.Attempts(), len(row.script))
			})
		})
	}
}

// TestInnerRetries: a retry below the suite ends more than one attempt of gRPC for
// one of ours; what it returns counts, and no proof is drawn from it.
func TestInnerRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := testserver.New(t)
		server.Script(write, busy, testserver.Cut().Applied().Forever())
		twice := below(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err := invoker(ctx, method, req, reply, cc, opts...); err == nil {
				return nil
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		})
		client := clientOf(t, server, grpcretry.Policy{}, twice)
		_, err := client.Write(t.Context(), &testv1.Request{})
		require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
		assert.Len(t, server.Attempts(), 2)
		for i := range 20 {
			server.Script(read, busy)
			var trailer metadata.MD
			response, err := client.Read(t.Context(), &testv1.Request{Key: strconv.Itoa(i)}, grpc.Trailer(&trailer))
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(i), response.GetKey())
			assert.Equal(t, []string{"1"}, trailer["jina-client-attempts"])
		}
	})
}
