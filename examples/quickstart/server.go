// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// digester answers a request with the sha256 of its payload and the number of
// lines in it.
type digester struct {
	testv1.UnimplementedTestServiceServer
}

// Put is declared idempotent, so the suite may repeat it.
func (digester) Put(_ context.Context, request *testv1.Request) (*testv1.Response, error) {
	return digest(request.GetSequence(), request.GetPayload()), nil
}

func digest(sequence int64, payload []byte) *testv1.Response {
	sum := sha256.Sum256(payload)
	return &testv1.Response{Sequence: sequence, Payload: sum[:], Count: int64(bytes.Count(payload, []byte{'\n'}))}
}

// Read changes nothing. It answers with the digest of the file that the key names.
func (digester) Read(_ context.Context, request *testv1.Request) (*testv1.Response, error) {
	file, err := os.Open(request.GetKey())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	defer file.Close()
	all := newTotal()
	if err := all.addAll(file, int(request.GetSequence())); err != nil {
		return nil, status.Error(codes.DataLoss, err.Error())
	}
	return all.response(), nil
}

// Upload is declared idempotent too. It answers with the digest of all payloads.
func (digester) Upload(stream grpc.ClientStreamingServer[testv1.Request, testv1.Response]) error {
	all := newTotal()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(all.response())
		}
		if err != nil {
			return err
		}
		all.add(request.GetPayload())
	}
}

// Download changes nothing. It sends the file that the key names, in batches of at
// most as many bytes as the sequence says.
func (digester) Download(request *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) error {
	file, err := os.Open(request.GetKey())
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	defer file.Close()
	for batch, err := range batches(file, int(request.GetSequence())) {
		if err != nil {
			return status.Error(codes.DataLoss, err.Error())
		}
		if err := stream.Send(&testv1.Response{Payload: batch}); err != nil {
			return err
		}
	}
	return nil
}

// Exchange answers each request as Put does. Nothing is declared of it: the client
// must know that it may run twice.
func (digester) Exchange(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response]) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(digest(request.GetSequence(), request.GetPayload())); err != nil {
			return err
		}
	}
}

// total is the digest of many payloads.
type total struct {
	hash  hash.Hash
	lines int64
}

func newTotal() *total { return &total{hash: sha256.New()} }

func (t *total) add(payload []byte) {
	t.hash.Write(payload)
	t.lines += int64(bytes.Count(payload, []byte{'\n'}))
}

// addAll adds all batches of a file.
func (t *total) addAll(file io.Reader, limit int) error {
	for batch, err := range batches(file, limit) {
		if err != nil {
			return err
		}
		t.add(batch)
	}
	return nil
}

func (t *total) response() *testv1.Response {
	return &testv1.Response{Payload: t.hash.Sum(nil), Count: t.lines}
}

// disturbStreams arranges what every stream will meet: an overloaded server, one
// that wants to be asked later, and connections that are cut, the last one while
// requests are read.
func disturbStreams(server *testserver.Server) {
	busy := testserver.Fail(codes.Unavailable, "overloaded")
	for _, method := range []string{
		testv1.TestService_Upload_FullMethodName,
		testv1.TestService_Download_FullMethodName,
		testv1.TestService_Exchange_FullMethodName,
	} {
		server.Script(method, busy, busy.Pushback("75"),
			testserver.Cut(), testserver.Cut().SendHeader(), testserver.Cut().Received(1))
	}
	// What gRPC retries itself.
	server.Script(testv1.TestService_Read_FullMethodName, busy.Times(2), busy.Pushback("75"))
}

// downtime is how long the server is away when it is restarted.
const downtime = 300 * time.Millisecond

// disturb arranges what a call will meet: nothing, for most of them.
func disturb(server *testserver.Server, call int) {
	busy := testserver.Fail(codes.Unavailable, "overloaded")
	switch call % 20 {
	case 2:
		server.Script(testv1.TestService_Put_FullMethodName, busy.Times(2))
	case 5:
		server.Script(testv1.TestService_Put_FullMethodName, busy.Pushback("75"))
	case 7:
		server.Script(testv1.TestService_Put_FullMethodName, busy.RetryInfo(30*time.Millisecond))
	case 9:
		server.Script(testv1.TestService_Put_FullMethodName, testserver.Cut())
	case 12:
		server.Script(testv1.TestService_Put_FullMethodName, testserver.Cut().SendHeader())
	case 14:
		server.Script(testv1.TestService_Put_FullMethodName, testserver.Cut().Applied(), busy.Applied())
	case 17:
		if call < 20 { // once is enough: it takes a second to connect again
			server.Stop()
			time.AfterFunc(downtime, func() { _ = server.Start() })
		}
	}
}
