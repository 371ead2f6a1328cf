// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"errors"
	"io"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// echo is the answer of a method that nobody implemented: one response for
// every request of a bidirectional stream, one in all for the other shapes.
func (m *method) echo(st *stream) error {
	last := m.newRequest()
	for {
		request := m.newRequest()
		err := st.RecvMsg(request)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		last = request
		if m.clientStream && m.serverStream {
			if err := st.SendMsg(m.answer(request)); err != nil {
				return err
			}
		}
	}
	if m.clientStream && m.serverStream {
		return nil
	}
	return st.SendMsg(m.answer(last))
}

// answer makes a response, with the request's fields that it has too.
func (m *method) answer(request proto.Message) proto.Message {
	response := m.newResponse()
	to := response.ProtoReflect()
	fields := to.Descriptor().Fields()
	request.ProtoReflect().Range(func(from protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd := fields.ByName(from.Name()); fd != nil && !from.IsExtension() && alike(fd, from) {
			copyField(to, fd, v)
		}
		return true
	})
	return response
}

func alike(a, b protoreflect.FieldDescriptor) bool {
	if a.Kind() != b.Kind() || a.IsList() != b.IsList() || a.IsMap() != b.IsMap() {
		return false
	}
	if a.IsMap() {
		return alike(a.MapKey(), b.MapKey()) && alike(a.MapValue(), b.MapValue())
	}
	if a.Enum() != nil {
		return a.Enum().FullName() == b.Enum().FullName()
	}
	return a.Message() == nil || a.Message().FullName() == b.Message().FullName()
}

func copyField(to protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap():
		out := to.Mutable(fd).Map()
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			out.Set(k, converted(v, out.NewValue))
			return true
		})
	case fd.IsList():
		out := to.Mutable(fd).List()
		for i := range v.List().Len() {
			out.Append(converted(v.List().Get(i), out.NewElement))
		}
	default:
		to.Set(fd, converted(v, func() protoreflect.Value { return to.NewField(fd) }))
	}
}

// converted carries a message over to the Go type that the other side uses,
// which may differ where one of the two is dynamic. Other values need nothing.
func converted(v protoreflect.Value, empty func() protoreflect.Value) protoreflect.Value {
	m, ok := v.Interface().(protoreflect.Message)
	if !ok {
		return v
	}
	out := empty()
	// The bytes are those of a message of the same type, so this cannot fail.
	_ = transfer(out.Message().Interface(), m.Interface())
	return out
}

// transfer makes to say what from says, whatever Go types the two have.
func transfer(to, from proto.Message) error {
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(from)
	if err != nil {
		return err
	}
	return proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(b, to)
}
