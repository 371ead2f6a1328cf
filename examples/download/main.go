// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Download fetches 16 MiB, which it makes up, from a server that is killed under it
// three times, in one stream: it goes on where it was, with the cursor that the last
// chunk came with. The sha256 of the file that it writes must be that of the content.
//
//	go run ./examples/download [-mib 16]
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

func main() {
	mib := flag.Uint("mib", 16, "how much to download, in MiB")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, int64(*mib)<<20); err != nil {
		fmt.Fprintln(os.Stderr, "download:", err)
		os.Exit(1)
	}
}

// run makes up a content of some size, and downloads it.
func run(ctx context.Context, out io.Writer, size int64) error {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // always nil
	server := newServer(content)
	server.Doom(size/4, size/2, 3*size/4) // the offsets at which it is killed
	if err := server.Start(server); err != nil {
		return err
	}
	defer server.Stop()

	// All attempts of the stream count, whatever it got in between: three kills make
	// four, and one is to spare.
	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 5}))
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(server.Addr(), append(retrier.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer conn.Close()

	file, err := os.CreateTemp("", "download-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer file.Close()
	attempts, err := download(ctx, testv1.NewTestServiceClient(conn), file)
	if err != nil {
		return err
	}

	got, sum, err := digest(file)
	if err != nil {
		return err
	}
	if want := sha256.Sum256(content); got != size || string(sum) != string(want[:]) {
		return fmt.Errorf("the file has %d bytes with sha256 %x, the content has %d with %x", got, sum, size, want)
	}
	fmt.Fprintf(out, "%d bytes arrived, sha256 %.8x…; %d attempts, the server was killed %d times\n",
		got, sum, attempts, server.Kills())
	return nil
}

// download writes what the server has, from its beginning to its end, and returns how
// many attempts that took. Each chunk comes once and in order, so that there is nothing
// to be done about them here.
func download(ctx context.Context, client testv1.TestServiceClient, to io.Writer) (attempts int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if the file cannot be written
	stream, err := client.Download(ctx, &testv1.Request{}, grpcretry.WithRecovery(grpcretry.Resume(behind)))
	if err != nil {
		return 0, err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
			return attempts, nil
		}
		if err != nil {
			return 0, err
		}
		if _, err := to.Write(chunk.GetPayload()); err != nil {
			return 0, err
		}
	}
}

// behind asks for what comes behind the last chunk.
func behind(last any) ([]any, error) {
	chunk, ok := last.(*testv1.Response)
	if !ok {
		return nil, fmt.Errorf("cannot resume behind a %T", last)
	}
	return []any{&testv1.Request{Key: chunk.GetKey()}}, nil
}

// digest returns the size and the sha256 of a file.
func digest(file *os.File) (size int64, sum []byte, err error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, nil, err
	}
	hash := sha256.New()
	size, err = io.Copy(hash, file)
	return size, hash.Sum(nil), err
}
