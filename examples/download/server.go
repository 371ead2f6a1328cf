// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// chunkSize is how much of the content goes into a message.
const chunkSize = 64 << 10

// versionSize is how long the name of a version is.
const versionSize = 8

// server is a gRPC server that is killed in the middle of a download, and starts again
// on the same port.
type server struct {
	testv1.UnimplementedTestServiceServer

	content []byte
	version []byte  // of the content
	killAt  []int64 // the offsets at which it is killed, one after the other

	mu       sync.Mutex
	addr     string
	listener net.Listener
	grpc     *grpc.Server
	kills    int
}

func newServer(content []byte, killAt ...int64) *server {
	sum := sha256.Sum256(content)
	return &server{content: content, version: sum[:versionSize], killAt: killAt, addr: "127.0.0.1:0"}
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

// Download sends the content from where the cursor in the request's key says, and with
// each chunk the cursor behind it.
func (s *server) Download(request *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) error {
	offset, err := s.offset(request.GetKey())
	if err != nil {
		return err
	}
	for size := int64(len(s.content)); offset < size; {
		if err := s.reached(offset); err != nil {
			return err
		}
		end := min(offset+chunkSize, size)
		if err := stream.Send(&testv1.Response{Payload: s.content[offset:end], Key: s.cursor(end)}); err != nil {
			return err
		}
		offset = end
	}
	return nil
}

// cursor returns an offset as the opaque string that clients are given. It names the
// version of the content too, or a client could end up with the parts of two.
func (s *server) cursor(offset int64) string {
	cursor := bytes.Clone(s.version)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(cursor, uint64(offset)))
}

// offset returns where a cursor points to. That without a cursor is the beginning.
func (s *server) offset(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) != versionSize+8 {
		return 0, status.Errorf(codes.InvalidArgument, "malformed cursor %.100q", cursor)
	}
	version, offset := data[:versionSize], binary.BigEndian.Uint64(data[versionSize:])
	if !bytes.Equal(version, s.version) {
		return 0, status.Errorf(codes.FailedPrecondition,
			"the cursor is for version %x of the content, which has version %x", version, s.version)
	}
	if offset > uint64(len(s.content)) {
		return 0, status.Errorf(codes.InvalidArgument,
			"the cursor is at %d, and the content has %d bytes", offset, len(s.content))
	}
	return int64(offset), nil
}

// errKilled is what nobody hears: the connection is gone.
var errKilled = status.Error(codes.Unavailable, "killed")

// reached kills the server, and starts it again, if this is where it is to be killed.
// The next one listens before the connections break, so that a client that comes back
// finds it; for one that is away for longer, the policy's ConnectWait waits.
func (s *server) reached(offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kills == len(s.killAt) || offset < s.killAt[s.kills] {
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
