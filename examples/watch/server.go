// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/examples/internal/mortal"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// server is a gRPC server of events, which outlive it when it is killed and starts
// again on the same port.
type server struct {
	testv1.UnimplementedTestServiceServer

	mortal.Server

	events int64 // that happen in all
	round  int64 // how many happen at once

	mu    sync.Mutex
	last  int64         // of the events that happened, which are numbered from 1
	more  chan struct{} // closed when another does
	turns int           // how often all of them were seen
}

// newServer makes a server where the first events have happened.
func newServer(events, round int64) *server {
	return &server{events: events, round: round, last: round, more: make(chan struct{})}
}

// Download sends all events after the one that the request's sequence numbers, those to
// come too. It does not end by itself.
func (s *server) Download(request *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) error {
	if after, last := request.GetSequence(), s.latest(); after < 0 || after > last {
		return status.Errorf(codes.OutOfRange, "there is no event %d; the last is %d", after, last)
	}
	for number := request.GetSequence() + 1; ; number++ {
		if err := s.await(stream.Context(), number); err != nil {
			return err
		}
		event := &testv1.Response{Sequence: number, Key: fmt.Sprintf("event %d", number)}
		if err := stream.Send(event); err != nil {
			return err
		}
	}
}

func (s *server) latest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// await waits until an event has happened.
func (s *server) await(ctx context.Context, number int64) error {
	for {
		s.mu.Lock()
		last, more := s.last, s.more
		s.mu.Unlock()
		if number <= last {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// seen is told of each event that the watcher has seen. When it has seen all, more of
// them happen: every other time while the server is away, for then it is killed, and
// starts again.
func (s *server) seen(number int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number < s.last {
		return nil
	}
	s.turns++
	killed := s.turns%2 == 1
	if killed {
		s.Kill()
	}
	s.last = min(s.last+s.round, s.events)
	close(s.more)
	s.more = make(chan struct{})
	if killed {
		return s.Revive()
	}
	return nil
}
