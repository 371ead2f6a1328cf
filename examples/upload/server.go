// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry/examples/internal/mortal"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// server is a gRPC server that is killed in the middle of uploads, and starts again
// on the same port.
type server struct {
	testv1.UnimplementedTestServiceServer

	mortal.Server
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
		if err := s.Reached(size); err != nil {
			return err
		}
	}
}
