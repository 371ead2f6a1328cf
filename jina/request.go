// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
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
	number    int // from 0
	first     int // the number of its first document, from 0
	documents int
	bytes     int
	message   *jinapb.DataRequestProto
}

// String says which request it is, for errors.
func (r *request) String() string {
	if r.documents == 0 {
		return fmt.Sprintf("request %d (no documents)", r.number+1)
	}
	return fmt.Sprintf("request %d (documents %d to %d)", r.number+1, r.first+1, r.first+r.documents)
}

// identities make the ids of a Post's requests: 128 bits at random, which each request
// counts up by one.
type identities struct{ high, low uint64 }

func newIdentities() identities { return identities{rand.Uint64(), rand.Uint64()} }

// of returns the id of a request.
func (i identities) of(number int) string {
	return fmt.Sprintf("%016x%016x", i.high, i.low+uint64(number))
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
		next := &request{}
		flush := func(docs []Document) bool {
			r := p.newRequest(next, docs)
			next = &request{number: r.number + 1, first: r.first + r.documents}
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

// newRequest fills a request.
func (p *post) newRequest(r *request, docs []Document) *request {
	r.documents = len(docs)
	r.message = &jinapb.DataRequestProto{
		Header:     &jinapb.HeaderProto{RequestId: p.ids.of(r.number), ExecEndpoint: &p.endpoint},
		Parameters: p.parameters,
		Data: &jinapb.DataRequestProto_DataContentProto{
			Documents: &jinapb.DataRequestProto_DataContentProto_Docs{Docs: EncodeDocuments(docs)},
		},
	}
	if p.targetExecutor != "" {
		r.message.Header.TargetExecutor = &p.targetExecutor
	}
	r.bytes = proto.Size(r.message)
	return r
}

// noParameters is what Jina's client sends in place of none.
func noParameters() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		resultsKey: structpb.NewStructValue(&structpb.Struct{}),
	}}
}
