// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package interop_test

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

const (
	// callKey is the metadata by which a client names its call.
	callKey = "x-call"
	// downloaded is how many responses a stream has.
	downloaded = 3
)

// server fails by call, not by method as a script does: an attempt too many must not
// take what the next call was to meet.
type server struct {
	*testserver.Server

	mu    sync.Mutex
	calls map[string][]failure // what is left for each
}

// failure is what one attempt meets.
type failure struct {
	code     codes.Code
	pushback string // none if empty
	sent     int    // responses before it
}

func newServer(inner *testserver.Server, calls []call) *server {
	s := &server{Server: inner, calls: map[string][]failure{}}
	for _, c := range calls {
		s.calls[c.name] = c.meets
		s.Handle("grpcretry.test.v1.TestService/"+c.method, func(stream grpc.ServerStream) error {
			return s.serve(stream, c.streams())
		})
	}
	return s
}

func (s *server) serve(stream grpc.ServerStream, streams bool) error {
	request := &testv1.Request{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	f := s.next(request.GetKey())
	answers := f.sent
	if f.code == codes.OK {
		answers = 1
		if streams {
			answers = downloaded
		}
	}
	for i := range answers {
		if err := stream.SendMsg(&testv1.Response{Key: request.GetKey(), Sequence: int64(i + 1)}); err != nil {
			return err
		}
	}
	if f.pushback != "" {
		stream.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", f.pushback))
	}
	return status.Error(f.code, "busy")
}

// next takes what the next attempt of a call meets.
func (s *server) next(name string) failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.calls[name]; len(left) > 0 {
		s.calls[name] = left[1:]
		return left[0]
	}
	return failure{}
}

// of returns the attempts of a call.
func (s *server) of(name string) []testserver.Attempt {
	var attempts []testserver.Attempt
	for _, a := range s.Attempts() {
		if values := a.Metadata.Get(callKey); len(values) == 1 && values[0] == name {
			attempts = append(attempts, a)
		}
	}
	return attempts
}

// answersOf returns how many answers the client must have seen, by its attempts.
func answersOf(c call, attempts int, code string) int {
	switch {
	case code == "OK" && c.streams():
		return downloaded
	case code == "OK":
		return 1
	case attempts > 0 && attempts <= len(c.meets):
		return c.meets[attempts-1].sent
	default:
		return 0
	}
}
