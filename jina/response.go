// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"errors"
	"iter"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// Response is the answer to one request of a Post. What its methods return shares its
// memory.
type Response struct {
	message *jinapb.DataRequestProto
	of      place
}

// RequestID returns the identity of the request, which the Post made up.
func (r *Response) RequestID() string { return r.message.GetHeader().GetRequestId() }

// Request returns which documents of the input the request had: the number of the first,
// from 0, and how many.
func (r *Response) Request() (first, documents int) { return r.of.first, r.of.documents }

// Documents yields the documents of the response, in order: what the executors made of
// those of the request, in any number, and after an error of one what it was given. An error is the last that is
// yielded, and says that they cannot be read.
func (r *Response) Documents() iter.Seq2[Document, error] {
	if _, other := r.message.GetData().GetDocuments().(*jinapb.DataRequestProto_DataContentProto_DocsBytes); other {
		return func(yield func(Document, error) bool) {
			yield(nil, errors.New("reading the documents of a response: they are docs_bytes, in an encoding of their own"))
		}
	}
	return DecodeDocuments(r.message.GetData().GetDocs())
}

// Parameters returns the parameters of the response: those of the request, and what
// executors made of them. It is made anew each time.
func (r *Response) Parameters() map[string]any { return r.message.GetParameters().AsMap() }

// Results returns what executors returned beside documents, by executor: the __results__
// among the parameters. It is made anew each time, and nil if there are none.
func (r *Response) Results() map[string]any {
	return r.message.GetParameters().GetFields()[resultsKey].GetStructValue().AsMap()
}

// Err returns the error of the executor that the request failed with, an
// [ExecutorError]; nil if it did not fail.
func (r *Response) Err() error {
	header := r.message.GetHeader()
	return executorError(header.GetStatus(), header.GetExecEndpoint(), header.GetRequestId())
}

// Message returns the response as it came, with the routes that it took.
func (r *Response) Message() *jinapb.DataRequestProto { return r.message }
