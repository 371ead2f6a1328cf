// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/lance"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func ExampleDialOptions() {
	server, err := testserver.Start(testserver.TCP())
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	server.Script(testv1.TestService_Read_FullMethodName, testserver.Fail(codes.Unavailable, "busy").Forever())
	target := server.Addr()

	options, err := lance.DialOptions(lance.RetryConfig{Retries: new(2), BackoffFactor: new(10 * time.Millisecond)})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-request-id", "r1")
	_, err = testv1.NewTestServiceClient(conn).Read(ctx, &testv1.Request{Key: "a"})
	if failed, ok := errors.AsType[*lance.RetryError](err); ok {
		fmt.Println(failed.RequestID, failed.Requests, failed.Connects, failed.Reads, status.Code(err))
	}
	// Output: r1 2/2 0/3 0/3 Unavailable
}

// Methods that are not declared with an idempotency_level are writes unless they are named,
// and texts of the server's own are told apart.
func ExampleWithReads() {
	options, err := lance.DialOptions(lance.RetryConfig{},
		lance.WithReads("grpcretry.test.v1.TestService/Exchange"),
		lance.WithWrites("grpcretry.test.v1.TestService/Put"),
		lance.WithText(`(?i)commit conflict`, 409),
		lance.WithConnectWait(20*time.Second))
	fmt.Println(len(options) > 0, err)
	// Output: true <nil>
}
