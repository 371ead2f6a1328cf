// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/test/bufconn"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// scripted serves every attempt with a step.
func scripted(step testserver.Step, opts ...testserver.Option) func(*testing.T, ...grpc.DialOption) *grpc.ClientConn {
	return func(t *testing.T, dial ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		server := testserver.New(t, opts...)
		server.Script("", step.Forever())
		return server.Dial(dial...)
	}
}

// raw serves every stream with a step, below gRPC.
func raw(step rawh2.Step, opts ...rawh2.Option) func(*testing.T, ...grpc.DialOption) *grpc.ClientConn {
	return func(t *testing.T, dial ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		server := rawh2.New(t, append(opts, rawh2.Bufconn())...)
		server.Always(step)
		return server.Dial(dial...)
	}
}

// stopped is a server that is not there.
func stopped(t *testing.T, dial ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server := testserver.New(t)
	server.Stop()
	return server.Dial(dial...)
}

// healthy is a server that answers.
func healthy(t *testing.T, dial ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return scripted(testserver.OK())(t, dial...)
}

// resolved is a connection whose addresses come from a resolver of the test's own.
func resolved(begin func(*manual.Resolver)) func(*testing.T, ...grpc.DialOption) *grpc.ClientConn {
	return func(t *testing.T, dial ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		r := manual.NewBuilderWithScheme("test")
		begin(r)
		conn, err := grpc.NewClient("test:///anything", append(dial, grpc.WithResolvers(r),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// with adds dial options.
func with(dial func(*testing.T, ...grpc.DialOption) *grpc.ClientConn, more ...grpc.DialOption) func(*testing.T, ...grpc.DialOption) *grpc.ClientConn {
	return func(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		return dial(t, append(opts, more...)...)
	}
}

func invoke(ctx context.Context, conn *grpc.ClientConn, method string, opts ...grpc.CallOption) error {
	return conn.Invoke(ctx, method, &testv1.Request{Payload: []byte("payload")}, &testv1.Response{}, opts...)
}

// option makes a plain call with an option.
func option(opts ...grpc.CallOption) func(*testing.T, *grpc.ClientConn, string) error {
	return func(t *testing.T, conn *grpc.ClientConn, method string) error {
		t.Helper()
		return invoke(t.Context(), conn, method, opts...)
	}
}

// within makes a plain call with a deadline.
func within(d time.Duration, opts ...grpc.CallOption) func(*testing.T, *grpc.ClientConn, string) error {
	return func(t *testing.T, conn *grpc.ClientConn, method string) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return invoke(ctx, conn, method, opts...)
	}
}

// unencodable is a message that proto cannot marshal, and a reply that it cannot
// unmarshal.
var unencodable = &testv1.Request{Key: "\xff"}

// token is a credential that fails.
type token struct{ err error }

func (c token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, c.err
}
func (token) RequireTransportSecurity() bool { return false }

// deaf is a connection that stops to deliver what the peer sends.
type deaf struct {
	net.Conn

	on     *atomic.Bool
	closed chan struct{}
}

func (c *deaf) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.on.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *deaf) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

// silenced is a server whose answers no longer arrive once a call is under way, as
// behind a router that lost power.
func silenced(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	on := &atomic.Bool{}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		on.Store(true)
		<-stream.Context().Done()
		return nil
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := listener.DialContext(ctx)
		on.Store(false)
		return &deaf{Conn: conn, on: on, closed: make(chan struct{})}, err
	}
	conn, err := grpc.NewClient("passthrough:///silenced", append(opts, grpc.WithContextDialer(dialer),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second}))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stopping is a server that stops while it works on a call, and comes back.
func stopping(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server := testserver.New(t)
	server.Script("", testserver.Do(func(stream grpc.ServerStream) error {
		server.Stop()
		_ = server.Start()
		<-stream.Context().Done()
		return nil
	}).Forever())
	return server.Dial(opts...)
}

// closedPort is a TCP port that nobody listens on.
func closedPort(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server := testserver.New(t, testserver.TCP())
	server.Stop()
	return server.Dial(opts...)
}

// memoryListener returns a listener in memory and how to dial it.
func memoryListener() (net.Listener, func(context.Context) (net.Conn, error)) {
	listener := bufconn.Listen(1 << 20)
	return listener, listener.DialContext
}

// inMemory starts a plain gRPC server and returns how to connect to it.
func inMemory(t *testing.T, register func(*grpc.Server)) func(...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener, dial := memoryListener()
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return func(opts ...grpc.DialOption) *grpc.ClientConn { return dialMemory(t, dial, opts...) }
}

func dialMemory(t *testing.T, dial func(context.Context) (net.Conn, error), opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///memory", append(opts,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// unimplemented is a gRPC server without services.
func unimplemented(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return inMemory(t, func(*grpc.Server) {})(opts...)
}
