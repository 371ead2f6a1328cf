// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Watch follows the events of a server, 1,000 by default, in one stream. Some happen
// while it watches, others while the server is away: that is killed five times, which
// is more than the policy has attempts, but a stream that got something has them all
// again. Each event must come once, and in order.
//
//	go run ./examples/watch [-events 1000]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// rounds is in how many of them the events happen.
const rounds = 10

func main() {
	events := flag.Uint("events", 1000, "how many events to watch")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, int64(*events)); err != nil {
		fmt.Fprintln(os.Stderr, "watch:", err)
		os.Exit(1)
	}
}

// run watches until it has seen so many events.
func run(ctx context.Context, out io.Writer, events int64) error {
	if events < 1 {
		return fmt.Errorf("cannot watch %d events; it must be at least 1", events)
	}
	server := newServer(events, max(1, events/rounds))
	if err := server.Start(server); err != nil {
		return err
	}
	defer server.Stop()

	retrier, err := grpcretry.New(
		grpcretry.WithMethodPolicy(testv1.TestService_Download_FullMethodName, grpcretry.Policy{
			MaxAttempts: 3,
			Recovery:    grpcretry.Resume(after),
			// A watch outlives many servers. With each event it counts as well again,
			// so that it fails only if two more attempts in a row get none. There is no
			// IdleTimeout, since it may be quiet for long.
			ResetAfter: grpcretry.ResetAfter{Responses: 1},
		}),
	)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(server.Addr(), append(retrier.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer conn.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := int64(0)
	attempts, err := watch(ctx, testv1.NewTestServiceClient(conn), func(event *testv1.Response) error {
		if event.GetSequence() != seen+1 {
			return fmt.Errorf("event %d came after event %d", event.GetSequence(), seen)
		}
		if seen++; seen == events {
			cancel() // nothing else ends a watch
			return nil
		}
		return server.seen(seen)
	})
	if seen < events || status.Code(err) != codes.Canceled {
		return err
	}
	fmt.Fprintf(out, "%d events came, each once and in order; %d attempts, the server was killed %d times\n",
		seen, attempts, server.Kills())
	return nil
}

// watch hands over each event there ever was and will be, until its context ends or an
// event is refused. It returns how many attempts that took.
func watch(
	ctx context.Context, client testv1.TestServiceClient, handle func(*testv1.Response) error,
) (attempts int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if an event is refused
	stream, err := client.Download(ctx, &testv1.Request{})
	if err != nil {
		return 0, err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
			return attempts, err
		}
		if err := handle(event); err != nil {
			return 0, err
		}
	}
}

// after asks for the events after the last one.
func after(last any) ([]any, error) {
	event, ok := last.(*testv1.Response)
	if !ok {
		return nil, fmt.Errorf("cannot resume after a %T", last)
	}
	return []any{&testv1.Request{Sequence: event.GetSequence()}}, nil
}
