// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry/examples/internal/mortal"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// server is a gRPC server that is killed in the middle of uploads, and starts again
// on the same port.
type server struct {
	testv1.UnimplementedTestServiceServer

	mortal.Server

	killAt []int64 // how many bytes of an upload, one after the other

	mu     sync.Mutex
	killed int // how many of them were, in this upload
}

// next is called before an upload, so that it meets kills of its own. It returns what
// counts them.
func (s *server) next() (kills func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = 0
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.killed
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

// reached kills the server, and starts it again, if this is where it is to be killed.
func (s *server) reached(size int64) error {
	s.mu.Lock()
	due := s.killed < len(s.killAt) && size >= s.killAt[s.killed]
	if due {
		s.killed++
	}
	s.mu.Unlock()
	if due {
		return s.Restart()
	}
	return nil
}
