// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// request is one request of a Post.
type request struct {
	place

	number  int // from 0
	bytes   int
	message *jinapb.DataRequestProto
}

// place is where the documents of a request are in the input.
type place struct {
	first     int // from 0
	documents int
}

// String says which request it is, for errors.
func (r *request) String() string {
	if r.documents == 0 {
		return fmt.Sprintf("request %d (no documents)", r.number+1)
	}
	return fmt.Sprintf("request %d (documents %d to %d)", r.number+1, r.first+1, r.first+r.documents)
}

// tooLarge is what gRPC says of the request if it is too large for this side, unless it is
// compressed.
func (r *request) tooLarge() string {
	return fmt.Sprintf("%s (%d vs. ", tooLarge, proto.Size(r.message))
}

// identities make the ids of a Post's requests: 128 bits at random, which each request
// counts up by one.
type identities struct{ high, low uint64 }

func newIdentities() identities { return identities{rand.Uint64(), rand.Uint64()} }

// of returns the id of a request.
func (i identities) of(number int) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], i.high)
	binary.BigEndian.PutUint64(id[8:], i.low+uint64(number))
	return hex.EncodeToString(id[:])
}

// number returns the request that an id is of.
func (i identities) number(id string) (int, bool) {
	const half = 16
	if len(id) != 2*half {
		return 0, false
	}
	low, err := strconv.ParseUint(id[half:], 16, 64)
	number := int(low - i.low)
	return number, err == nil && number >= 0 && i.of(number) == id
}

// requests yields what the input is to be sent as. An error is the last that is yielded,
// after what was drawn before.
func (p *post) requests(ctx context.Context) iter.Seq2[*request, error] {
	return func(yield func(*request, error) bool) {
		number, first := 0, 0
		flush := func(docs []Document) bool {
			r := p.newRequest(number, place{first: first, documents: len(docs)}, docs)
			number, first = number+1, first+len(docs)
			return yield(r, nil)
		}
		if p.input.empty() {
			flush(nil)
			return
		}
		var batch []Document
		for doc, err := range p.input.draw(ctx) {
			if err != nil {
				if len(batch) == 0 || flush(batch) {
					yield(nil, err)
				}
				return
			}
			batch = append(batch, doc)
			if len(batch) == p.requestSize {
				if !flush(batch) {
					return
				}
				clear(batch)
				batch = batch[:0]
			}
		}
		if len(batch) > 0 {
			flush(batch)
		}
	}
}

// newRequest makes a request, in one piece of memory but for its documents and its id.
func (p *post) newRequest(number int, at place, docs []Document) *request {
	all := &struct {
		request request
		message jinapb.DataRequestProto
		header  jinapb.HeaderProto
		data    jinapb.DataRequestProto_DataContentProto
		docs    jinapb.DataRequestProto_DataContentProto_Docs
	}{}
	all.docs.Docs = EncodeDocuments(docs)
	all.data.Documents = &all.docs
	all.header.RequestId = p.ids.of(number)
	all.header.ExecEndpoint = &p.endpoint
	if p.targetExecutor != "" {
		all.header.TargetExecutor = &p.targetExecutor
	}
	all.message.Header, all.message.Data, all.message.Parameters = &all.header, &all.data, p.parameters
	all.request = request{place: at, number: number, bytes: len(all.docs.Docs) + p.overhead, message: &all.message}
	return &all.request
}

// noParameters is what Jina's client sends in place of none.
func noParameters() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		resultsKey: structpb.NewStructValue(&structpb.Struct{}),
	}}
}
