// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// A batch is at most 64 KiB, and smaller where a small file would otherwise make
// too few calls to see anything.
const (
	maxBatch  = 64 << 10
	minBatch  = 64
	fairCalls = 40
)

func batchLimit(size int64) int {
	return int(min(max(size/fairCalls, minBatch), maxBatch))
}

// batches cuts what it reads into pieces of at most limit bytes, at line ends
// where there are any. An empty input is one empty batch.
func batches(r io.Reader, limit int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		reader := bufio.NewReaderSize(r, limit)
		for first := true; ; first = false {
			window, err := reader.Peek(limit)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
			if len(window) == 0 && !first {
				return
			}
			n := len(window)
			if end := bytes.LastIndexByte(window, '\n') + 1; end > 0 && err == nil {
				n = end
			}
			if !yield(bytes.Clone(window[:n]), nil) || n == 0 {
				return
			}
			if _, err := reader.Discard(n); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
