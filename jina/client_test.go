// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestConnectionWithoutOptions holds that a connection which nobody retries on is found
// out before anything is sent.
func TestConnectionWithoutOptions(t *testing.T) {
	t.Parallel()
	const text = "jina: /x: bad client input: the connection was not dialled with the options of jina.DialOptions " +
		"(asking for them: rpc error: code = Internal desc = there is an empty key in the header)"
	retrier, err := grpcretry.New()
	require.NoError(t, err)
	for name, opts := range map[string][]grpc.DialOption{
		"no options": nil, "another Retrier": retrier.DialOptions(),
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			conn := r.gateway.Dial(opts...)
			client := jina.NewClient(conn)
			for range 2 {
				response, err := only(client.Post(t.Context(), "/x", jina.Documents(texts(1)...)))
				require.EqualError(t, err, text)
				require.Nil(t, response)
				require.ErrorIs(t, err, jina.ErrBadClientInput)
			}
			require.ErrorIs(t, client.Ready(t.Context()), jina.ErrBadClientInput)
			assert.Empty(t, r.gateway.Attempts())

			conn.Connect()
			require.True(t, conn.WaitForStateChange(t.Context(), connectivity.Idle))
			_, err := only(jina.NewClient(conn).Post(t.Context(), "/x", jina.Documents(texts(1)...)))
			require.EqualError(t, err, text)
			assert.Empty(t, r.gateway.Attempts(), "nor on a connection that is ready")
			require.NoError(t, client.Close())
			assert.NotEqual(t, connectivity.Shutdown, conn.GetState(), "it is not ours to close")
		})
	}
}

// TestProbe holds that a client finds the options whatever stands before them, and that
// the question for them disturbs nobody.
func TestProbe(t *testing.T) {
	t.Parallel()
	bubble(t, "interceptors before", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		calls := 0
		options, err := jina.DialOptions(jina.Params{})
		require.NoError(t, err)
		before := func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			calls++
			if err := ctx.Err(); err != nil {
				return err
			}
			request := req.(proto.Message)
			response := reply.(proto.Message)
			assert.True(t, request.ProtoReflect().IsValid() && response.ProtoReflect().IsValid())
			assert.NotNil(t, ctx.Value(callerKey{}), "it is the caller's context")
			return invoker(metadata.NewOutgoingContext(ctx, metadata.Pairs("token", "x")), method, req, reply, cc, opts...)
		}
		client := jina.NewClient(r.gateway.Dial(append([]grpc.DialOption{grpc.WithUnaryInterceptor(before)}, options...)...))
		ended, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, "here"))
		cancel()
		require.ErrorIs(t, client.Ready(ended), context.Canceled)
		require.NoError(t, client.Ready(context.WithValue(t.Context(), callerKey{}, "here")))
		assert.Equal(t, 3, calls, "one question for both")

		// Without the options, and without the metadata that gRPC refuses.
		client = jina.NewClient(r.gateway.Dial(grpc.WithUnaryInterceptor(before)))
		require.ErrorContains(t, client.Ready(context.WithValue(t.Context(), callerKey{}, "here")), "was not dialled with the options")
		assert.Len(t, r.gateway.Attempts(), 1)
	})
	bubble(t, "Close", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		refuse := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return errMine
		}
		client, err := jina.Dial(r.gateway.Target(), jina.Params{}, append(r.gateway.DialOptions(), grpc.WithUnaryInterceptor(refuse))...)
		require.NoError(t, err)
		require.ErrorIs(t, client.Ready(t.Context()), errMine)
		require.NoError(t, client.Close())
		require.Error(t, client.Close(), "it is closed")
	})
}

type callerKey struct{}

// only returns the first that a Post yields.
func only(post func(yield func(*jina.Response, error) bool)) (*jina.Response, error) {
	for response, err := range post {
		return response, err
	}
	return nil, errors.New("nothing was yielded")
}

func TestNoClient(t *testing.T) {
	t.Parallel()
	for client, text := range map[*jina.Client]string{
		{}:                                      "the connection is nil",
		nil:                                     "the client is nil",
		jina.NewClient(nil):                     "the connection is nil",
		jina.NewClient((*grpc.ClientConn)(nil)): "the connection is nil",
	} {
		_, err := only(client.Post(t.Context(), "/x", jina.Documents()))
		require.EqualError(t, err, "jina: /x: bad client input: "+text)
		require.EqualError(t, client.Ready(t.Context()), "jina: dry_run: bad client input: "+text)
		require.NoError(t, client.Close())
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 3})
		require.NoError(t, r.client.Ready(t.Context()))
		r.gateway.SetReady(errors.New("model is loading"))
		err := r.client.Ready(t.Context())
		require.EqualError(t, err, "jina: dry_run: executor: model is loading")
		_, ok := errors.AsType[*jina.ExecutorError](err)
		assert.True(t, ok)

		r.gateway.SetReady(nil)
		dryRun := jinapb.JinaGatewayDryRunRPC_DryRun_FullMethodName
		r.gateway.Script(dryRun, testserver.Fail(codes.Unavailable, "x").Times(2))
		require.NoError(t, r.client.Ready(t.Context()))
		r.gateway.Script(dryRun, testserver.Fail(codes.PermissionDenied, "x"))
		err = r.client.Ready(t.Context())
		require.ErrorIs(t, err, jina.ErrBadServerFlow)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.gateway.Script(dryRun, testserver.Hang())
		require.ErrorIs(t, r.client.Ready(ctx), context.DeadlineExceeded)
	})
	for _, attempts := range []int{1, 3} {
		bubble(t, fmt.Sprintf("%d attempts", attempts), func(t *testing.T) {
			r := newRig(t, jina.Params{MaxAttempts: attempts, Timeout: time.Second})
			r.gateway.Script("", testserver.Fail(codes.Unavailable, "x").Delay(time.Minute).Forever())
			err := r.client.Ready(t.Context())
			failed, ok := errors.AsType[*jina.Error](err)
			require.True(t, ok)
			assert.Equal(t, attempts, failed.Attempts())
			require.ErrorIs(t, err, jina.ErrConnection, "Timeout is not for it")
			begun := time.Now()
			_, err = jinapb.NewJinaExecutorSnapshotClient(r.conn).Snapshot(t.Context(), &emptypb.Empty{})
			require.Error(t, err)
			assert.Equal(t, time.Minute, time.Since(begun), "nor for others")
		})
	}
}

// TestNeverMultiplied holds that one layer retries a method: of Jina's client both do,
// so that 3 attempts are 9. The first three methods are gRPC's own, as its count of
// earlier attempts shows, and the others the suite's.
func TestNeverMultiplied(t *testing.T) {
	t.Parallel()
	calls := map[string]struct {
		call     func(ctx context.Context, r *rig) error
		attempts int
	}{
		jinapb.JinaGatewayDryRunRPC_DryRun_FullMethodName: {func(ctx context.Context, r *rig) error {
			return r.client.Ready(ctx)
		}, 3},
		jinapb.JinaInfoRPC_XStatus_FullMethodName: {func(ctx context.Context, r *rig) error {
			_, err := jinapb.NewJinaInfoRPCClient(r.conn).XStatus(ctx, &emptypb.Empty{})
			return err
		}, 3},
		jinapb.JinaDiscoverEndpointsRPC_EndpointDiscovery_FullMethodName: {func(ctx context.Context, r *rig) error {
			_, err := jinapb.NewJinaDiscoverEndpointsRPCClient(r.conn).EndpointDiscovery(ctx, &emptypb.Empty{})
			return err
		}, 3},
		singleMethod: {func(ctx context.Context, r *rig) error {
			return r.post(ctx, jina.Documents(texts(1)...), jina.WithStream(false)).err
		}, 3},
		callMethod: {func(ctx context.Context, r *rig) error {
			return r.post(ctx, jina.Documents(texts(1)...)).err
		}, 3},
		jinapb.JinaExecutorSnapshot_Snapshot_FullMethodName: {func(ctx context.Context, r *rig) error {
			_, err := jinapb.NewJinaExecutorSnapshotClient(r.conn).Snapshot(ctx, &emptypb.Empty{})
			return err
		}, 1}, // nobody said that it may run twice
	}
	for method, row := range calls {
		for _, code := range []codes.Code{codes.Unavailable, codes.Internal} {
			bubble(t, method+" "+code.String(), func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 3})
				r.gateway.Script(method, testserver.Fail(code, "x").Forever())
				assert.Equal(t, code, status.Code(row.call(t.Context(), r)))
				attempts := r.gateway.Attempts()
				require.Len(t, attempts, row.attempts)
				for i, a := range attempts {
					assert.Equal(t, i, max(a.PreviousAttempts, 0))
				}
			})
		}
	}
}

// TestParamsOfOnePost holds that a Post may have params of its own.
func TestParamsOfOnePost(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{MaxAttempts: 5})
			r.gateway.Script("", testserver.Fail(codes.Unavailable, "x").Forever())
			o := r.post(t.Context(), m.input(texts(1)), jina.WithStream(m.stream), jina.WithParams(jina.Params{MaxAttempts: 2, InitialBackoff: -1}))
			require.ErrorIs(t, o.err, jina.ErrConnection)
			assert.Equal(t, []string{"2"}, o.attempts)
			assert.Empty(t, r.waits)
		})
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	bubble(t, "memory", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		client, err := jina.Dial(r.gateway.Target(), jina.Params{MaxAttempts: 2}, r.gateway.DialOptions()...)
		require.NoError(t, err)
		require.NoError(t, client.Ready(t.Context()))
		require.NoError(t, client.Close())
		err = client.Ready(t.Context())
		assert.Equal(t, codes.Canceled, status.Code(err), "it was ours to close")
	})
	_, err := jina.Dial("passthrough:///x", jina.Params{})
	require.ErrorContains(t, err, `jina: dialling "passthrough:///x": grpc: no transport security set`)
	for _, target := range []string{"http://x", "https://x", "ws://x", "wss://x", "HTTP://x"} {
		_, err = jina.Dial(target, jina.Params{})
		require.EqualError(t, err, `jina: the target "`+target+`" is not of gRPC, which is all that there is here`)
	}
	_, err = jina.Dial("grpc://", jina.Params{})
	require.EqualError(t, err, `jina: the target "grpc://" must have the form grpc://host:port`)
	for _, target := range []string{"grpc://localhost", "GRPC://x:1/y", "grpcs://a b:1", "grpc:///x:1", "grpc://:1", "grpc://x:"} {
		_, err = jina.Dial(target, jina.Params{})
		require.ErrorContains(t, err, "://host:port")
	}
}

// TestDialSchemes holds which targets are encrypted.
func TestDialSchemes(t *testing.T) {
	t.Parallel()
	gateway := testserver.New(t, testserver.TCP())
	gateway.Script("", testserver.Fail(codes.AlreadyExists, "here I am").Forever())
	for _, target := range []string{"grpc://" + gateway.Addr(), "GRPC://" + gateway.Addr() + "/", gateway.Addr()} {
		var opts []grpc.DialOption
		if target == gateway.Addr() {
			opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
		}
		client, err := jina.Dial(target, jina.Params{}, opts...)
		require.NoError(t, err)
		assert.Equal(t, codes.AlreadyExists, status.Code(client.Ready(t.Context())))
		require.NoError(t, client.Close())
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	client, err := jina.Dial("grpcs://"+listener.Addr().String(), jina.Params{})
	require.NoError(t, err)
	defer client.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.Ready(t.Context())
	}()
	conn, err := listener.Accept()
	require.NoError(t, err)
	hello := make(chan error, 1)
	server := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		hello <- nil
		return nil, errMine
	}})
	require.ErrorIs(t, server.HandshakeContext(t.Context()), errMine)
	require.NoError(t, <-hello)
	require.NoError(t, conn.Close())
	<-done
}
