// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// What the metadata of a Call say, and how many requests a gateway lets into one if they
// do not.
const (
	prefetchKey     = "__prefetch__"
	orderedKey      = "__results_in_order__"
	defaultPrefetch = 1000
)

// call is one Call. Its own goroutine sends; one reads, and outlives the call's end until
// all handlers have returned; and there is one for each request in flight.
type call struct {
	service *Service
	stream  grpc.BidiStreamingServer[jinapb.DataRequestProto, jinapb.DataRequestProto]
	ctx     context.Context // ends with the call
	cancel  context.CancelCauseFunc
	ordered bool
	window  chan struct{} // holds one for each request in flight; nil without limit
	answers chan answer   // closed when there will be no more

	handlers sync.WaitGroup
	failed   bool // an answer was an error
}

// Call serves the stream of a client.
func (f front) Call(stream grpc.BidiStreamingServer[jinapb.DataRequestProto, jinapb.DataRequestProto]) error {
	if err := f.service.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	c := &call{service: f.service, stream: stream, ctx: ctx, cancel: cancel, answers: make(chan answer)}
	md, _ := metadata.FromIncomingContext(ctx)
	c.ordered = inOrder(md)
	if n := prefetch(md); n > 0 {
		c.window = make(chan struct{}, n)
	}
	go c.read()
	return c.send()
}

// inOrder tells whether answers go out in the order of their requests.
func inOrder(md metadata.MD) bool {
	values := md.Get(orderedKey)
	return len(values) > 0 && values[len(values)-1] == "true"
}

// prefetch returns how many requests may be in flight, all if it is not positive.
func prefetch(md metadata.MD) int {
	limit := defaultPrefetch
	for _, value := range md.Get(prefetchKey) {
		if n, err := strconv.Atoi(value); err == nil {
			limit = n
		}
	}
	return limit
}

// read starts what the client asks for. Like Jina's, it has read one request more than
// the window holds.
func (c *call) read() {
	defer c.service.end()
	defer close(c.answers)
	defer c.handlers.Wait()
	turn := make(chan struct{})
	close(turn)
	for {
		request, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.cancel(err)
			return
		}
		if !c.admit() {
			return
		}
		mine, next := turn, make(chan struct{})
		if c.ordered {
			turn = next
		}
		c.handlers.Go(func() {
			if c.serve(request, mine) {
				close(next)
			}
		})
	}
}

// admit waits for room in the window.
func (c *call) admit() bool {
	if c.window == nil {
		return true
	}
	select {
	case c.window <- struct{}{}:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// serve answers one request, once it is its turn, and tells whether the answer was taken.
func (c *call) serve(request *jinapb.DataRequestProto, turn <-chan struct{}) bool {
	a := c.service.pass(c.ctx, request)
	select {
	case <-turn:
	case <-c.ctx.Done():
		return false
	}
	select {
	case c.answers <- a:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// send sends the answers and returns the status of the call.
func (c *call) send() error {
	for {
		select {
		case a, more := <-c.answers:
			if !more {
				return c.cause()
			}
			if err := c.deliver(a); err != nil {
				return err
			}
		case <-c.ctx.Done():
			return c.cause()
		}
	}
}

// deliver sends one answer. A request is in flight until then: a client that does not
// read holds up what is to be read of it.
func (c *call) deliver(a answer) error {
	if a.isError() && !c.failed {
		c.failed = true
		c.stream.SetTrailer(errorTrailer())
	}
	if err := c.stream.Send(a.response); err != nil {
		return err
	}
	if a.lost != nil {
		return a.lost.Err()
	}
	if c.window != nil {
		<-c.window
	}
	return nil
}

// cause is why the call's context has ended, as a status, nil if it has not.
func (c *call) cause() error {
	err := context.Cause(c.ctx)
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
