// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/examples/internal/mortal"
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

	mortal.Server

	content []byte
	version []byte // of the content
}

func newServer(content []byte) *server {
	sum := sha256.Sum256(content)
	return &server{content: content, version: sum[:versionSize]}
}

// Download sends the content from where the cursor in the request's key says, and with
// each chunk the cursor behind it.
func (s *server) Download(request *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) error {
	offset, err := s.offset(request.GetKey())
	if err != nil {
		return err
	}
	for size := int64(len(s.content)); offset < size; {
		if err := s.Reached(offset); err != nil {
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
