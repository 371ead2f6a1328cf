// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// Outside of a test, a server is started and closed by hand. In a test,
// testserver.New(t) takes care of both.
func Example() {
	srv, err := testserver.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	srv.Script(testv1.TestService_Read_FullMethodName,
		testserver.Fail(codes.Unavailable, "busy").Pushback("250"),
		testserver.OK())

	client := testv1.NewTestServiceClient(srv.Dial())
	for range 2 {
		reply, err := client.Read(context.Background(), &testv1.Request{Key: "a"})
		fmt.Printf("%v %q\n", status.Code(err), reply.GetKey())
	}
	fmt.Println(len(srv.Attempts()), "attempts")
	// Output:
	// Unavailable ""
	// OK "a"
	// 2 attempts
}

// A write that was done, but whose answer is lost with the connection.
func ExampleStep_Applied() {
	srv, err := testserver.Start(testserver.TCP())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	writes := 0
	srv.Handle(testv1.TestService_Write_FullMethodName, func(stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&testv1.Request{}); err != nil {
			return err
		}
		writes++
		return stream.SendMsg(&testv1.Response{Count: int64(writes)})
	})
	srv.Script(testv1.TestService_Write_FullMethodName, testserver.Cut().Applied())

	client := testv1.NewTestServiceClient(srv.Dial())
	for range 2 {
		reply, err := client.Write(context.Background(), &testv1.Request{Key: "a"})
		fmt.Println(status.Code(err), reply.GetCount())
	}
	// Output:
	// Unavailable 0
	// OK 2
}
