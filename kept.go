// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed98143e88/grpcretry/internal/replay"
)

// What a message is charged beyond its encoded size, for what keeps it.
const (
	copyOverhead      = 64
	referenceOverhead = 24
)

// Why messages cannot be kept.
var (
	errNotProto = errors.New("the message is no protobuf message, and Buffer.ByReference is not set")
	errMixed    = errors.New("the message is of another type than those on the disk")
	// errUnencodable is the cause of commits by messages that gRPC will refuse.
	errUnencodable = errors.New("the message cannot be encoded")
)

// copied is the copy of a message. It is encoded, which takes less time and memory
// than a clone, and nearly all copies are never looked at.
type copied struct {
	kind protoreflect.MessageType
	data []byte
}

// kept is a list of messages that are kept: copies in memory and then on the disk, or
// the messages themselves. It is used under the stream's lock.
type kept struct {
	byReference bool // protobuf messages too, as long as there is memory
	foreign     bool // messages that are not protobuf, by reference
	buffer      *replay.Buffer
	spilled     protoreflect.MessageType // of what is on the disk
}

// add keeps a message, or says why it cannot.
func (k *kept) add(m any) error {
	message, isProto := asProto(m)
	if isProto && !k.byReference {
		return k.copy(message)
	}
	// gRPC takes nil for an empty message.
	if k.byReference || k.foreign || m == nil {
		if k.buffer.Reserve(charge(message, false)) {
			k.buffer.Append(m)
			return nil
		}
		if isProto {
			return k.copy(message)
		}
		return ErrBufferFull
	}
	return errNotProto
}

// asProto returns a message as one of protobuf, if it is: what merely embeds one is
// more than that, to a codec of somebody's own.
func asProto(m any) (proto.Message, bool) {
	message, isProto := m.(proto.Message)
	if !isProto || message.ProtoReflect().Interface() != m {
		return nil, false
	}
	return message, true
}

// charge is what a message is charged, which is kept itself or as a copy; nil is one that
// is not protobuf.
func charge(message proto.Message, copies bool) int64 {
	size := int64(referenceOverhead)
	if copies {
		size = copyOverhead
	}
	if message != nil {
		size += int64(proto.Size(message))
	}
	return size
}

// copy keeps a message encoded: in memory, or on the disk if there is no room.
func (k *kept) copy(m proto.Message) error {
	size := proto.Size(m)
	kind := m.ProtoReflect().Type()
	if !k.byReference && k.buffer.Reserve(int64(size)+copyOverhead) {
		data, err := encode(make([]byte, 0, size), m)
		if err == nil {
			k.buffer.Append(&copied{kind, data})
		}
		return err
	}
	if k.spilled != nil && k.spilled != kind {
		return fmt.Errorf("%w: %w", ErrBufferFull, errMixed)
	}
	err := k.buffer.Spill(size, func(data []byte) ([]byte, error) { return encode(data, m) })
	switch {
	case err == nil:
		k.spilled = kind
		return nil
	case errors.Is(err, errUnencodable):
		return err
	case errors.Is(err, replay.ErrFull):
		return ErrBufferFull
	default:
		return fmt.Errorf("%w: %w", ErrBufferFull, err)
	}
}

// free forgets all messages. What it returns gives the disk back, which can take
// long; it is nil if there is nothing on it.
func (k *kept) free() func() {
	file := k.buffer.Free()
	k.spilled = nil
	if file == nil {
		return nil
	}
	return func() { _ = file.Close() } // nobody wants to know what was in it
}

// encode appends a message whose size was just asked for.
func encode(data []byte, m proto.Message) ([]byte, error) {
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(data, m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	return data, nil
}

// decode returns a message as it was when it was encoded.
func decode(kind protoreflect.MessageType, data []byte) (any, error) {
	m := kind.New().Interface()
	return m, proto.UnmarshalOptions{NoLazyDecoding: true}.Unmarshal(data, m)
}

// keptReader reads what is kept, from its first message.
type keptReader struct {
	spilled protoreflect.MessageType
	from    replay.Reader
}

// fill returns how many messages next can be asked for. It needs the lock.
func (r *keptReader) fill(k *kept) int {
	r.spilled = k.spilled
	return r.from.Fill(k.buffer)
}

// next returns the next message. It is called without the lock, since the disk takes
// part.
func (r *keptReader) next() (any, error) {
	m, err := r.from.Next()
	if err != nil {
		return nil, status.Errorf(codes.DataLoss, "grpcretry: cannot replay: %v", err)
	}
	if frame, ok := m.(replay.Frame); ok {
		return decode(r.spilled, frame)
	}
	return original(m)
}

// original returns what is kept in memory as it was.
func original(m any) (any, error) {
	if copied, ok := m.(*copied); ok {
		return decode(copied.kind, copied.data)
	}
	return m, nil
}
