// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	docarraypb "github.com/seed98143e88/grpcretry/proto/docarray"
)

// Document is one document, encoded as its protobuf message: a docarray.DocProto of
// docarray v2, or a docarray.DocumentProto of v1. A document without any bytes is an
// empty one.
type Document []byte

// NewDocument encodes a message as a document, which is one of its own from then on. It
// fails if there is no message, or if it cannot be encoded, because a string in it is
// not valid UTF-8 for one.
func NewDocument(m proto.Message) (Document, error) {
	if missing(m) {
		return nil, errors.New("encoding a document: the message is nil")
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding a document as %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return data, nil
}

// Text returns a document that docarray v2 reads as a TextDoc, or as any other class
// whose text is a str. If the id is empty there is none, and whoever reads the document
// makes one up. It fails if the id or the text is not valid UTF-8.
func Text(id, text string) (Document, error) {
	fields := map[string]*docarraypb.NodeProto{
		"text": {Content: &docarraypb.NodeProto_Text{Text: text}},
	}
	if id != "" {
		// An id has a class of its own, by whose name docarray knows it.
		fields["id"] = &docarraypb.NodeProto{
			Content:      &docarraypb.NodeProto_Text{Text: id},
			DocarrayType: &docarraypb.NodeProto_Type{Type: "id"},
		}
	}
	return NewDocument(&docarraypb.DocProto{Data: fields})
}

// Text returns the id and the text of a document of docarray v2, as [Text] and docarray
// write them; each is empty if the document has none. It fails if the document cannot be
// read as one of v2. Documents of v1 mostly can, and then have neither.
func (d Document) Text() (id, text string, err error) {
	m := &docarraypb.DocProto{}
	if err := d.Unmarshal(m); err != nil {
		return "", "", err
	}
	return m.GetData()["id"].GetText(), m.GetData()["text"].GetText(), nil
}

// Unmarshal decodes the document into a message, which is reset before and shares no
// memory with the document. It fails if the message is nil, or the document is none of
// its kind; not all kinds can be told apart.
func (d Document) Unmarshal(m proto.Message) error {
	if missing(m) {
		return errors.New("decoding a document: the message is nil")
	}
	if err := proto.Unmarshal(d, m); err != nil {
		return fmt.Errorf("decoding a document as %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}

// missing tells that there is no message, or one that is a nil pointer.
func missing(m proto.Message) bool {
	return m == nil || !m.ProtoReflect().IsValid()
}

// documentsField is the only field of a list of documents, in v1 as in v2.
const documentsField protowire.Number = 1

// EncodeDocuments returns the documents as a list on the wire: a docarray.DocListProto
// of v2, or a docarray.DocumentArrayProto of v1, as the documents are.
func EncodeDocuments(docs []Document) []byte {
	size := 0
	for _, doc := range docs {
		size += protowire.SizeTag(documentsField) + protowire.SizeBytes(len(doc))
	}
	data := make([]byte, 0, size)
	for _, doc := range docs {
		data = protowire.AppendTag(data, documentsField, protowire.BytesType)
		data = protowire.AppendBytes(data, doc)
	}
	return data
}

// DecodeDocuments yields the documents of a list, which share its memory; what is
// appended to one does not reach the next. Fields that are not known are skipped. An
// error is the last that is yielded, and tells where the list is malformed. What is
// within a document is not looked at.
func DecodeDocuments(data []byte) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		count := 0
		for at := 0; at < len(data); {
			doc, size, err := decodeField(data[at:])
			if err != nil {
				yield(nil, fmt.Errorf("reading a list of documents: at byte %d of %d, where document %d would be: %w",
					at, len(data), count+1, err))
				return
			}
			at += size
			if doc == nil {
				continue
			}
			count++
			if !yield(doc, nil) {
				return
			}
		}
	}
}

// decodeField reads the first field of a list and returns the document, nil if the field
// is another, and how many bytes the field takes.
func decodeField(data []byte) (doc Document, size int, err error) {
	number, kind, tag := protowire.ConsumeTag(data)
	switch {
	case tag < 0:
		return nil, 0, fmt.Errorf("the tag of a field: %w", protowire.ParseError(tag))
	case !number.IsValid():
		return nil, 0, fmt.Errorf("the tag of a field: there is no field number %d", number)
	case number == documentsField && kind != protowire.BytesType:
		return nil, 0, fmt.Errorf("a document has the wire type %d, not %d", kind, protowire.BytesType)
	case number == documentsField:
		value, length := protowire.ConsumeBytes(data[tag:])
		if length < 0 {
			return nil, 0, fmt.Errorf("a document: %w", protowire.ParseError(length))
		}
		return slices.Clip(value), tag + length, nil
	}
	length := protowire.ConsumeFieldValue(number, kind, data[tag:])
	if length < 0 {
		return nil, 0, fmt.Errorf("field %d: %w", number, protowire.ParseError(length))
	}
	return nil, tag + length, nil
}
