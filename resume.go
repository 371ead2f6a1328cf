// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// resuming is Resume at work: it keeps the last response.
type resuming struct {
	passive

	s       *stream
	has     bool // there was a response
	kind    protoreflect.MessageType
	copy    []byte // of the response, if that is of protobuf
	last    any    // else the response itself
	charged int64
	given   []any // for the next attempt
}

// received implements recoverer.
func (r *resuming) received(a *streamAttempt, m any) bool {
	r.s.mu.Lock()
	defer r.s.unlock()
	goesOn, mine := r.s.goesOn(a)
	if !goesOn {
		return mine
	}
	if !r.s.committed {
		if err := r.keep(m); err != nil && r.s.unkept(a, err) != nil {
			return false
		}
	}
	if !r.has {
		r.has = true
		if !a.pumping {
			r.pumped()
		}
	}
	r.s.take(a, true)
	return true
}

// keep keeps a response in place of the last one. There is but one, so that it need not
// fit Buffer.Memory: a download in large chunks is to be resumed too.
func (r *resuming) keep(m any) error {
	message, isProto := asProto(m)
	if !isProto && !r.s.retrier.buffer.ByReference {
		return errNotProto
	}
	charged := charge(message, isProto)
	if !r.s.retrier.buffered.Swap(r.charged, charged) {
		return ErrBufferFull
	}
	r.charged = charged
	if !isProto {
		r.last = m
		return nil
	}
	size := int(charged - copyOverhead)
	if cap(r.copy) < size || cap(r.copy) > 2*size+copyOverhead {
		r.copy = make([]byte, 0, size)
	}
	r.kind = message.ProtoReflect().Type()
	var err error
	r.copy, err = encode(r.copy[:0], message)
	return err
}

// prepare implements recoverer. It asks what to send.
func (r *resuming) prepare() error {
	if !r.has {
		return nil
	}
	last := r.last
	if r.kind != nil {
		var err error
		if last, err = decode(r.kind, r.copy); err != nil {
			return status.Errorf(codes.Internal, "grpcretry: Resume: cannot decode the last response: %v", err)
		}
	}
	requests, err := r.s.rule.Recovery.next(last)
	if _, ok := status.FromError(err); !ok {
		return fmt.Errorf("grpcretry: Resume: next failed: %w", err)
	}
	if err == nil {
		err = r.refuses(requests)
	}
	if err == nil {
		r.given = r.copies(requests)
	}
	return err
}

// copies returns the requests as they are now, since they are sent later, and next may use
// them again.
func (r *resuming) copies(requests []any) []any {
	requests = slices.Clone(requests)
	for i, request := range requests {
		if message, isProto := asProto(request); isProto && !r.s.input.byReference {
			requests[i] = proto.Clone(message)
		}
	}
	return requests
}

// refuses returns what is wrong with requests; nil if nothing is.
func (r *resuming) refuses(requests []any) error {
	if n := len(requests); n != 1 && !r.s.desc.ClientStreams {
		return status.Errorf(codes.Internal, "grpcretry: Resume: next gave %d requests, and %s takes 1", n, r.s.ledger.method)
	}
	for i, request := range requests {
		v := reflect.ValueOf(request)
		if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return status.Errorf(codes.Internal, "grpcretry: Resume: next gave nil as request %d", i+1)
		}
		if r.s.request != nil && v.Type() != r.s.request {
			return status.Errorf(codes.Internal, "grpcretry: Resume: next gave %T as request %d, and %s takes %v",
				request, i+1, r.s.ledger.method, r.s.request)
		}
	}
	return nil
}

// adopted implements recoverer.
func (r *resuming) adopted() {
	if r.has {
		r.s.later(r.s.input.replace(r.given))
		r.given = nil
	}
}

// pumped implements recoverer. From the first response on nothing is kept of the input.
func (r *resuming) pumped() {
	if r.has && !r.s.input.loose {
		r.s.later(r.s.input.replace(nil))
	}
}

// committed implements recoverer.
func (r *resuming) committed() { r.s.forgetResponses() }

// free implements recoverer.
func (r *resuming) free() func() {
	r.s.retrier.buffered.Swap(r.charged, 0)
	r.charged, r.copy, r.last, r.given = 0, nil, nil, nil
	return nil
}
