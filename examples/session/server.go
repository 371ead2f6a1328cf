// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

	killEvery int // orders

	mu       sync.Mutex
	addr     string
	listener net.Listener
	grpc     *grpc.Server
	executed map[string]int64 // receipts, by key
	kills    int
}

func newServer(killEvery int) *server {
	return &server{killEvery: killEvery, addr: "127.0.0.1:0", executed: map[string]int64{}}
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serve()
}

// serve needs the lock.
func (s *server) serve() error {
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

// killed returns how often.
func (s *server) killed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kills
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
			return nil, s.restart()
		}
	}
	return &testv1.Response{Key: key, Count: receipt}, nil
}

// errKilled is what nobody hears: the connection is gone.
var errKilled = status.Error(codes.Unavailable, "killed")

// restart kills the server, and starts it again. The next one listens before the
// connections break, so that a client that comes back finds it; for one that is away for
// longer, the policy's ConnectWait waits. It needs the lock.
func (s *server) restart() error {
	s.kills++
	dying := s.grpc
	_ = s.listener.Close() // if that fails, so does serve
	if err := s.serve(); err != nil {
		return err
	}
	dying.Stop()
	return errKilled
}
