// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// transfer is the file on its way.
type transfer struct {
	client testv1.TestServiceClient
	file   *os.File
	limit  int // of a batch
}

// unary sends the file in one call for each batch.
func (t transfer) unary(ctx context.Context, server *testserver.Server, report *report) error {
	sequence := 0
	for batch, err := range batches(t.file, t.limit) {
		if err != nil {
			return fmt.Errorf("read %s: %w", t.file.Name(), err)
		}
		sequence++
		report.begin(fmt.Sprintf("unary %d", sequence))
		disturb(server, sequence)
		var trailer metadata.MD
		answer, err := t.client.Put(ctx, &testv1.Request{Sequence: int64(sequence), Payload: batch}, grpc.Trailer(&trailer))
		report.batch(batch, answer, trailer, err)
	}
	return nil
}

// upload sends the file as one stream of batches, and gets one answer.
func (t transfer) upload(ctx context.Context) (metadata.MD, error) {
	stream, err := t.client.Upload(ctx)
	if err != nil {
		return nil, err
	}
	want := newTotal()
	for batch, err := range batches(t.file, t.limit) {
		if err != nil {
			return nil, err
		}
		want.add(batch)
		// io.EOF means that the stream is over: CloseAndRecv says why.
		if err := stream.Send(&testv1.Request{Payload: batch}); err != nil && !errors.Is(err, io.EOF) {
			return stream.Trailer(), err
		}
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return stream.Trailer(), err
	}
	return stream.Trailer(), differs(answer, want.response())
}

// download gets the file as one stream of batches.
func (t transfer) download(ctx context.Context) (metadata.MD, error) {
	stream, err := t.client.Download(ctx, &testv1.Request{Key: t.file.Name(), Sequence: int64(t.limit)})
	if err != nil {
		return nil, err
	}
	hash, got := sha256.New(), sha256.New()
	if _, err := io.Copy(hash, t.file); err != nil {
		return nil, err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return stream.Trailer(), err
		}
		got.Write(answer.GetPayload())
	}
	if string(hash.Sum(nil)) != string(got.Sum(nil)) {
		return stream.Trailer(), errors.New("the file that came is another")
	}
	return stream.Trailer(), nil
}

// exchange sends the file batch by batch, and gets an answer to each.
func (t transfer) exchange(ctx context.Context) (metadata.MD, error) {
	stream, err := t.client.Exchange(ctx)
	if err != nil {
		return nil, err
	}
	expected := make(chan *testv1.Response, 1<<10)
	sent := make(chan error, 1)
	go func() {
		defer close(expected)
		sent <- t.sendBatches(ctx, stream.Send, expected)
		_ = stream.CloseSend() // always nil
	}()
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return stream.Trailer(), err
		}
		if err := differs(answer, <-expected); err != nil {
			return stream.Trailer(), err
		}
	}
	if _, more := <-expected; more {
		return stream.Trailer(), errors.New("an answer is missing")
	}
	return stream.Trailer(), <-sent
}

// sendBatches sends the file, and tells what answers are expected.
func (t transfer) sendBatches(
	ctx context.Context, send func(*testv1.Request) error, expected chan<- *testv1.Response,
) error {
	sequence := int64(0)
	for batch, err := range batches(t.file, t.limit) {
		if err != nil {
			return err
		}
		sequence++
		select {
		case expected <- digest(sequence, batch):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := send(&testv1.Request{Sequence: sequence, Payload: batch}); errors.Is(err, io.EOF) {
			return nil // Recv says why
		} else if err != nil {
			return err
		}
	}
	return nil
}

// read asks the server for the digest of the file.
func (t transfer) read(ctx context.Context) (metadata.MD, error) {
	want := newTotal()
	if err := want.addAll(t.file, t.limit); err != nil {
		return nil, err
	}
	var trailer metadata.MD
	request := &testv1.Request{Key: t.file.Name(), Sequence: int64(t.limit)}
	answer, err := t.client.Read(ctx, request, grpc.Trailer(&trailer))
	if err != nil {
		return trailer, err
	}
	return trailer, differs(answer, want.response())
}

func differs(got, want *testv1.Response) error {
	if !proto.Equal(got, want) {
		return fmt.Errorf("the answer is wrong: %v instead of %v", got, want)
	}
	return nil
}
