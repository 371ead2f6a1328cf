// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"
	"sort"

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

// input is what a stream was sent so far, so that it can be sent again: messages
// that are kept, and stretches that a Source gives anew. It is used under the
// stream's lock.
type input struct {
	byReference bool
	kept        *replay.Buffer
	spilled     protoreflect.MessageType // of what is kept on the disk
	length      int
	stretches   []*stretch // in order; most streams have none
	open        bool       // what is added belongs to the last stretch
}

// stretch is a part of the input that is not kept.
type stretch struct {
	first, end int // of the input's messages
	run        func() messages
}

// freeStretches is how many stretches are not charged.
const freeStretches = 8

// begin starts a stretch. If there is no room for that, what follows is kept.
func (in *input) begin(run func() messages) {
	if len(in.stretches) >= freeStretches && !in.kept.Reserve(copyOverhead) {
		return
	}
	in.stretches = append(in.stretches, &stretch{in.length, in.length, run})
	in.open = true
}

// end ends the stretch that was begun.
func (in *input) end() { in.open = false }

// add takes a message, or says why it cannot be sent again.
func (in *input) add(m any) error {
	if in.open {
		in.stretches[len(in.stretches)-1].end++
	} else if err := in.keep(m); err != nil {
		return err
	}
	in.length++
	return nil
}

// keep keeps a message.
func (in *input) keep(m any) error {
	message, isProto := m.(proto.Message)
	// What merely embeds a message is more than that, to a codec of somebody's own.
	isProto = isProto && message.ProtoReflect().Interface() == m
	if in.byReference || m == nil { // gRPC takes nil for an empty message
		size := int64(referenceOverhead)
		if isProto {
			size += int64(proto.Size(message))
		}
		if in.kept.Reserve(size) {
			in.kept.Append(m)
			return nil
		}
	}
	switch {
	case isProto:
		return in.copy(message)
	case in.byReference || m == nil:
		return ErrBufferFull
	default:
		return errNotProto
	}
}

// copy keeps a message encoded: in memory, or on the disk if there is no room.
func (in *input) copy(m proto.Message) error {
	size := proto.Size(m)
	kind := m.ProtoReflect().Type()
	if !in.byReference && in.kept.Reserve(int64(size)+copyOverhead) {
		data, err := encode(make([]byte, 0, size), m)
		if err == nil {
			in.kept.Append(&copied{kind, data})
		}
		return err
	}
	if in.spilled != nil && in.spilled != kind {
		return fmt.Errorf("%w: %w", ErrBufferFull, errMixed)
	}
	err := in.kept.Spill(size, func(data []byte) ([]byte, error) { return encode(data, m) })
	switch {
	case err == nil:
		in.spilled = kind
		return nil
	case errors.Is(err, errUnencodable):
		return err
	case errors.Is(err, replay.ErrFull):
		return ErrBufferFull
	default:
		return fmt.Errorf("%w: %w", ErrBufferFull, err)
	}
}

// encode appends a message whose size was just asked for.
func encode(data []byte, m proto.Message) ([]byte, error) {
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(data, m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	return data, nil
}

// at returns the stretch that a message is in, or nil if it is kept, and where the
// messages of its sort end.
func (in *input) at(position int) (part *stretch, end int) {
	i := sort.Search(len(in.stretches), func(i int) bool { return position < in.stretches[i].end })
	switch {
	case i == len(in.stretches):
		return nil, in.length
	case position < in.stretches[i].first:
		return nil, in.stretches[i].first
	default:
		return in.stretches[i], in.stretches[i].end
	}
}

// free forgets all messages. What it returns gives the disk back, which can take
// long; it is nil if there is nothing on it.
func (in *input) free() func() {
	file := in.kept.Free()
	in.stretches, in.open, in.spilled = nil, false, nil
	if file == nil {
		return nil
	}
	return func() { _ = file.Close() } // nobody wants to know what was in it
}

// inputReader reads an input for one attempt, from its first message.
type inputReader struct {
	position int
	spilled  protoreflect.MessageType
	kept     replay.Reader

	part *stretch // that is to be read; nil for what is kept
	run  run      // of a stretch that is read
}

// fill returns how many messages next can be asked for. It needs the lock.
func (r *inputReader) fill(in *input) int {
	part, end := in.at(r.position)
	n := min(end-r.position, replay.Batch)
	if part == nil {
		n = min(n, r.kept.Fill(in.kept))
	}
	r.part, r.spilled = part, in.spilled
	return n
}

// next returns the next message. It is called without the lock: a Source's own
// functions take part, and the disk.
func (r *inputReader) next() (any, error) {
	r.position++
	if r.part != nil {
		return r.run.next(r.part)
	}
	kept, err := r.kept.Next()
	if err != nil {
		return nil, status.Errorf(codes.DataLoss, "grpcretry: cannot replay: %v", err)
	}
	switch m := kept.(type) {
	case *copied:
		return decode(m.kind, m.data)
	case replay.Frame:
		return decode(r.spilled, m)
	default:
		return m, nil
	}
}

// decode returns a message as an attempt is to send it.
func decode(kind protoreflect.MessageType, data []byte) (any, error) {
	m := kind.New().Interface()
	return m, proto.UnmarshalOptions{NoLazyDecoding: true}.Unmarshal(data, m)
}

// close ends what was begun.
func (r *inputReader) close() { r.run.close() }
