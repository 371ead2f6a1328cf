// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

// memorySize is what an in-memory connection holds of each direction, in bytes.
const memorySize = 1 << 20

// Server is a gRPC server that does what its scripts say and records what
// reaches it. It serves every method of every service that is linked into the
// program or registered. All methods are safe for concurrent use.
type Server struct {
	tb   testing.TB // nil without a test
	opts options

	mu       sync.Mutex
	addr     string
	life     *life   // nil while stopped
	lives    []*life // all of them, to be waited for
	done     bool    // Close was called
	clients  []*grpc.ClientConn
	services map[string]*service
	handlers map[string]func(grpc.ServerStream) error // by full method
	scripts  map[string]*script                       // by full method, "" for all
	faults   error
	attempts []*Attempt
	changed  chan struct{} // closed and replaced at each event

	loose sync.WaitGroup // handlers that outlive their attempt
}

// life is the time from a start to the stop after it.
type life struct {
	grpc   *grpc.Server
	listen net.Listener
	memory *bufconn.Listener // listen, if in memory
	served chan struct{}     // closed when Serve has returned
}

// New starts a server for a test, in memory unless [TCP] is given, and closes
// it in the test's cleanup. Mistakes in the use of the server end the test
// through Fatalf. Inside a synctest bubble, tb must be the bubble's.
func New(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := start(tb, opts)
	if err != nil {
		tb.Fatalf("testserver: New: %v", err)
		return nil
	}
	tb.Cleanup(s.Close)
	return s
}

// Start starts a server without a test; the caller closes it. It fails if an
// option is faulty or the address cannot be listened on.
func Start(opts ...Option) (*Server, error) {
	s, err := start(nil, opts)
	if err != nil {
		return nil, fmt.Errorf("testserver: Start: %w", err)
	}
	return s, nil
}

func start(tb testing.TB, opts []Option) (*Server, error) {
	o, err := gather(opts)
	if err != nil {
		return nil, err
	}
	s := &Server{
		tb:       tb,
		opts:     o,
		addr:     "bufconn",
		services: map[string]*service{},
		handlers: map[string]func(grpc.ServerStream) error{},
		scripts:  map[string]*script{},
		changed:  make(chan struct{}),
	}
	if o.tcp {
		s.addr = "127.0.0.1:0"
	}
	return s, s.start()
}

// Start serves again, at the same address, after [Server.Stop] or
// [Server.GracefulStop]; records and scripts go on. It is an error if the
// server is not stopped or is closed, or if its TCP port has been taken.
func (s *Server) Start() error {
	if err := s.start(); err != nil {
		return fmt.Errorf("testserver: Start: %w", err)
	}
	return nil
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
		return errors.New("the server is closed")
	case s.life != nil:
		return errors.New("the server is not stopped")
	}
	server, err := s.opts.newServer(s.serve)
	if err != nil {
		return err
	}
	l := &life{grpc: server, served: make(chan struct{})}
	if err := s.listen(l); err != nil {
		return err
	}
	s.life = l
	s.lives = append(s.lives, l)
	go func() {
		defer close(l.served)
		// It ends with an error when the listener breaks or is closed by Stop;
		// clients see either as a refused connection.
		_ = l.grpc.Serve(listener{l.listen})
	}()
	return nil
}

// listen needs s.mu.
func (s *Server) listen(l *life) error {
	if !s.opts.tcp {
		l.memory = bufconn.Listen(memorySize)
		l.listen = l.memory
		return nil
	}
	tcp, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr = tcp.Addr().String()
	l.listen = tcp
	return nil
}

// Stop cuts all connections, ends the context of every running attempt, and
// refuses new connections. When it returns, the address is free, but handlers
// may still be on their way out. It does nothing if the server is stopped.
func (s *Server) Stop() { s.stop((*grpc.Server).Stop) }

// GracefulStop refuses new connections and calls, and returns when those that
// run have ended; a Hang step lasts until its client gives up. Stop and Close
// cut it short.
func (s *Server) GracefulStop() { s.stop((*grpc.Server).GracefulStop) }

func (s *Server) stop(how func(*grpc.Server)) {
	s.mu.Lock()
	l := s.life
	s.mu.Unlock()
	if l == nil {
		return
	}
	how(l.grpc)
	<-l.served
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == l {
		s.life = nil
	}
}

// Close stops the server for good, closes the connections that Dial made, and
// waits until every handler has returned. If one does not within 30 s, the test
// fails with the records of what still runs. [New] arranges for it.
func (s *Server) Close() {
	s.helper()
	s.mu.Lock()
	s.done = true
	clients, lives := s.clients, s.lives
	s.clients, s.lives = nil, nil
	s.mu.Unlock()
	for _, cc := range clients {
		_ = cc.Close() // the only error says that it is closed
	}
	s.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, l := range lives {
			// After Stop, this is grpc's way to wait for the handlers.
			l.grpc.GracefulStop()
		}
		s.loose.Wait()
	}()
	guard := time.NewTimer(guardTime)
	defer guard.Stop()
	select {
	case <-ended:
	case <-guard.C:
		s.stuck()
	}
}

func (s *Server) stuck() {
	if s.tb == nil {
		return
	}
	s.tb.Helper()
	s.mu.Lock()
	all := s.snapshot(nil)
	s.mu.Unlock()
	s.tb.Errorf("testserver: Close: handlers still run after %v, with the attempts\n%s", guardTime, lines(all))
}

func (s *Server) helper() {
	if s.tb != nil {
		s.tb.Helper()
	}
}

// misuse reports a mistake of the server's user.
func (s *Server) misuse(format string, args ...any) {
	if s.tb != nil {
		s.tb.Helper()
		s.tb.Fatalf("testserver: "+format, args...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = errors.Join(s.faults, fmt.Errorf(format, args...))
}

func (s *Server) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}
