// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"iter"
	"os"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// chunkSize is how much of a file goes into a message.
const chunkSize = 32 << 10

// chunks are the messages that a file is sent in.
type chunks = iter.Seq2[*testv1.Request, error]

// readFile opens a file and cuts it into chunks.
func readFile(path string) chunks {
	return func(yield func(*testv1.Request, error) bool) {
		file, err := os.Open(path) //nolint:gosec // which file to send is the user's choice
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		read(file)(yield)
	}
}

// read cuts what it reads into chunks. All of them are one message, over and over
// again, which SendAll allows.
func read(r io.Reader) chunks {
	return func(yield func(*testv1.Request, error) bool) {
		buffer := make([]byte, chunkSize)
		chunk := &testv1.Request{}
		for {
			n, err := io.ReadFull(r, buffer)
			if chunk.Payload = buffer[:n]; n > 0 && !yield(chunk, nil) {
				return
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
