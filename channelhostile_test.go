// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// The tests of this file are of methods left to gRPC in odd circumstances.

type badCreds struct{ n atomic.Int64 }

func (b *badCreds) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	b.n.Add(1)
	return nil, status.Error(codes.Unavailable, "no token")
}

func (b *badCreds) RequireTransportSecurity() bool {
	return false
}

// badCreds fail before there is a stream.
func TestLaw1CredentialsFail(t *testing.T) {
	for name, o := range map[string][]grpcretry.Option{
		"resolver": {grpcretry.WithChannelRetry(read), grpcretry.WithResolverConfig()},
		"plain":    nil,
		"channel":  {grpcretry.WithChannelRetry(read, put, download)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, quick, o...)
				conn, push := pushed(t, r)
				conn.Connect()
				push(retryAll)
				c := testv1.NewTestServiceClient(conn)
				for _, m := range []string{read, put, upload, download} {
					b := &badCreds{}
					var trailer metadata.MD
					var err error
					switch m {
					case read:
						_, err = c.Read(t.Context(), &testv1.Request{}, grpc.PerRPCCredentials(b), grpc.Trailer(&trailer))
					case put:
						_, err = c.Put(t.Context(), &testv1.Request{}, grpc.PerRPCCredentials(b), grpc.Trailer(&trailer))
					case upload:
						_, _, err = callUpload(t.Context(), c, grpc.PerRPCCredentials(b), grpc.Trailer(&trailer))
					case download:
						_, _, err = callDownload(t.Context(), c, grpc.PerRPCCredentials(b), grpc.Trailer(&trailer))
					}
					n, _ := grpcretry.AttemptsFromMD(trailer)
					assert.EqualValues(t, b.n.Load(), n, "%s: %v", m, err)
				}
			})
		})
	}
}

func TestLaw1TwoRetriersWithChannels(t *testing.T) {
	mk := func(o ...grpcretry.Option) *grpcretry.Retrier {
		r, err := grpcretry.New(append(o, grpcretry.WithPolicy(quick))...)
		require.NoError(t, err)
		return r
	}
	for name, rs := range map[string][]*grpcretry.Retrier{
		"channel read, plain":        {mk(grpcretry.WithChannelRetry(read)), mk()},
		"plain, channel read":        {mk(), mk(grpcretry.WithChannelRetry(read))},
		"channel read, channel put":  {mk(grpcretry.WithChannelRetry(read)), mk(grpcretry.WithChannelRetry(put))},
		"channel read, channel read": {mk(grpcretry.WithChannelRetry(read)), mk(grpcretry.WithChannelRetry(read))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := testserver.New(t)
				server.Script("", busy.Forever())
				c := testv1.NewTestServiceClient(server.Dial(append(rs[0].DialOptions(), rs[1].DialOptions()...)...))
				for _, m := range []string{read, put, download, upload} {
					before := len(server.Attempts())
					var tr metadata.MD
					var err error
					switch m {
					case read:
						_, err = c.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&tr))
					case put:
						_, err = c.Put(t.Context(), &testv1.Request{}, grpc.Trailer(&tr))
					case download:
						_, _, err = callDownload(t.Context(), c, grpc.Trailer(&tr))
					case upload:
						_, _, err = callUpload(t.Context(), c, grpc.Trailer(&tr))
					}
					n, _ := grpcretry.AttemptsFromMD(tr)
					made := len(server.Attempts()) - before
					assert.Equal(t, made, n, "%s: %v", m, err)
				}
			})
		})
	}
}

// Calls that are made with the context of a native stream are not its attempts.
func TestLaw1ContextOfANativeStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quick, grpcretry.WithChannelRetry(download))
		s, err := r.Download(t.Context(), &testv1.Request{Key: "a"})
		require.NoError(t, err)
		for range 3 {
			_, err = r.Put(s.Context(), &testv1.Request{})
			require.NoError(t, err)
		}
		_, trailer, err := receiveAll(s)
		require.NoError(t, err)
		assert.Len(t, r.server.Attempts(download), 1)
		n, _ := grpcretry.AttemptsFromMD(trailer)
		assert.Equal(t, 1, n)
		assert.Empty(t, r.journal.done)
	})
}

// Nor are those that an interceptor below makes.
func TestLaw1CallsWithinNativeCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := testserver.New(t)
		retrier, err := grpcretry.New(grpcretry.WithPolicy(quick), grpcretry.WithChannelRetry(read))
		require.NoError(t, err)
		var conn *grpc.ClientConn
		conn = server.Dial(append(retrier.DialOptions(), grpc.WithChainUnaryInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn, inv grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if m == read {
				if _, err := testv1.NewTestServiceClient(conn).Put(ctx, &testv1.Request{}); err != nil {
					return err
				}
			}
			return inv(ctx, m, req, reply, cc, opts...)
		}))...)
		var trailer metadata.MD
		_, err = testv1.NewTestServiceClient(conn).Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
		require.NoError(t, err)
		n, _ := grpcretry.AttemptsFromMD(trailer)
		assert.Equal(t, 1, n)
	})
}

func TestResolverConfigKeepsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := quick
		p.Timeout = time.Second
		r := newRig(t, p, grpcretry.WithChannelRetry(read), grpcretry.WithResolverConfig())
		r.server.Script("", testserver.Hang().Forever())
		conn, push := pushed(t, r)
		conn.Connect()
		push(retryAll)
		for _, m := range []string{read, put} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			start := time.Now()
			var err error
			if m == read {
				_, err = testv1.NewTestServiceClient(conn).Read(ctx, &testv1.Request{})
			} else {
				_, err = testv1.NewTestServiceClient(conn).Put(ctx, &testv1.Request{})
			}
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			assert.Equal(t, time.Second, time.Since(start), m)
			cancel()
		}
	})
}

func TestResolverConfigKeepsCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := quick
		p.Check = func(any) error { return errors.New("bad reply") }
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithMethodPolicy(put, p), grpcretry.WithChannelRetry(read), grpcretry.WithResolverConfig())
		conn, push := pushed(t, r)
		conn.Connect()
		push(retryAll)
		_, err := testv1.NewTestServiceClient(conn).Put(t.Context(), &testv1.Request{})
		assert.Error(t, err)
	})
}

// A call with a policy of its own goes by that, whoever has the method.
func TestResolverConfigAndCallPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quick, grpcretry.WithChannelRetry(read), grpcretry.WithResolverConfig())
		r.server.Script("", busy.Forever())
		conn, push := pushed(t, r)
		conn.Connect()
		push(retryAll)
		client := testv1.NewTestServiceClient(conn)
		_, err := client.Write(t.Context(), &testv1.Request{}, grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: 1, Repeat: grpcretry.RepeatNever}))
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Len(t, r.server.Attempts(write), 1)
	})
}

// The first call of a connection waits for what the resolver says.
func TestResolverConfigFirstCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var notices []string
		r := newRig(t, quick, grpcretry.WithChannelRetry(read), grpcretry.WithResolverConfig(), noticed(&notices))
		r.server.Script("", busy.Times(1))
		push := manual.NewBuilderWithScheme("manual")
		state := resolver.State{Addresses: []resolver.Address{{Addr: "bufconn"}}}
		push.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
			state.ServiceConfig = cc.ParseServiceConfig(retryAll)
			push.InitialState(state)
		}
		all := append(r.server.DialOptions(), grpc.WithResolvers(push))
		conn, err := grpc.NewClient("manual:///test", append(all, r.retrier.DialOptions()...)...)
		require.NoError(t, err)
		defer conn.Close()
		c := testv1.NewTestServiceClient(conn)
		_, err = c.Put(t.Context(), &testv1.Request{})
		assert.NoError(t, err, "either layer would retry it")
	})
}
