// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// exchange is a Post with streaming at work: one stream for all requests.
type exchange struct {
	*post

	caller   context.Context // the Post's own
	client   jinapb.JinaRPCClient
	producer *producer
	cancel   context.CancelFunc
	opened   chan struct{} // closed when the stream is there, or is not to be had
	stream   grpc.BidiStreamingClient[jinapb.DataRequestProto, jinapb.DataRequestProto]

	turn    chan struct{} // has room for whoever sends
	closed  bool          // all is sent; of who has the turn
	refused *Error        // why there is no stream, or a request was not sent; of who has the turn

	owed owed
	bare int // responses with nothing but an id

	drained bool // Recv has said how the stream ended
	crashed bool // sending panicked, or ended its goroutine; of who has the turn
}

// streamed sends all requests on one stream, and yields the answers as they come.
func (p *post) streamed(ctx context.Context, conn grpc.ClientConnInterface) iter.Seq[answer] {
	return func(yield func(answer) bool) {
		x := &exchange{
			post:   p,
			caller: ctx,
			client: jinapb.NewJinaRPCClient(conn),
			opened: make(chan struct{}),
			turn:   make(chan struct{}, 1),
			owed:   owed{ids: p.ids, requests: map[int]*request{}},
		}
		outgoing, cancel := context.WithCancel(x.outgoing(ctx))
		x.cancel = cancel
		x.producer = p.produce(func() error { return x.sendAll(outgoing) })
		defer func() {
			x.cancel()
			<-x.producer.ended
			x.drain()
		}()
		select {
		case <-x.opened:
		case <-x.producer.ended:
		}
		x.receiveAll(yield)
	}
}

// drain waits until the stream has told all its hooks of its end.
func (x *exchange) drain() {
	if x.stream == nil || x.drained {
		return
	}
	for {
		if _, err := x.stream.Recv(); err != nil {
			return
		}
	}
}

// outgoing returns the context of the stream, whose metadata tells the gateway how the
// responses are wanted.
func (x *exchange) outgoing(ctx context.Context) context.Context {
	ctx = x.post.outgoing(ctx)
	if x.inOrder {
		ctx = metadata.AppendToOutgoingContext(ctx, inOrderKey, "true")
	}
	if x.prefetchGiven {
		ctx = metadata.AppendToOutgoingContext(ctx, prefetchKey, strconv.Itoa(x.prefetch))
	}
	return ctx
}

// errOver stops the sending on a stream that is over; whoever receives knows why.
var errOver = errors.New("the stream is over")

// sendAll sends until the input, the stream or the context ends.
func (x *exchange) sendAll(ctx context.Context) error {
	returns := false
	defer func() {
		if !returns { // but panics, or ends the goroutine; what was sent is still answered
			_ = x.halfClose(ctx)
		}
	}()
	err := x.sendInput(ctx)
	returns = true
	return err
}

func (x *exchange) sendInput(ctx context.Context) error {
	for r, err := range x.requests(ctx) {
		if err != nil {
			_ = x.halfClose(ctx) // the error of the input says more
			return err
		}
		if err := x.window.take(ctx, r.bytes); err != nil {
			return err
		}
		if r.number == 0 {
			if err := x.open(ctx); err != nil {
				return err
			}
		}
		if err := x.send(ctx, r); err != nil {
			return err
		}
	}
	return x.halfClose(ctx)
}

// open opens the stream: for the first request, since from then on the time to the first
// response counts.
func (x *exchange) open(ctx context.Context) error {
	defer close(x.opened)
	var trailer metadata.MD
	stream, err := x.client.Call(ctx, append(x.callOptions(Params.stream),
		grpc.Trailer(&trailer), grpcretry.WithRecovery(grpcretry.Acked(keyOf)))...)
	if err != nil {
		x.refused = newError(x.caller, x.endpoint, "", trailer, err)
		return errOver
	}
	x.stream = stream
	return nil
}

// send sends a request.
func (x *exchange) send(ctx context.Context, r *request) error {
	if err := x.takeTurn(ctx); err != nil {
		return err
	}
	x.crashed = true
	defer x.giveTurn()
	x.owed.add(r)
	err := x.stream.Send(r.message)
	x.crashed = false
	if err == nil {
		return nil
	}
	if !errors.Is(err, io.EOF) {
		x.refused = newError(x.caller, x.endpoint, r.String(), nil, err)
		x.refused.unsent()
		x.cancel()
	}
	return errOver
}

// halfClose tells the gateway that there is no more.
func (x *exchange) halfClose(ctx context.Context) error {
	if x.stream == nil {
		return nil
	}
	if err := x.takeTurn(ctx); err != nil {
		return err
	}
	defer x.giveTurn()
	x.closed = true
	return x.stream.CloseSend()
}

func (x *exchange) takeTurn(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *exchange) giveTurn() { <-x.turn }

// receiveAll yields answers until the stream ends, and then how.
func (x *exchange) receiveAll(yield func(answer) bool) {
	if x.stream == nil { // for want of requests, or because it was refused
		x.cancel()
		yield(x.inputEnded(nil))
		return
	}
	for {
		message, err := x.stream.Recv()
		if err != nil {
			x.drained = true
			yield(x.ended(err))
			return
		}
		if bare(message) {
			x.bare++
			continue
		}
		r, err := x.owed.answered(message.GetHeader().GetRequestId())
		if err != nil {
			yield(x.broken(nil, err))
			return
		}
		if !yield(answer{request: r, response: &Response{message: message, of: r.place}}) {
			return
		}
	}
}

// ended returns what the Post ends with after its stream did.
func (x *exchange) ended(err error) answer {
	x.turn <- struct{}{} // a Send that is under way must have told what it met
	closed, trailer := x.closed, x.stream.Trailer()
	left, first := x.owed.left()
	switch {
	case x.crashed && (left > 0 || !errors.Is(err, io.EOF)):
		x.cancel() // it may be about to half-close
		<-x.producer.ended
		a := *x.producer.fatal
		a.trailer = trailer
		return a
	case x.refused != nil:
		x.refused.Trailer = trailer
		return answer{trailer: trailer, err: x.refused}
	case !errors.Is(err, io.EOF):
		return answer{trailer: trailer, err: x.failed(trailer, err)}
	case left > 0:
		return x.broken(trailer, fmt.Errorf("the gateway ended the stream well, and owes %d responses, the first to %v",
			left, first))
	case !closed:
		return x.broken(trailer, errors.New("the gateway ended the stream well before all was sent"))
	}
	return x.inputEnded(trailer)
}

// inputEnded returns what the Post ends with when all is answered that was sent: how its
// input ended.
func (x *exchange) inputEnded(trailer metadata.MD) answer {
	<-x.producer.ended
	if x.refused != nil {
		return answer{trailer: x.refused.Trailer, err: x.refused}
	}
	a := x.ending(x.caller, x.producer)
	a.trailer = trailer
	return a
}

// failed returns the error of a stream that failed.
func (x *exchange) failed(trailer metadata.MD, err error) *Error {
	failure := newError(x.caller, x.endpoint, "", trailer, err)
	if x.bare > 0 {
		failure.Cause = fmt.Errorf("%w (%d responses had nothing but a request_id, "+
			"by which a gateway tells which request it could not pass on)", failure.Cause, x.bare)
	}
	return failure
}

// broken returns what the Post ends with if the gateway does not keep to the protocol.
func (x *exchange) broken(trailer metadata.MD, cause error) answer {
	return answer{trailer: trailer, err: &Error{
		Endpoint: x.endpoint, Trailer: trailer, Class: ErrBadServerFlow, Cause: cause,
	}}
}

// keyOf is what requests and their responses have in common. A response that is none of
// the request's own has no key, so that the request is still to be answered.
func keyOf(message any) string {
	m, _ := message.(*jinapb.DataRequestProto)
	if bare(m) {
		return ""
	}
	return m.GetHeader().GetRequestId()
}

// bare tells of a response whether it has nothing but a request_id. A gateway that could
// not pass a request on sends one in the middle of a stream, before it ends the stream
// with the error; nothing else about it says that it is no result. Those of executors
// have at least the endpoint that the request had.
func bare(m *jinapb.DataRequestProto) bool {
	h := m.GetHeader()
	return h.GetRequestId() != "" && h.GetExecEndpoint() == "" && h.GetStatus() == nil &&
		len(m.GetRoutes()) == 0 && m.GetData() == nil && len(m.GetParameters().GetFields()) == 0
}
