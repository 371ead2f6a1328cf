// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry/examples/internal/mortal"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// batchSize is how many orders are answered together. It is less than what a client has
// outstanding, or both would wait for each other.
const batchSize = 16

// server is a gRPC server that executes orders. It is killed each time that it executed
// so many, before it answers the last of them, and starts again on the same port. What
// it executed is kept.
type server struct {
	testv1.UnimplementedTestServiceServer

	mortal.Server

	killEvery int // orders

	mu       sync.Mutex
	executed map[string]int64 // receipts, by key
}

func newServer(killEvery int) *server {
	return &server{killEvery: killEvery, executed: map[string]int64{}}
}

// Exchange executes the orders, and answers them in batches, the last one first. When no
// more come it answers those that are left.
func (s *server) Exchange(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response]) error {
	var batch []*testv1.Response
	for {
		order, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return sendAll(stream, batch)
		}
		if err != nil {
			return err
		}
		answer, err := s.execute(order.GetKey())
		if err != nil {
			return err
		}
		if batch = append(batch, answer); len(batch) == batchSize {
			if err := sendAll(stream, batch); err != nil {
				return err
			}
			batch = nil
		}
	}
}

func sendAll(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response], batch []*testv1.Response) error {
	for _, answer := range slices.Backward(batch) {
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

// execute executes an order, unless one with this key was executed before, and returns
// the answer with the receipt.
func (s *server) execute(key string) (*testv1.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	receipt, done := s.executed[key]
	if !done {
		receipt = int64(len(s.executed) + 1)
		s.executed[key] = receipt
		if len(s.executed)%s.killEvery == 0 {
			return nil, s.Restart()
		}
	}
	return &testv1.Response{Key: key, Count: receipt}, nil
}
