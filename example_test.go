// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// faulty returns a server for the examples, whose Read meets the steps.
func faulty(steps ...testserver.Step) *testserver.Server {
	server, err := testserver.Start(testserver.TCP())
	if err != nil {
		log.Fatal(err)
	}
	server.Script(read, steps...)
	return server
}

// Example sets up a connection and makes a call that needs three attempts.
func Example() {
	server := faulty(testserver.Fail(codes.Unavailable, "overloaded").Times(2))
	defer server.Close()
	target, creds := server.Target(), grpc.WithTransportCredentials(insecure.NewCredentials())

	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways}))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient(target, append(retrier.DialOptions(), creds)...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	var trailer metadata.MD
	answer, err := testv1.NewTestServiceClient(conn).Read(context.Background(), &testv1.Request{Key: "a"}, grpc.Trailer(&trailer))
	attempts, _ := grpcretry.AttemptsFromMD(trailer)
	fmt.Println(answer.GetKey(), err, attempts)
	// Output: a <nil> 3
}

// ExampleError looks into the error of a call that was given up.
func ExampleError() {
	server := faulty(testserver.Fail(codes.Unavailable, "overloaded"), testserver.Fail(codes.NotFound, "no such key"))
	defer server.Close()
	retrier, err := grpcretry.New()
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	_, err = client.Read(context.Background(), &testv1.Request{})
	fmt.Println(status.Code(err), errors.Is(err, grpcretry.ErrNotRetryable))
	if failed, ok := errors.AsType[*grpcretry.Error](err); ok {
		for _, attempt := range failed.Attempts {
			fmt.Println(attempt.Number, attempt.Failure.Status.Message())
		}
	}
	// Output:
	// NotFound true
	// 1 overloaded
	// 2 no such key
}

// ExampleNew gives a service, one of its methods, and all the rest policies of
// their own.
func ExampleNew() {
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{AttemptTimeout: 2 * time.Second}),
		grpcretry.WithMethodPolicy("grpcretry.test.v1.TestService", grpcretry.Policy{MaxAttempts: 5}),
		grpcretry.WithMethodPolicy(testv1.TestService_Write_FullMethodName, grpcretry.Policy{MaxAttempts: 1}),
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, method := range []string{"grpcretry.test.v1.TestService/Write", "grpcretry.test.v1.TestService/Read", "other.Service/Do"} {
		p := retrier.Policy(method)
		fmt.Println(method, p.MaxAttempts, p.AttemptTimeout)
	}

	_, err = grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: -1}))
	fmt.Println(err)
	// Output:
	// grpcretry.test.v1.TestService/Write 1 0s
	// grpcretry.test.v1.TestService/Read 5 0s
	// other.Service/Do 3 2s
	// grpcretry: WithPolicy: MaxAttempts is -1; it must not be negative
}

// ExampleWithCallPolicy gives single calls their own policy, or none.
func ExampleWithCallPolicy() {
	server := faulty(testserver.Fail(codes.Unavailable, "overloaded").Times(4))
	defer server.Close()
	retrier, err := grpcretry.New()
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	patient := grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: 4, Backoff: grpcretry.Backoff{Initial: time.Millisecond}})
	_, err = client.Read(context.Background(), &testv1.Request{}, grpcretry.Disable())
	fmt.Println(err)
	_, err = client.Read(context.Background(), &testv1.Request{}, patient)
	fmt.Println(err)
	// Output:
	// rpc error: code = Unavailable desc = overloaded
	// <nil>
}

// ExampleWithServiceConfig runs what a program has in its service config on the suite.
func ExampleWithServiceConfig() {
	config := `{"methodConfig": [{
		"name": [{"service": "grpcretry.test.v1.TestService"}],
		"timeout": "2s",
		"retryPolicy": {
			"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "1s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]
		}
	}]}`
	retrier, err := grpcretry.New(grpcretry.WithServiceConfig(config))
	if err != nil {
		log.Fatal(err)
	}
	p := retrier.Policy(read)
	fmt.Println(p.MaxAttempts, p.Timeout, p.Codes, p.Repeat)
	// Output: 4 2s [Unavailable Aborted] RepeatAlways
}

// ExampleWithChannelRetry leaves one method to gRPC's own retry.
func ExampleWithChannelRetry() {
	server := faulty(testserver.Fail(codes.Unavailable, "overloaded").Times(2))
	defer server.Close()
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 4}),
		grpcretry.WithChannelRetry(testv1.TestService_Read_FullMethodName),
	)
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	var trailer metadata.MD
	_, err = client.Read(context.Background(), &testv1.Request{}, grpc.Trailer(&trailer))
	attempts, _ := grpcretry.AttemptsFromMD(trailer)
	fmt.Println(err, attempts)
	// Output: <nil> 3
}

// ExampleWithThrottle stops retrying while most calls fail.
func ExampleWithThrottle() {
	server := faulty(testserver.Fail(codes.Unavailable, "overloaded").Forever())
	defer server.Close()
	retrier, err := grpcretry.New(grpcretry.WithThrottle(grpcretry.Throttle{MaxTokens: 10, TokenRatio: 0.1}))
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	for range 3 {
		_, err := client.Read(context.Background(), &testv1.Request{})
		fmt.Println(errors.Is(err, grpcretry.ErrThrottled))
	}
	// Output:
	// false
	// true
	// true
}

// ExampleRetrier_ServiceConfig writes a service config for other clients.
func ExampleRetrier_ServiceConfig() {
	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(retrier.ServiceConfig())
	// Output: {"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}
}

// ExampleWithBuffer replays streams of up to 4 MiB, and lets longer ones fail rather
// than go on without replay.
func ExampleWithBuffer() {
	server := faulty()
	defer server.Close()
	server.Script(upload, testserver.Fail(codes.Unavailable, "overloaded").Received(2))
	buffer := grpcretry.WithBuffer(grpcretry.Buffer{Memory: 4 << 20, Fail: true})
	retrier, err := grpcretry.New(buffer)
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	stream, err := client.Upload(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := stream.Send(&testv1.Request{Key: key}); err != nil {
			log.Fatal(err)
		}
	}
	answer, err := stream.CloseAndRecv()
	attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
	fmt.Println(answer.GetKey(), err, attempts)
	// Output: c <nil> 2
}

// ExampleWithBuffer_disk keeps up to 1 MiB of a stream's input in memory and the rest,
// up to 64 GiB, in a file.
func ExampleWithBuffer_disk() {
	buffer := grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1 << 20, Disk: 64 << 30})
	_, err := grpcretry.New(buffer)
	fmt.Println(err)
	// Output: <nil>
}

// ExampleSendAll sends a file that is opened again for a replay, so that nothing of it
// has to be kept.
func ExampleSendAll() {
	server := faulty()
	defer server.Close()
	server.Script(upload, testserver.Fail(codes.Unavailable, "overloaded").Received(2))
	retrier, err := grpcretry.New()
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	opened := 0
	chunksOf := func(string) iter.Seq2[*testv1.Request, error] {
		opened++
		return func(yield func(*testv1.Request, error) bool) {
			for _, key := range []string{"a", "b", "c"} {
				if !yield(&testv1.Request{Key: key}, nil) {
					return
				}
			}
		}
	}
	stream, err := client.Upload(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	err = grpcretry.SendAll(stream, grpcretry.Replayable(func() iter.Seq2[*testv1.Request, error] {
		return chunksOf("upload.bin") // opens the file anew
	}))
	if err != nil {
		log.Fatal(err)
	}
	answer, err := stream.CloseAndRecv()
	fmt.Println(answer.GetKey(), err, "opened", opened, "times")
	// Output: c <nil> opened 2 times
}

// ExampleWithObserver logs what becomes of calls.
func ExampleWithObserver() {
	server := faulty(testserver.Fail(codes.Unavailable, "overloaded").Pushback("20"))
	defer server.Close()
	retrier, err := grpcretry.New(grpcretry.WithObserver(grpcretry.Observer{
		Attempt: func(_ context.Context, method string, a grpcretry.Attempt) {
			if a.Failure != nil {
				fmt.Printf("%s: attempt %d: %v: next in %v\n", method, a.Number, a.Failure.Status.Code(), a.Wait)
			}
		},
		Done: func(_ context.Context, method string, attempts []grpcretry.Attempt, err error) {
			fmt.Printf("%s: %d attempts: %v\n", method, len(attempts), err)
		},
	}))
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	_, _ = client.Read(context.Background(), &testv1.Request{})
	// Output:
	// /grpcretry.test.v1.TestService/Read: attempt 1: Unavailable: next in 20ms
	// /grpcretry.test.v1.TestService/Read: 2 attempts: <nil>
}

// ExampleSetPushback tells clients, in a server's handler, when to come back.
func ExampleSetPushback() {
	server := faulty()
	defer server.Close()
	busy := true
	server.Handle(read, func(stream grpc.ServerStream) error {
		if busy {
			busy = false
			if err := grpcretry.SetPushback(stream.Context(), 30*time.Millisecond); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "warming up")
		}
		fmt.Println("attempts before:", grpcretry.PreviousAttempts(stream.Context()))
		return stream.SendMsg(&testv1.Response{})
	})
	retrier, err := grpcretry.New()
	if err != nil {
		log.Fatal(err)
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	_, err = client.Read(context.Background(), &testv1.Request{})
	fmt.Println(err)
	// Output:
	// attempts before: 1
	// <nil>
}

// ExampleCheckServiceConfig looks for mistakes in a service config before a channel is
// made with it.
func ExampleCheckServiceConfig() {
	const serviceConfig = `{"methodConfig": [{
		"name": [{"service": "grpcretry.test.v1.TestService/Read"}],
		"retryPolicy": {
			"maxAttempts": 10,
			"initialBackoff": "100ms",
			"maxBackoff": "1s",
			"backoffMultiplier": 2,
			"retryableStatusCodes": ["unavailable"]
		}
	}]}`

	for _, finding := range grpcretry.CheckServiceConfig(serviceConfig) {
		fmt.Println(finding.Refused, finding)
	}
	// Output:
	// false line 2: methodConfig[0].name[0].service is "grpcretry.test.v1.TestService/Read": a service has no slash in it, so it never matches; write "service": "grpcretry.test.v1.TestService", "method": "Read"
	// false line 4: methodConfig[0].retryPolicy.maxAttempts is 10: gRPC makes 5 attempts at most; write 5, or give the channel grpc.WithMaxCallAttempts too
	// true line 5: methodConfig[0].retryPolicy.initialBackoff is "100ms": it must be a string of seconds with at most 9 decimals and an s; write "0.1s"
	// true line 8: methodConfig[0].retryPolicy.retryableStatusCodes[0] is "unavailable": grpc-go knows no such code; it takes names in capitals only; write "UNAVAILABLE"
}
