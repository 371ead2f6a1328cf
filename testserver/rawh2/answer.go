// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// The size of one block of header fields, counted as HTTP/2 counts a header
// list, with 32 bytes more for each field: such a block fits in one frame.
const maxFieldBytes = 16 << 10

// OK answers a unary call with success: headers, the message, and trailers with
// grpc-status 0. The message is an encoded protobuf, at most 32 KiB; nil is an
// empty message.
func OK(message []byte) Step {
	return Headers().Then(Message(message), Trailers("grpc-status", "0"))
}

// Headers sends response headers: status 200, content-type application/grpc,
// and the given fields, which alternate between names and values. Names are
// sent as they are; a ":status" or "content-type" among them takes the place of
// the default. The fields may have 16 KiB, each with 32 bytes added.
func Headers(fields ...string) Step {
	list, err := fieldList("Headers", fields)
	if err != nil {
		return Step{faults: []error{err}}
	}
	return step(0, func(s *stream) {
		s.writeHeaders(withDefaults(list), false)
	})
}

// Trailers sends the given fields, which alternate between names and values,
// and ends the stream. Nothing is added, so a missing, malformed or repeated
// grpc-status is sent as it is given. Without [Headers] before it the answer is
// trailers-only, and gets the defaults of [Headers]. The limit is that of
// [Headers].
func Trailers(fields ...string) Step {
	list, err := fieldList("Trailers", fields)
	if err != nil {
		return Step{faults: []error{err}}
	}
	return step(0, func(s *stream) {
		fields := list
		if !s.headersSent {
			fields = withDefaults(list)
		}
		s.writeHeaders(fields, true)
	})
}

// Message sends one gRPC message, uncompressed, of at most 32 KiB. It does not
// send headers.
func Message(message []byte) Step {
	return data(uint32(len(message)), message)
}

// EndStream ends the stream without trailers.
func EndStream() Step {
	return step(0, func(s *stream) {
		s.writeData(nil, true)
	})
}

// HTTPStatus answers like a proxy that does not speak gRPC: with an HTTP status
// from 100 to 599, a content-type unless it is empty, no grpc-status, and a
// body of the given strings, each in a DATA frame of its own.
func HTTPStatus(status int, contentType string, body ...string) Step {
	if status < 100 || status > 599 {
		return faulty("HTTPStatus: status is %d, not between 100 and 599", status)
	}
	fields := []string{":status", strconv.Itoa(status)}
	if contentType != "" {
		fields = append(fields, "content-type", contentType)
	}
	list, err := fieldList("HTTPStatus", fields)
	if err != nil {
		return Step{faults: []error{err}}
	}
	answer := step(0, func(s *stream) {
		s.writeHeaders(list, len(body) == 0)
	})
	body = slices.Clone(body)
	for i, part := range body {
		answer = answer.Then(step(len(part), func(s *stream) {
			s.writeData([]byte(part), i == len(body)-1)
		}))
	}
	return answer
}

// data sends a gRPC message whose prefix says length.
func data(length uint32, payload []byte) Step {
	framed := make([]byte, prefixBytes, prefixBytes+len(payload))
	binary.BigEndian.PutUint32(framed[1:], length)
	framed = append(framed, payload...)
	return step(len(framed), func(s *stream) {
		s.writeData(framed, false)
	})
}

// fieldList pairs names and values.
func fieldList(caller string, fields []string) ([]hpack.HeaderField, error) {
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("%s: field %q has no value", caller, fields[len(fields)-1])
	}
	size := 0
	var list []hpack.HeaderField
	for pair := range slices.Chunk(fields, 2) {
		if pair[0] == "" {
			return nil, fmt.Errorf("%s: field with value %q has no name", caller, pair[1])
		}
		field := hpack.HeaderField{Name: pair[0], Value: pair[1]}
		size += int(field.Size())
		list = append(list, field)
	}
	if size > maxFieldBytes {
		return nil, fmt.Errorf("%s: fields have %d bytes, the limit is %d", caller, size, maxFieldBytes)
	}
	return list, nil
}

// withDefaults puts the fields of a gRPC response that are not in the list
// before it.
func withDefaults(list []hpack.HeaderField) []hpack.HeaderField {
	var fields []hpack.HeaderField
	for _, field := range []hpack.HeaderField{
		{Name: ":status", Value: "200"},
		{Name: "content-type", Value: "application/grpc"},
	} {
		given := func(f hpack.HeaderField) bool { return f.Name == field.Name }
		if !slices.ContainsFunc(list, given) {
			fields = append(fields, field)
		}
	}
	return append(fields, list...)
}
