// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Upload sends a file, by default one of 32 MiB that it makes up, to a server that is
// killed under it, and keeps but 1 MiB of it in memory: once as what it is, a file
// that can be opened again, and once as what most inputs are, a reader that is read
// but once. The server's sha256 must be that of the file.
//
//	go run ./examples/upload [file]
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

const (
	inMemory = 1 << 20  // of what a stream keeps
	onDisk   = 64 << 30 // beyond that
	madeUp   = 32 << 20 // the size of a file that is made up
)

func main() {
	path := ""
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(context.Background(), os.Stdout, path, madeUp); err != nil {
		fmt.Fprintln(os.Stderr, "upload:", err)
		os.Exit(1)
	}
}

// run uploads the file, or one of some size that it makes up if there is no path.
func run(ctx context.Context, out io.Writer, path string, size int64) error {
	if path == "" {
		made, err := makeFile(size)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(made) }()
		path = made
	}
	size, want, err := digest(path)
	if err != nil {
		return err
	}

	server := &server{}
	if err := server.Start(server); err != nil {
		return err
	}
	defer server.Stop()

	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 5}),
		grpcretry.WithBuffer(grpcretry.Buffer{Memory: inMemory, Disk: onDisk, Fail: true}),
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
	client := testv1.NewTestServiceClient(conn)

	for _, way := range []struct {
		name   string
		upload func(context.Context, testv1.TestServiceClient, string) (*testv1.Response, int, error)
	}{
		{"a file that is opened again", uploadFile},
		{"a reader that is read once", uploadOnce},
	} {
		// The server is killed when it has half of the file, and again at two thirds.
		server.Doom(size/2, 2*size/3)
		before := server.Kills()
		answer, attempts, err := way.upload(ctx, client, path)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if answer.GetCount() != size || string(answer.GetPayload()) != string(want) {
			return fmt.Errorf("%s: the server has %d bytes with sha256 %x, the file has %d with %x",
				way.name, answer.GetCount(), answer.GetPayload(), size, want)
		}
		fmt.Fprintf(out, "%s: %d bytes arrived, sha256 %.8x…; %d attempts, the server was killed %d times\n",
			way.name, size, want, attempts, server.Kills()-before)
	}
	return nil
}

// uploadFile sends a file that is opened again for each attempt, so that nothing of it
// has to be kept.
func uploadFile(ctx context.Context, client testv1.TestServiceClient, path string) (*testv1.Response, int, error) {
	return upload(ctx, client, grpcretry.Replayable(func() chunks { return readFile(path) }))
}

// uploadOnce sends what it reads. What was sent is kept: in memory, and then in a
// file, which has no name and is gone when the server has answered.
func uploadOnce(ctx context.Context, client testv1.TestServiceClient, path string) (*testv1.Response, int, error) {
	file, err := os.Open(path) //nolint:gosec // which file to send is the user's choice
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	return upload(ctx, client, grpcretry.Once(read(file)))
}

func upload(
	ctx context.Context, client testv1.TestServiceClient, source grpcretry.Source[*testv1.Request],
) (*testv1.Response, int, error) {
	stream, err := client.Upload(ctx)
	if err != nil {
		return nil, 0, err
	}
	if err := grpcretry.SendAll(stream, source); err != nil {
		return nil, 0, err
	}
	answer, err := stream.CloseAndRecv()
	attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
	return answer, attempts, err
}

// makeFile makes a file of random bytes.
func makeFile(size int64) (path string, err error) {
	file, err := os.CreateTemp("", "upload-*")
	if err != nil {
		return "", err
	}
	random := rand.NewChaCha8([32]byte{1})
	_, err = io.CopyN(file, random, size)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// digest returns the size and the sha256 of a file.
func digest(path string) (size int64, sum []byte, err error) {
	hash := sha256.New()
	for chunk, err := range readFile(path) {
		if err != nil {
			return 0, nil, fmt.Errorf("cannot send the file: %w", err)
		}
		size += int64(len(chunk.GetPayload()))
		hash.Write(chunk.GetPayload())
	}
	return size, hash.Sum(nil), nil
}
