// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// How much may be on its way in each direction of an in-memory connection:
// more than a step writes, so that no answer waits for its reader.
const bufconnBytes = 256 << 10

// Server is a scripted HTTP/2 server. It is safe for concurrent use. Its record
// grows with every stream, and has the data of all requests in it.
type Server struct {
	cfg      config
	listener net.Listener
	running  sync.WaitGroup
	tb       testing.TB // nil without a test

	mu      sync.Mutex
	closed  bool
	faults  error // misuse, without a test to fail
	clients []*grpc.ClientConn
	script  []Step
	always  Step
	conns   []*conn
	streams []*stream
	changed chan struct{} // closed and replaced when the record changes
}

// New starts a server that is closed when the test ends. A faulty option,
// script or dial fails the test through Fatalf. Inside a synctest bubble, tb
// must be the bubble's.
func New(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	srv, err := start(opts)
	if err != nil {
		tb.Fatalf("rawh2: New: %v", err)
		return nil
	}
	srv.tb = tb
	tb.Cleanup(srv.Close)
	return srv
}

// Start starts a server without a test; the caller closes it. It fails if an
// option is faulty. After a faulty script or dial, all streams are answered
// with INTERNAL and the fault.
func Start(opts ...Option) (*Server, error) {
	srv, err := start(opts)
	if err != nil {
		return nil, fmt.Errorf("rawh2: Start: %w", err)
	}
	return srv, nil
}

func start(opts []Option) (*Server, error) {
	srv := &Server{always: OK(nil), changed: make(chan struct{})}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("option %d is nil", i+1)
		}
		if err := opt.apply(&srv.cfg); err != nil {
			return nil, err
		}
	}
	if srv.cfg.bufconn {
		srv.listener = bufconn.Listen(bufconnBytes)
	} else {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		srv.listener = listener
	}
	srv.running.Go(srv.accept)
	return srv, nil
}

// Close closes the connections of Dial, the listener and all connections that
// it accepted, and returns when no goroutine of the server is left. Closing
// again does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	clients := slices.Clone(s.clients)
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, cc := range clients {
		cc.Close()
	}
	s.listener.Close()
	for _, c := range conns {
		c.net.Close()
	}
	s.running.Wait()
}

// Script adds steps to the script. Each new stream takes the next step.
func (s *Server) Script(steps ...Step) {
	s.helper()
	for i, next := range steps {
		if err := next.fault(); err != nil {
			s.misuse("Script: step %d: %v", i+1, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, steps...)
}

// Always sets the step for the streams that come when the script is used up.
// The default is OK(nil).
func (s *Server) Always(next Step) {
	s.helper()
	if err := next.fault(); err != nil {
		s.misuse("Always: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = next
}

// Target returns the address of the server for [grpc.NewClient].
func (s *Server) Target() string {
	return "passthrough:///" + s.listener.Addr().String()
}

// DialOptions returns what [grpc.NewClient] needs to reach the server: plain
// text, and for [Bufconn] the dialer. Options given after them win.
func (s *Server) DialOptions() []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if pipe, ok := s.listener.(*bufconn.Listener); ok {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return pipe.DialContext(ctx)
		}))
	}
	return opts
}

// Dial returns a client connection to the server, which is closed with it. The
// options come after those of [Server.DialOptions], so that they win. If grpc
// refuses them, or the server is closed, that is a fault.
func (s *Server) Dial(opts ...grpc.DialOption) *grpc.ClientConn {
	s.helper()
	cc, err := grpc.NewClient(s.Target(), append(s.DialOptions(), opts...)...)
	if err != nil {
		s.misuse("Dial: %v", err)
		// grpc always accepts the server's own options.
		cc, _ = grpc.NewClient(s.Target(), s.DialOptions()...)
	}
	if !s.keep(cc) {
		cc.Close()
		s.misuse("Dial: the server is closed")
	}
	return cc
}

// keep notes a connection that Close is to close, unless it is too late.
func (s *Server) keep(cc *grpc.ClientConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.clients = append(s.clients, cc)
	}
	return !s.closed
}

func (s *Server) helper() {
	if s.tb != nil {
		s.tb.Helper()
	}
}

// misuse reports a fault of the server's user.
func (s *Server) misuse(format string, args ...any) {
	if s.tb != nil {
		s.tb.Helper()
		s.tb.Fatalf("rawh2: "+format, args...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = errors.Join(s.faults, fmt.Errorf("rawh2: "+format, args...))
}

// accept takes connections until the listener is closed.
func (s *Server) accept() {
	for {
		accepted, err := s.listener.Accept()
		if err != nil {
			return
		}
		c := newConn(s, accepted)
		if !s.add(c) {
			accepted.Close()
			return
		}
		s.running.Go(c.serve)
	}
}

// add records a connection unless the server is closed.
func (s *Server) add(c *conn) bool {
	added := false
	s.note(func() {
		if s.closed {
			return
		}
		added = true
		s.conns = append(s.conns, c)
		c.number = len(s.conns)
	})
	return added
}

// enter records a new stream and gives it the next step, both at once, so that
// the record has the streams in the order of the script.
func (s *Server) enter(st *stream) {
	s.note(func() {
		s.streams = append(s.streams, st)
		switch {
		case st.seen.Ignored:
		case s.faults != nil:
			text := url.PathEscape(s.faults.Error())
			st.actions = Trailers("grpc-status", "13", "grpc-message", text).AtHeaders().actions
		case len(s.script) > 0:
			st.actions = s.script[0].actions
			s.script = s.script[1:]
		default:
			st.actions = s.always.actions
		}
	})
}
