// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Addr returns where the server listens, host and port with [TCP]. It stays the
// same from start to start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Target returns the server's address for grpc.NewClient. In memory it needs
// [Server.DialOptions]; with [TCP] any credentials option will do.
func (s *Server) Target() string { return "passthrough:///" + s.Addr() }

// DialOptions returns what grpc.NewClient needs to reach the server: insecure
// credentials and a dialer that always finds the server's present listener.
// While the server is stopped, dialling fails at once.
func (s *Server) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.dial),
	}
}

func (s *Server) dial(ctx context.Context, addr string) (net.Conn, error) {
	if s.opts.tcp {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	s.mu.Lock()
	l := s.life
	s.mu.Unlock()
	if l == nil {
		return nil, errors.New("testserver: the server is stopped")
	}
	return l.memory.DialContext(ctx)
}

// Dial returns a client connection to the server, which is closed with it. The
// options come after those of [Server.DialOptions], so that they win. If grpc
// refuses them, or the server is closed, that is a mistake; on a server without
// a test, all calls on the returned connection then fail.
func (s *Server) Dial(opts ...grpc.DialOption) *grpc.ClientConn {
	s.helper()
	cc, err := grpc.NewClient(s.Target(), append(s.DialOptions(), opts...)...)
	if err != nil {
		s.misuse("Dial: %v", err)
		// The server's own options alone are always accepted, and the mistake
		// noted above ends every call that is made through them.
		cc, _ = grpc.NewClient(s.Target(), s.DialOptions()...)
	}
	if !s.keep(cc) {
		_ = cc.Close() // nobody else would
		s.misuse("Dial: the server is closed")
	}
	return cc
}

// keep notes a connection that Close is to close.
func (s *Server) keep(cc *grpc.ClientConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.clients = append(s.clients, cc)
	}
	return !s.done
}
