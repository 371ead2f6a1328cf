// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Defaults of [Buffer].
const (
	defaultBufferMemory = 256 << 10
	defaultBufferTotal  = 64 << 20
)

// Buffer bounds the messages that streams keep until their first response, so that
// they can be replayed, and what a [Recovery] keeps beyond it: requests and responses
// together. A message is charged its encoded size and 64 bytes. A stream whose messages
// do not fit goes on without replay and recovery. What [SendAll] sends from a
// [Replayable] source is not kept at all.
type Buffer struct {
	// Memory is the largest number of bytes that one stream keeps. Zero means
	// 256 KiB; a negative value means none, so that no stream with a request is
	// replayed.
	Memory int64

	// Disk is the largest number of bytes that one stream keeps on the disk, once
	// there is no room for them in memory: in a file in the directory of
	// [os.TempDir], without a name where the system allows that, so that no end of
	// the program leaves it behind. Zero means none. A file that cannot be made or
	// written counts as full, and one that does not give back what was written ends
	// the call with DATA_LOSS. Messages that are not protobuf are not kept there, nor
	// are those of a second type.
	Disk int64

	// Total is the largest number of bytes that all streams of a Retrier keep in
	// memory together. Zero means 64 MiB.
	Total int64

	// ByReference keeps the messages themselves, charged with 24 bytes each beyond
	// their size, instead of copies. It is the callers' promise not to touch a
	// message after it was sent, until the stream has its first response; with [Skip]
	// until its end, with [Acked] until it is answered. Responses are kept as copies
	// all the same. Messages that are not protobuf are kept by reference alone, the
	// responses that [Skip] and [Resume] keep among them.
	ByReference bool

	// Fail makes a stream whose messages do not fit fail with [ErrBufferFull] and
	// RESOURCE_EXHAUSTED.
	Fail bool
}

func (b Buffer) withDefaults() Buffer {
	if b.Memory == 0 {
		b.Memory = defaultBufferMemory
	}
	if b.Total == 0 {
		b.Total = defaultBufferTotal
	}
	return b
}

func (b Buffer) problems() error {
	var errs []error
	if b.Disk < 0 {
		errs = append(errs, fmt.Errorf("WithBuffer: %w", invalid("Disk", b.Disk, "must not be negative")))
	}
	if b.Total < 0 {
		errs = append(errs, fmt.Errorf("WithBuffer: %w", invalid("Total", b.Total, "must not be negative")))
	}
	return errors.Join(errs...)
}

// refusal is the status of a call whose input cannot be kept.
func (b Buffer) refusal(cause error) error {
	return status.Errorf(codes.ResourceExhausted,
		"grpcretry: %v, with Buffer.Memory of %d, Disk of %d and Total of %d bytes", cause, b.Memory, b.Disk, b.Total)
}
