// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry/internal/replay"
)

// Defaults of [Buffer].
const (
	defaultBufferMemory = 256 << 10
	defaultBufferTotal  = 64 << 20
)

// What a message is charged beyond its encoded size, for what keeps it.
const (
	copyOverhead      = 64
	referenceOverhead = 24
)

// Buffer bounds the messages that streams keep until their first response, so that
// they can be replayed. A message is charged its encoded size and 64 bytes. A
// stream whose input does not fit goes on without replay.
type Buffer struct {
	// Memory is the largest number of bytes that one stream keeps. Zero means
	// 256 KiB; a negative value means none, so that no stream with a request is
	// replayed.
	Memory int64

	// Total is the largest number of bytes that all streams of a Retrier keep
	// together. Zero means 64 MiB.
	Total int64

	// ByReference keeps the messages themselves, charged with 24 bytes each beyond
	// their size, instead of copies. It is the callers' promise not to touch a
	// message after it was sent, until the stream has its first response. Messages
	// that are not protobuf are kept in this way alone.
	ByReference bool

	// Fail makes a stream whose input does not fit fail with [ErrBufferFull] and
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
	if b.Total < 0 {
		return fmt.Errorf("WithBuffer: %w", invalid("Total", b.Total, "must not be negative"))
	}
	return nil
}

// errNotProto is the cause of commits by messages that cannot be copied.
var errNotProto = errors.New("the message is no protobuf message, and Buffer.ByReference is not set")

// keep adds a message to the buffer of a stream, or says why it cannot be kept.
func (b Buffer) keep(to *replay.Buffer, m any) error {
	message, isProto := m.(proto.Message)
	if !isProto && !b.ByReference && m != nil { // gRPC takes nil for an empty message
		return errNotProto
	}
	size := int64(copyOverhead)
	if b.ByReference {
		size = referenceOverhead
	}
	if isProto {
		size += int64(proto.Size(message))
	}
	if !to.Reserve(size) {
		return ErrBufferFull
	}
	if isProto && !b.ByReference {
		m = proto.Clone(message)
	}
	to.Append(m)
	return nil
}
