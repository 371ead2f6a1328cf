// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// calls are a Post without streaming at work: a call for each request.
type calls struct {
	*post

	caller  context.Context // the Post's own
	client  jinapb.JinaSingleDataRequestRPCClient
	options []grpc.CallOption
	answers chan answer
	gone    chan struct{} // closed when nobody wants answers any more
}

// unary sends each request in a call of its own, and yields the answers as they come.
func (p *post) unary(ctx context.Context, conn grpc.ClientConnInterface) iter.Seq[answer] {
	return func(yield func(answer) bool) {
		c := &calls{
			post:    p,
			caller:  ctx,
			client:  jinapb.NewJinaSingleDataRequestRPCClient(conn),
			options: slices.Clip(p.callOptions(Params.unary)),
			answers: make(chan answer),
			gone:    make(chan struct{}),
		}
		ctx, cancel := context.WithCancel(p.outgoing(ctx))
		defer cancel()
		if p.prefetch == 1 && p.input.atHand {
			c.callEach(ctx, yield)
			return
		}
		producer := p.produce(func() error { return c.callAll(ctx) })
		defer func() {
			cancel()
			close(c.gone)
			<-producer.ended
		}()
		for {
			select {
			case a := <-c.answers:
				if !yield(a) {
					return
				}
			case <-producer.ended:
				yield(p.ending(c.caller, producer))
				return
			}
		}
	}
}

// callEach makes one call after the other, for which no goroutine is needed if the input
// neither waits nor fails.
func (c *calls) callEach(ctx context.Context, yield func(answer) bool) {
	for r, err := range c.requests(ctx) {
		if err == nil {
			err = c.window.take(ctx, r.bytes)
		}
		if err != nil {
			yield(c.ending(c.caller, &producer{err: err}))
			return
		}
		if !yield(c.call(ctx, r)) {
			return
		}
	}
}

// callAll calls until the input or the context ends, and returns when all calls have.
func (c *calls) callAll(ctx context.Context) error {
	var callers sync.WaitGroup
	defer callers.Wait()
	waiting := make(chan *request)
	defer close(waiting)
	n := 0
	for r, err := range c.requests(ctx) {
		if err != nil {
			return err
		}
		if err := c.window.take(ctx, r.bytes); err != nil {
			return err
		}
		if c.prefetch > 0 && n == c.prefetch {
			waiting <- r // there is room in the window, so that one of them is free
			continue
		}
		select {
		case waiting <- r:
		default:
			n++
			callers.Go(func() { c.callFor(ctx, r, waiting) })
		}
	}
	return nil
}

// callFor calls for one request and then for others that are waiting. If a hook of the
// caller's panics, or ends the goroutine, that is the answer.
func (c *calls) callFor(ctx context.Context, r *request, waiting <-chan *request) {
	calling := false
	defer func() {
		if calling {
			c.deliver(c.fatal(recover()))
		}
	}()
	for more := true; more; r, more = <-waiting {
		calling = true
		a := c.call(ctx, r)
		calling = false
		c.deliver(a)
	}
}

// deliver hands an answer to whoever ranges over the Post.
func (c *calls) deliver(a answer) {
	select {
	case c.answers <- a:
	case <-c.gone:
	}
}

// call sends one request and returns its answer.
func (c *calls) call(ctx context.Context, r *request) answer {
	a := answer{request: r}
	message, err := c.client.ProcessSingleData(ctx, r.message, append(c.options, grpc.Trailer(&a.trailer))...)
	switch id := message.GetHeader().GetRequestId(); {
	case err != nil:
		failure := newError(c.caller, c.endpoint, r.String(), a.trailer, err)
		// What a server answers mostly has a trailer with more than the number of attempts.
		if len(a.trailer) <= 1 && (c.compression != "" || strings.Contains(err.Error(), r.tooLarge())) {
			failure.unsent()
		}
		a.err = failure
	case id != r.message.GetHeader().GetRequestId():
		a.err = &Error{
			Endpoint: c.endpoint, Request: r.String(), Trailer: a.trailer, Class: ErrBadServerFlow,
			Cause: fmt.Errorf("the response has the request_id %q, not %q", id, r.message.GetHeader().GetRequestId()),
		}
	default:
		a.response = &Response{message: message, of: r.place}
	}
	return a
}
