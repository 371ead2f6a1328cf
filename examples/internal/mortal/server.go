// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package mortal has the server of the examples: one that is killed, and starts again on
// the same port.
package mortal

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// Server is a gRPC server on the loopback interface. The zero Server is ready to start,
// and safe for concurrent use.
type Server struct {
	service testv1.TestServiceServer

	mu       sync.Mutex
	addr     string
	listener net.Listener
	grpc     *grpc.Server
	kills    int
	doom     []int64 // at what progress it is to be killed; what is left of it
}

// Start starts the server of a service, which outlives all kills.
func (s *Server) Start(service testv1.TestServiceServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.service, s.addr = service, "127.0.0.1:0"
	return s.serve()
}

// Addr returns where the server is, dead or alive.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Kills returns how often the server was killed.
func (s *Server) Kills() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kills
}

// Kill kills the server: its connections break.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills++
	s.grpc.Stop()
}

// Revive starts a server again that was killed.
func (s *Server) Revive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serve()
}

// errKilled is what nobody hears: the connection is gone.
var errKilled = status.Error(codes.Unavailable, "killed")

// Restart kills the server and starts it again. It is for handlers, which return its
// error. The next server listens before the connections break, so that a client that
// comes back finds it; for one that is away for longer, the policy's ConnectWait waits.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills++
	dying := s.grpc
	_ = s.listener.Close() // if that fails, so does serve
	if err := s.serve(); err != nil {
		return err
	}
	dying.Stop()
	return errKilled
}

// Doom says at what progress, one after the other, [Server.Reached] restarts the server.
func (s *Server) Doom(at ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doom = at
}

// Reached restarts the server if this is where it is to be killed. It is for handlers, which
// return its error.
func (s *Server) Reached(progress int64) error {
	s.mu.Lock()
	due := len(s.doom) > 0 && progress >= s.doom[0]
	if due {
		s.doom = s.doom[1:]
	}
	s.mu.Unlock()
	if due {
		return s.Restart()
	}
	return nil
}

// Stop ends the server for good.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grpc.Stop()
}

// serve needs the lock.
func (s *Server) serve() error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr, s.listener, s.grpc = listener.Addr().String(), listener, grpc.NewServer()
	testv1.RegisterTestServiceServer(s.grpc, s.service)
	serving := s.grpc
	go func() { _ = serving.Serve(listener) }() // it ends when it is killed
	return nil
}
