// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// ExampleSkip repeats a query whose answer was half received when the server went away.
func ExampleSkip() {
	server := faulty()
	defer server.Close()
	server.Script(testv1.TestService_Download_FullMethodName, testserver.Cut().Sent(2))
	server.Handle(testv1.TestService_Download_FullMethodName, func(stream grpc.ServerStream) error {
		for i := range 4 {
			if err := stream.SendMsg(&testv1.Response{Key: "row " + strconv.Itoa(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	retrier, err := grpcretry.New(grpcretry.WithMethodPolicy(testv1.TestService_Download_FullMethodName, grpcretry.Policy{
		Recovery: grpcretry.Skip(nil), // the same query has the same answer
	}))
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	stream, err := client.Download(context.Background(), &testv1.Request{})
	if err != nil {
		log.Fatal(err)
	}
	printAll(stream)
	// Output:
	// row 0
	// row 1
	// row 2
	// row 3
	// <nil> after 2 attempts
}

// ExampleResume goes on with a download where it broke off.
func ExampleResume() {
	server := faulty()
	defer server.Close()
	server.Script(testv1.TestService_Download_FullMethodName, testserver.Cut().Sent(2))
	server.Handle(testv1.TestService_Download_FullMethodName, func(stream grpc.ServerStream) error {
		request := &testv1.Request{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		fmt.Println("asked for what follows", request.GetSequence())
		for i := request.GetSequence() + 1; i <= 4; i++ {
			if err := stream.SendMsg(&testv1.Response{Key: "chunk", Sequence: i}); err != nil {
				return err
			}
		}
		return nil
	})
	retrier, err := grpcretry.New(grpcretry.WithMethodPolicy(testv1.TestService_Download_FullMethodName, grpcretry.Policy{
		Recovery: grpcretry.Resume(func(last any) ([]any, error) {
			return []any{&testv1.Request{Sequence: last.(*testv1.Response).GetSequence()}}, nil
		}),
		ResetAfter: grpcretry.ResetAfter{Responses: 1}, // it may break off any number of times
	}))
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	stream, err := client.Download(context.Background(), &testv1.Request{})
	if err != nil {
		log.Fatal(err)
	}
	printAll(stream)
	// Output:
	// asked for what follows 0
	// chunk
	// chunk
	// asked for what follows 2
	// chunk
	// chunk
	// <nil> after 2 attempts
}

// ExampleWithRecovery_request resumes one call, whose request says more than a position.
func ExampleWithRecovery_request() {
	server := faulty()
	defer server.Close()
	server.Script(testv1.TestService_Download_FullMethodName, testserver.Cut().Sent(2))
	server.Handle(testv1.TestService_Download_FullMethodName, func(stream grpc.ServerStream) error {
		request := &testv1.Request{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		for i := request.GetSequence() + 1; i <= 3; i++ {
			if err := stream.SendMsg(&testv1.Response{Key: request.GetKey(), Sequence: i}); err != nil {
				return err
			}
		}
		return nil
	})
	retrier, err := grpcretry.New()
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	request, seen := &testv1.Request{Key: "report.pdf"}, int64(0)
	resume := grpcretry.Resume(func(any) ([]any, error) {
		again := proto.CloneOf(request)
		again.Sequence = seen // set by whoever receives
		return []any{again}, nil
	})
	stream, err := client.Download(context.Background(), request, grpcretry.WithRecovery(resume))
	if err != nil {
		log.Fatal(err)
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		seen = chunk.GetSequence()
		fmt.Println("chunk", seen, "of", chunk.GetKey())
	}
	// Output:
	// chunk 1 of report.pdf
	// chunk 2 of report.pdf
	// chunk 3 of report.pdf
}

// ExampleAcked sends requests again that had no answer when the server went away, and no
// others.
func ExampleAcked() {
	server := faulty()
	defer server.Close()
	server.Script(testv1.TestService_Exchange_FullMethodName, testserver.Cut().Received(3).Sent(2))
	retrier, err := grpcretry.New(grpcretry.WithMethodPolicy(testv1.TestService_Exchange_FullMethodName, grpcretry.Policy{
		Repeat:     grpcretry.RepeatAlways, // a request may be sent twice
		Recovery:   grpcretry.Acked(func(m any) string { return m.(interface{ GetKey() string }).GetKey() }),
		ResetAfter: grpcretry.ResetAfter{Responses: 1},
	}))
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	stream, err := client.Exchange(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := stream.Send(&testv1.Request{Key: key}); err != nil {
			log.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		log.Fatal(err)
	}
	printAll(stream)
	for i, attempt := range server.Attempts() {
		fmt.Println("attempt", i+1, "was sent", len(attempt.Requests), "requests")
	}
	// Output:
	// a
	// b
	// c
	// <nil> after 2 attempts
	// attempt 1 was sent 3 requests
	// attempt 2 was sent 1 requests
}

// ExampleWithRecovery recovers one call otherwise than its method's policy says.
func ExampleWithRecovery() {
	server := faulty()
	defer server.Close()
	server.Script(testv1.TestService_Download_FullMethodName, testserver.Fail(codes.Unavailable, "busy").Sent(1))
	retrier, err := grpcretry.New()
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	stream, err := client.Download(context.Background(), &testv1.Request{Key: "a"}, grpcretry.WithRecovery(grpcretry.Skip(nil)))
	if err != nil {
		log.Fatal(err)
	}
	printAll(stream)
	// Output:
	// a
	// <nil> after 2 attempts
}

// ExampleResetAfter is the policy of a watch, which lives as long as its caller, if not
// more than five attempts follow each other without an event, or a minute of quiet.
func ExampleResetAfter() {
	watch := grpcretry.Policy{
		MaxAttempts: 5,
		ResetAfter:  grpcretry.ResetAfter{Responses: 1, Quiet: time.Minute},
		IdleTimeout: 5 * time.Minute, // the server says something at least that often
		Recovery:    grpcretry.Resume(nextEvent),
	}
	_, err := grpcretry.New(grpcretry.WithMethodPolicy(testv1.TestService_Download_FullMethodName, watch))
	fmt.Println(err)
	// Output: <nil>
}

// nextEvent asks for the event that follows the last one.
func nextEvent(last any) ([]any, error) {
	event, ok := last.(*testv1.Response)
	if !ok {
		return nil, fmt.Errorf("%T is no event", last)
	}
	return []any{&testv1.Request{Sequence: event.GetSequence()}}, nil
}

// printAll receives to the end of a stream.
func printAll(stream grpc.ServerStreamingClient[testv1.Response]) {
	for {
		response, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
			fmt.Println(err, "after", attempts, "attempts")
			return
		}
		fmt.Println(response.GetKey())
	}
}
