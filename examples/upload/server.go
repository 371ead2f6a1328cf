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

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// server is a gRPC server that is killed in the middle of uploads, and starts again
// on the same port.
type server struct {
	testv1.UnimplementedTestServiceServer

	killAt []int64 // how many bytes of an upload, one after the other

	mu    sync.Mutex
	addr  string
	grpc  *grpc.Server
	kills int  // of this upload
	done  bool // it was stopped for good
	over  sync.WaitGroup
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	if s.addr == "" {
		s.addr = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr = listener.Addr().String()
	s.grpc = grpc.NewServer()
	testv1.RegisterTestServiceServer(s.grpc, s)
	serving := s.grpc
	s.over.Go(func() { _ = serving.Serve(listener) }) // it ends when it is killed
	return nil
}

// stop ends the server for good.
func (s *server) stop() {
	s.mu.Lock()
	s.done = true
	serving := s.grpc
	s.mu.Unlock()
	serving.Stop()
	s.over.Wait()
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
		s.reached(size)
	}
}

// reached kills the server, and starts it again, if this is where it is to be killed.
func (s *server) reached(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kills == len(s.killAt) || size < s.killAt[s.kills] {
		return
	}
	s.kills++
	dying := s.grpc
	s.over.Go(func() {
		dying.Stop()
		_ = s.start() // if it cannot, the upload says that there is no server
	})
}
