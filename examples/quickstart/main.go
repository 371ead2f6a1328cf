// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart sends a file, by default README.md, to a server that fails in many
// ways, through unary calls and streams of every kind, and checks that every byte
// arrived all the same. One method is left to gRPC's own retry. What posts documents to
// Jina's gateways is in examples/jina.
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

	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// maxReplay is how much of a stream is kept for replay. What is sent beyond it can
// still be sent, but no more be lost.
const maxReplay = 64 << 20

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
		// Nothing is declared of Exchange, but we know our server.
		grpcretry.WithMethodPolicy(testv1.TestService_Exchange_FullMethodName, grpcretry.Policy{
			MaxAttempts: 8,
			Backoff:     grpcretry.Backoff{Initial: 20 * time.Millisecond},
			Repeat:      grpcretry.RepeatAlways,
		}),
		// Read is left to gRPC's own retry, on the same connection. It can run no
		// policy with timeouts, waits for connections and the like; this one it can.
		grpcretry.WithChannelRetry(testv1.TestService_Read_FullMethodName),
		grpcretry.WithBuffer(grpcretry.Buffer{Memory: maxReplay, Total: maxReplay}),
		grpcretry.WithObserver(grpcretry.Observer{Done: report.done}),
	)
	if err != nil {
		return err
	}
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))

	fmt.Fprintf(out, "sending %s (%d bytes) to %s\n", path, size, server.Addr())
	t := transfer{client, file, batchLimit(size)}
	if err := t.unary(ctx, server, report); err != nil {
		return err
	}
	disturbStreams(server)
	for _, way := range []struct {
		name string
		run  func(context.Context) (metadata.MD, error)
	}{
		{"upload", t.upload},
		{"download", t.download},
		{"exchange", t.exchange},
		{"read", t.read},
	} {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		report.begin(way.name)
		report.end(way.run(ctx))
	}
	if err := report.close(len(server.Attempts())); err != nil {
		return err
	}
	fmt.Fprintln(out, "next: go run ./examples/jina, or upload, download, watch, session")
	return nil
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
