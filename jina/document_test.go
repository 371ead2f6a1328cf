// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	docarraypb "github.com/seed98143e88/grpcretry/proto/docarray"
)

// collect returns the documents of a list, and the error that it ends with. It holds
// that there is nothing behind an error, and no document with it.
func collect(tb testing.TB, data []byte) ([]Document, error) {
	tb.Helper()
	docs := []Document{}
	var failure error
	for doc, err := range DecodeDocuments(data) {
		require.NoError(tb, failure, "something is behind an error")
		if failure = err; err != nil {
			require.Nil(tb, doc)
			continue
		}
		require.NotNil(tb, doc)
		docs = append(docs, doc)
	}
	return docs, failure
}

// list encodes a list of documents as docarray v2 does.
func list(tb testing.TB, docs ...*docarraypb.DocProto) []byte {
	tb.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&docarraypb.DocListProto{Docs: docs})
	require.NoError(tb, err)
	return data
}

// textNode is a node with a text and, unless it is empty, a type.
func textNode(text, kind string) *docarraypb.NodeProto {
	node := &docarraypb.NodeProto{Content: &docarraypb.NodeProto_Text{Text: text}}
	if kind != "" {
		node.DocarrayType = &docarraypb.NodeProto_Type{Type: kind}
	}
	return node
}

// someDocuments are messages, an empty one among them, and one that is long.
func someDocuments() []*docarraypb.DocProto {
	return []*docarraypb.DocProto{
		{Data: map[string]*docarraypb.NodeProto{"id": textNode("a", "id")}},
		{},
		{Data: map[string]*docarraypb.NodeProto{"blob": {Content: &docarraypb.NodeProto_Blob{Blob: make([]byte, 300)}}}},
		{Data: map[string]*docarraypb.NodeProto{"none": {}}},
	}
}

// TestEncodeDocuments holds that docarray v2 reads what we wrote.
func TestEncodeDocuments(t *testing.T) {
	t.Parallel()
	want := &docarraypb.DocListProto{Docs: someDocuments()}
	var docs []Document
	for _, m := range want.GetDocs() {
		doc, err := NewDocument(m)
		require.NoError(t, err)
		docs = append(docs, doc)
	}
	got := &docarraypb.DocListProto{}
	require.NoError(t, proto.Unmarshal(EncodeDocuments(docs), got))
	assert.True(t, proto.Equal(want, got), got)

	assert.Empty(t, EncodeDocuments(nil))
	assert.Equal(t, []byte{0x0A, 0, 0x0A, 0}, EncodeDocuments([]Document{nil, {}}))
}

// TestDecodeDocuments holds that we read what docarray v2 wrote.
func TestDecodeDocuments(t *testing.T) {
	t.Parallel()
	want := someDocuments()
	docs, err := collect(t, list(t, want...))
	require.NoError(t, err)
	require.Len(t, docs, len(want))
	for i, doc := range docs {
		got := &docarraypb.DocProto{Data: map[string]*docarraypb.NodeProto{"of before": {}}}
		require.NoError(t, doc.Unmarshal(got))
		assert.True(t, proto.Equal(want[i], got), got)
	}
	docs, err = collect(t, nil)
	require.NoError(t, err)
	assert.Empty(t, docs)
}

// TestDecodeDocumentsStops holds that a reader may stop at any document.
func TestDecodeDocumentsStops(t *testing.T) {
	t.Parallel()
	data := append(list(t, someDocuments()...), 0)
	for most := 1; most <= 4; most++ {
		read := 0
		for _, err := range DecodeDocuments(data) {
			require.NoError(t, err)
			if read++; read == most {
				break
			}
		}
		assert.Equal(t, most, read)
	}
}

// TestDecodedDocumentsShareMemory holds that documents are not copied, and that they
// cannot grow into each other.
func TestDecodedDocumentsShareMemory(t *testing.T) {
	t.Parallel()
	data := EncodeDocuments([]Document{[]byte("one"), []byte("two")})
	docs, err := collect(t, data)
	require.NoError(t, err)
	_ = append(docs[0], "and a half"...)
	assert.Equal(t, Document("two"), docs[1])
	data[2] = 'O'
	assert.Equal(t, Document("One"), docs[0])
}

// versionOne is a docarray.DocumentArrayProto of v1, as far as this test needs it.
func versionOne(tb testing.TB) (list, document protoreflect.MessageDescriptor) {
	tb.Helper()
	optional, repeated := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	text, message := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("v1.proto"), Package: new("docarray"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("DocumentArrayProto"), Field: []*descriptorpb.FieldDescriptorProto{{
				Name: new("docs"), Number: new(int32(1)), Label: &repeated, Type: &message,
				TypeName: new(".docarray.DocumentProto"),
			}}},
			{Name: new("DocumentProto"), Field: []*descriptorpb.FieldDescriptorProto{
				{Name: new("id"), Number: new(int32(1)), Label: &optional, Type: &text},
				{Name: new("text"), Number: new(int32(4)), Label: &optional, Type: &text},
			}},
		},
	}, nil)
	require.NoError(tb, err)
	return file.Messages().Get(0), file.Messages().Get(1)
}

// TestVersionOne holds that documents of v1 are framed like those of v2.
func TestVersionOne(t *testing.T) {
	t.Parallel()
	listType, docType := versionOne(t)
	var docs []Document
	for _, id := range []string{"a", "b"} {
		m := dynamicpb.NewMessage(docType)
		m.Set(docType.Fields().ByName("id"), protoreflect.ValueOfString(id))
		m.Set(docType.Fields().ByName("text"), protoreflect.ValueOfString("text of "+id))
		doc, err := NewDocument(m)
		require.NoError(t, err)
		docs = append(docs, doc)
	}
	data := EncodeDocuments(docs)
	m := dynamicpb.NewMessage(listType)
	require.NoError(t, proto.Unmarshal(data, m))
	second := m.Get(listType.Fields().ByName("docs")).List().Get(1).Message()
	assert.Equal(t, "text of b", second.Get(docType.Fields().ByName("text")).String())
	got, err := collect(t, data)
	require.NoError(t, err)
	assert.Equal(t, docs, got)
}

// malformed are lists that are none, and what is said of them.
var malformed = []struct {
	name, data, message string
	documents           int
}{
	{
		name: "tag is cut off", data: "\x0A\x01x\x80",
		message: "at byte 3 of 4, where document 2 would be: the tag of a field: unexpected EOF", documents: 1,
	},
	{
		name: "length is missing", data: "\x0A",
		message: "at byte 0 of 1, where document 1 would be: a document: unexpected EOF",
	},
	{
		name: "document is cut off", data: "\x0A\x00\x0A\x03xy",
		message: "at byte 2 of 6, where document 2 would be: a document: unexpected EOF", documents: 1,
	},
	{
		name: "length is beyond an int", data: "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
		message: "at byte 0 of 11, where document 1 would be: a document: unexpected EOF",
	},
	{
		name: "length is beyond 64 bits", data: "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02",
		message: "at byte 0 of 11, where document 1 would be: a document: proto: variable length integer overflow",
	},
	{
		name: "document is a number", data: "\x08\x01",
		message: "at byte 0 of 2, where document 1 would be: a document has the wire type 0, not 2",
	},
	{
		name: "document is a group", data: "\x0A\x00\x0B\x0C",
		message: "at byte 2 of 4, where document 2 would be: a document has the wire type 3, not 2", documents: 1,
	},
	{
		name: "field 0", data: "\x02\x00",
		message: "at byte 0 of 2, where document 1 would be: the tag of a field: proto: invalid field number",
	},
	{
		name: "field number is too large", data: "\x80\x80\x80\x80\x10\x00",
		message: "at byte 0 of 6, where document 1 would be: the tag of a field: there is no field number 536870912",
	},
	{
		name: "unknown field is cut off", data: "\x12\x05abc",
		message: "at byte 0 of 5, where document 1 would be: field 2: unexpected EOF",
	},
	{
		name: "group does not end", data: "\x13\x08\x01",
		message: "at byte 0 of 3, where document 1 would be: field 2: unexpected EOF",
	},
	{
		name: "group ends that did not begin", data: "\x14",
		message: "at byte 0 of 1, where document 1 would be: field 2: proto: mismatching end group marker",
	},
	{
		name: "wire type 6", data: "\x16\x00",
		message: "at byte 0 of 2, where document 1 would be: field 2: proto: cannot parse reserved wire type",
	},
	{
		name: "text", data: "hello",
		message: "at byte 2 of 5, where document 1 would be: field 13: proto: mismatching end group marker",
	},
}

func TestMalformedDocuments(t *testing.T) {
	t.Parallel()
	for _, row := range malformed {
		docs, err := collect(t, []byte(row.data))
		require.Error(t, err, row.name)
		// The protobuf module puts one of two kinds of spaces behind its prefix.
		message := strings.ReplaceAll(err.Error(), "\u00a0", " ")
		assert.Equal(t, "reading a list of documents: "+row.message, message, row.name)
		assert.Len(t, docs, row.documents, row.name)
	}
	_, err := collect(t, []byte("\x0A\x02x"))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestCutDocuments holds that a list that is cut anywhere but between documents is
// noticed.
func TestCutDocuments(t *testing.T) {
	t.Parallel()
	whole := list(t, someDocuments()...)
	ends := map[int]bool{0: true}
	end := 0
	for doc := range DecodeDocuments(whole) {
		end += 1 + protowire.SizeBytes(len(doc))
		ends[end] = true
	}
	require.Len(t, ends, 5)
	for size := range whole {
		_, err := collect(t, whole[:size])
		assert.Equal(t, ends[size], err == nil, size)
	}
}

// TestUnknownFieldsOfAList holds that they are skipped, whatever they are.
func TestUnknownFieldsOfAList(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]string{
		"number":       "\x10\x96\x01",
		"fixed64":      "\x1112345678",
		"bytes":        "\x12\x03abc",
		"group":        "\x13\x0A\x01x\x13\x14\x14",
		"fixed32":      "\x151234",
		"large number": "\xFA\xFF\xFF\xFF\x0F\x01x",
	} {
		docs, err := collect(t, []byte(field+"\x0A\x01a"+field+"\x0A\x01b"+field))
		require.NoError(t, err, name)
		assert.Equal(t, []Document{[]byte("a"), []byte("b")}, docs, name)
	}
}

// TestText holds what docarray v2 makes of a TextDoc: the id has a type, the text has not.
func TestText(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		id, text string
		want     map[string]*docarraypb.NodeProto
	}{
		{"7", "hello", map[string]*docarraypb.NodeProto{"id": textNode("7", "id"), "text": textNode("hello", "")}},
		{"", "hello", map[string]*docarraypb.NodeProto{"text": textNode("hello", "")}},
		{"7", "", map[string]*docarraypb.NodeProto{"id": textNode("7", "id"), "text": textNode("", "")}},
	} {
		doc, err := Text(row.id, row.text)
		require.NoError(t, err)
		got := &docarraypb.DocProto{}
		require.NoError(t, doc.Unmarshal(got))
		assert.True(t, proto.Equal(&docarraypb.DocProto{Data: row.want}, got), got)
	}
	for _, row := range [][2]string{{"\xFF", "hello"}, {"7", "\xFF"}} {
		doc, err := Text(row[0], row[1])
		assert.Nil(t, doc)
		assert.ErrorContains(t, err, "encoding a document as docarray.DocProto: ")
		assert.ErrorContains(t, err, "UTF-8")
	}
}

func TestNoMessage(t *testing.T) {
	t.Parallel()
	for _, m := range []proto.Message{nil, (*docarraypb.DocProto)(nil)} {
		doc, err := NewDocument(m)
		assert.Nil(t, doc)
		assert.EqualError(t, err, "encoding a document: the message is nil")
		assert.EqualError(t, Document{}.Unmarshal(m), "decoding a document: the message is nil")
	}
	err := Document("\x0A\x05x").Unmarshal(&docarraypb.DocProto{})
	assert.ErrorContains(t, err, "decoding a document as docarray.DocProto: ")
}

// TestDocumentAllocations holds that a list costs itself, and reading one nothing.
func TestDocumentAllocations(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the whole process
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	docs := slices.Repeat([]Document{[]byte("a document"), make([]byte, 1000)}, 50)
	data := EncodeDocuments(docs)
	assert.Len(t, data, cap(data))
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { data = EncodeDocuments(docs) }), 1.0)
	read := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for doc, err := range DecodeDocuments(data) {
			if err == nil {
				read += len(doc)
			}
		}
	}))
	assert.NotZero(t, read)
}

// TestText holds that what is written can be read.
func TestReadText(t *testing.T) {
	t.Parallel()
	for _, want := range [][2]string{{"a", "b"}, {"", "b"}, {"a", ""}, {"", ""}} {
		doc, err := Text(want[0], want[1])
		require.NoError(t, err)
		id, text, err := doc.Text()
		require.NoError(t, err)
		assert.Equal(t, want, [2]string{id, text})
	}
	id, text, err := Document(nil).Text()
	require.NoError(t, err)
	assert.Empty(t, id+text)
	_, _, err = Document("x").Text()
	require.ErrorContains(t, err, "decoding a document as docarray.DocProto")
}
