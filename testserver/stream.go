// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// cardinality begins the messages of any grpc server for a wrong number of
// requests.
const cardinality = "cardinality violation: "

var errOver = status.Error(codes.Aborted, "testserver: the attempt is over")

// stream is the grpc.ServerStream that handlers get. It records what comes in,
// and holds back what the step does not want to go out.
type stream struct {
	grpc.ServerStream

	server  *Server
	attempt *Attempt
	method  *method
	ctx     context.Context

	early    []proto.Message // read by the step, not yet by the handler
	gotFirst bool
	gotEnd   bool

	limit       int // responses that may go out; negative = all
	halt        bool
	sent        int
	reached     chan struct{} // closed when limit responses are out
	over        chan struct{} // closed when the attempt has ended
	dropHeader  bool
	dropTrailer bool
}

func (s *Server) newStream(ss grpc.ServerStream, a *Attempt, m *method, step Step) *stream {
	st := &stream{
		ServerStream: ss,
		server:       s,
		attempt:      a,
		method:       m,
		ctx:          ss.Context(),
		limit:        -1,
		reached:      make(chan struct{}),
		over:         make(chan struct{}),
		dropTrailer:  step.end != endAnswer,
		dropHeader:   step.applied && step.sent == 0,
	}
	if step.limited || step.applied {
		st.limit = step.sent
		st.halt = !step.applied
	}
	if st.dropHeader || st.dropTrailer {
		st.ctx = grpc.NewContextWithServerTransportStream(st.ctx, metadataFilter{st})
	}
	return st
}

func (st *stream) Context() context.Context { return st.ctx }

func (st *stream) SetHeader(md metadata.MD) error {
	if st.dropHeader || st.isOver() {
		return nil
	}
	return st.ServerStream.SetHeader(md)
}

func (st *stream) SendHeader(md metadata.MD) error {
	if st.dropHeader || st.isOver() {
		return nil
	}
	return st.ServerStream.SendHeader(md)
}

func (st *stream) SetTrailer(md metadata.MD) {
	if !st.dropTrailer && !st.isOver() {
		st.ServerStream.SetTrailer(md)
	}
}

func (st *stream) SendMsg(m any) error {
	switch {
	case st.isOver():
		return errOver
	case st.limit >= 0 && st.sent >= st.limit:
		return nil // dropped
	}
	if err := st.ServerStream.SendMsg(m); err != nil {
		return err
	}
	st.sent++
	if st.halt && st.sent == st.limit {
		close(st.reached)
		<-st.over
		return errOver
	}
	return nil
}

func (st *stream) RecvMsg(m any) error {
	if st.isOver() {
		return errOver
	}
	if len(st.early) == 0 {
		return st.receive(m)
	}
	to, ok := m.(proto.Message)
	if !ok {
		return internal(fmt.Errorf("a step with Received needs protobuf messages, the handler reads %T", m))
	}
	from := st.early[0]
	st.early = st.early[1:]
	proto.Reset(to)
	return transfer(to, from)
}

// prefetch reads n requests ahead of the handler.
func (st *stream) prefetch(n int) error {
	for i := range n {
		m := st.method.newRequest()
		err := st.receive(m)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the step waits for %d requests, the client half-closed after %d", n, i)
		}
		if err != nil {
			return err
		}
		st.early = append(st.early, m)
	}
	return nil
}

// receive reads the next request from the client. The server's one handler is
// bidirectional for gRPC, so that the rule of one request for the shapes that
// have but one is upheld here.
func (st *stream) receive(m any) error {
	if st.gotEnd {
		return io.EOF
	}
	err := st.ServerStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF):
		st.finish()
		if !st.method.clientStream && !st.gotFirst {
			return status.Error(codes.Internal, cardinality+"received no request message from non-client-streaming RPC")
		}
		return io.EOF
	case err != nil:
		return err
	}
	st.gotFirst = true
	st.server.received(st.attempt, m)
	if st.method.clientStream {
		return nil
	}
	err = st.ServerStream.RecvMsg(&emptypb.Empty{})
	switch {
	case errors.Is(err, io.EOF):
		st.finish()
		return nil
	case err != nil:
		return err
	}
	return status.Error(codes.Internal, cardinality+"received multiple request messages for non-client-streaming RPC")
}

func (st *stream) finish() {
	st.gotEnd = true
	st.server.halfClosed(st.attempt)
}

func (st *stream) isOver() bool {
	select {
	case <-st.over:
		return true
	default:
		return false
	}
}

// metadataFilter is what grpc.SetHeader and its like, called with a handler's
// context, find in the place of the transport's stream.
type metadataFilter struct{ st *stream }

func (f metadataFilter) Method() string                  { return f.st.method.name }
func (f metadataFilter) SetHeader(md metadata.MD) error  { return f.st.SetHeader(md) }
func (f metadataFilter) SendHeader(md metadata.MD) error { return f.st.SendHeader(md) }
func (f metadataFilter) SetTrailer(md metadata.MD) error {
	f.st.SetTrailer(md)
	return nil
}
