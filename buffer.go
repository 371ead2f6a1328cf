// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// errUnencodable is the cause of commits by messages that gRPC will refuse.
var errUnencodable = errors.New("the message cannot be encoded")

// copied is the copy of a message. It is encoded, which takes less time and memory
// than a clone, and nearly all copies are never looked at.
type copied struct {
	kind protoreflect.MessageType
	data []byte
}

// message returns a message as an attempt is to send it.
func message(kept any) (any, error) {
	c, isCopy := kept.(*copied)
	if !isCopy {
		return kept, nil
	}
	m := c.kind.New().Interface()
	return m, proto.UnmarshalOptions{NoLazyDecoding: true}.Unmarshal(c.data, m)
}

// keep adds a message to the buffer of a stream, or says why it cannot be kept.
func (b Buffer) keep(to *replay.Buffer, m any) error {
	message, isProto := m.(proto.Message)
	switch {
	case b.ByReference || m == nil: // gRPC takes nil for an empty message
		size := int64(referenceOverhead)
		if isProto {
			size += int64(proto.Size(message))
		}
		if !to.Reserve(size) {
			return ErrBufferFull
		}
		to.Append(m)
		return nil
	case !isProto:
		return errNotProto
	}
	options := proto.MarshalOptions{}
	size := options.Size(message)
	if !to.Reserve(int64(size) + copyOverhead) {
		return ErrBufferFull
	}
	options.UseCachedSize = true
	data, err := options.MarshalAppend(make([]byte, 0, size), message)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnencodable, err)
	}
	to.Append(&copied{message.ProtoReflect().Type(), data})
	return nil
}
