// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/grpc/codes"

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
