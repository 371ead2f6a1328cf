// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// opaque is the type of a list whose documents are bytes: what the protobuf module makes
// of it is what we should.
func opaque(tb testing.TB) protoreflect.FieldDescriptor {
	tb.Helper()
	repeated, kind := descriptorpb.FieldDescriptorProto_LABEL_REPEATED, descriptorpb.FieldDescriptorProto_TYPE_BYTES
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("opaque.proto"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("Opaque"), Field: []*descriptorpb.FieldDescriptorProto{
				{Name: new("docs"), Number: new(int32(1)), Label: &repeated, Type: &kind},
			}},
		},
	}, nil)
	require.NoError(tb, err)
	return file.Messages().Get(0).Fields().Get(0)
}

// hasDocumentOfOtherType tells whether an unknown field has the number of documents.
func hasDocumentOfOtherType(unknown []byte) bool {
	for len(unknown) > 0 {
		number, _, size := protowire.ConsumeField(unknown)
		if number == documentsField {
			return true
		}
		unknown = unknown[size:]
	}
	return false
}

// FuzzDecodeDocuments holds what is read against the protobuf module, which takes a
// document of another wire type for a field that it does not know.
func FuzzDecodeDocuments(f *testing.F) {
	for _, row := range malformed {
		f.Add([]byte(row.data))
	}
	f.Add(list(f, someDocuments()...))
	f.Add([]byte("\x10\x96\x01\x0A\x01a\x13\x0A\x01x\x14"))
	field := opaque(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := collect(t, data)
		m := dynamicpb.NewMessage(field.ContainingMessage())
		theirs := proto.Unmarshal(data, m)
		if refused := theirs != nil || hasDocumentOfOtherType(m.GetUnknown()); refused != (err != nil) {
			t.Fatalf("the protobuf module says %v, and we say %v", theirs, err)
		}
		if err != nil {
			return
		}
		want := m.Get(field).List()
		require.Len(t, docs, want.Len())
		for i, doc := range docs {
			require.True(t, bytes.Equal(want.Get(i).Bytes(), doc), i)
		}
		again, err := collect(t, EncodeDocuments(docs))
		require.NoError(t, err)
		require.Equal(t, docs, again)
	})
}
