// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// server is a gRPC server that is killed in the middle of uploads, and starts again
// on the same port.
type server struct {
	testv1.UnimplementedTestServiceServer

	killAt []int64 // how many bytes of an upload, one after the other

	mu       sync.Mutex
	addr     string
	listener net.Listener
	grpc     *grpc.Server
	kills    int // of this upload
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serve()
}

// serve needs the lock.
func (s *server) serve() error {
	if s.addr == "" {
		s.addr = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr, s.listener, s.grpc = listener.Addr().String(), listener, grpc.NewServer()
	testv1.RegisterTestServiceServer(s.grpc, s)
	serving := s.grpc
	go func() { _ = serving.Serve(listener) }() // it ends when it is killed
	return nil
}

func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grpc.Stop()
}

// next is called before an upload, so that it meets kills of its own. It returns what
// counts them.
func (s *server) next() (kills func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills = 0
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.kills
	}
}

// Upload answers with the number of bytes and the sha256 of all payloads. It is
// declared idempotent, or the suite would not send it again.
func (s *server) Upload(stream grpc.ClientStreamingServer[testv1.Request, testv1.Response]) error {
	hash, size := sha256.New(), int64(0)
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&testv1.Response{Count: size, Payload: hash.Sum(nil)})
		}
		if err != nil {
			return err
		}
		hash.Write(chunk.GetPayload())
		size += int64(len(chunk.GetPayload()))
		if err := s.reached(size); err != nil {
			return err
		}
	}
}

// errKilled is what nobody hears: the connection is gone.
var errKilled = status.Error(codes.Unavailable, "killed")

// reached kills the server, and starts it again, if this is where it is to be killed. The
// next one listens before the connections break, so that a client that comes back finds it;
// for one that is away for longer, the policy's ConnectWait waits.
func (s *server) reached(size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kills == len(s.killAt) || size < s.killAt[s.kills] {
		return nil
	}
	s.kills++
	dying := s.grpc
	_ = s.listener.Close() // if that fails, so does serve
	if err := s.serve(); err != nil {
		return err
	}
	dying.Stop()
	return errKilled
}
