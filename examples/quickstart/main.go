// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart sends a file, by default README.md, through unary calls to a server
// that fails in many ways, and checks that every byte arrived all the same.
//
//	go run ./examples/quickstart [file]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func main() {
	path := "README.md"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(context.Background(), os.Stdout, path, testserver.TCP()); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run sends the file to a server of its own and reports to out.
func run(ctx context.Context, out io.Writer, path string, opts ...testserver.Option) error {
	file, size, err := open(path)
	if err != nil {
		return err
	}
	defer file.Close()

	server, err := testserver.Start(opts...)
	if err != nil {
		return err
	}
	defer server.Close()
	testv1.RegisterTestServiceServer(server, digester{})

	report := newReport(out)
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{
			MaxAttempts: 8,
			Backoff:     grpcretry.Backoff{Initial: 20 * time.Millisecond},
		}),
		grpcretry.WithObserver(grpcretry.Observer{Done: report.done}),
	)
	if err != nil {
		return err
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	fmt.Fprintf(out, "sending %s (%d bytes) to %s\n", path, size, server.Addr())
	for batch, err := range batches(file, batchLimit(size)) {
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		report.begin(batch)
		disturb(server, report.calls)
		var trailer metadata.MD
		answer, err := client.Put(ctx, &testv1.Request{Sequence: int64(report.calls), Payload: batch}, grpc.Trailer(&trailer))
		report.end(answer, trailer, err)
	}
	return report.close(len(server.Attempts()))
}

// open opens the file and returns its size.
func open(path string) (*os.File, int64, error) {
	file, err := os.Open(path) //nolint:gosec // which file to send is the user's choice
	if err != nil {
		return nil, 0, fmt.Errorf("cannot send the file: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("cannot send the file: %w", err), file.Close())
	}
	return file, info.Size(), nil
}
