// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// tcpProtocol is how a call goes on after its first response.
type tcpProtocol string

const (
	noRecovery tcpProtocol = ""
	repeated   tcpProtocol = "repeated" // a Download that is sent from its beginning
	resumed    tcpProtocol = "resumed"  // a Download from a position
	watched    tcpProtocol = "watched"  // the same, of what never ends
	session    tcpProtocol = "session"  // an Exchange whose answers come in another order
)

// batch is how many requests of a session are answered together, the last one first.
const batch = 4

// choose chooses how a call goes on.
func (c *tcpCall) choose(random *rand.Rand) {
	switch c.method {
	case download:
		c.protocol = []tcpProtocol{noRecovery, repeated, resumed, watched}[random.IntN(4)]
	case exchange:
		c.protocol = []tcpProtocol{noRecovery, session}[random.IntN(2)]
	}
	if c.protocol != noRecovery {
		c.timed, c.lockstep = false, false
	}
}

// policy is that of a call which goes on.
func (c *tcpCall) policy() grpcretry.Policy {
	p := patient(grpcretry.RepeatAlways)
	switch c.protocol {
	case repeated: // the attempt is in the response
		p.Recovery = grpcretry.Skip(func(had, got any) bool { return sequenceOf(had) == sequenceOf(got) })
	case resumed, watched:
		p.Recovery = grpcretry.Resume(func(last any) ([]any, error) {
			return []any{&testv1.Request{Key: c.id, Sequence: sequenceOf(last) + 1}}, nil
		})
		// Attempts of a life in which all goes well are few, but lives are many.
		p.MaxAttempts, p.ResetAfter.Responses = 20, 1
	case session:
		p.Recovery = grpcretry.Acked(func(m any) string { return strconv.FormatInt(sequenceOf(m), 10) })
	case noRecovery:
	}
	return p
}

// goesOn takes down a response of a call that goes on.
func (c *tcpCall) goesOn(response *testv1.Response) {
	if response.GetCount() < c.tag {
		c.failf("was given something of attempt %d after something of attempt %d", response.GetCount(), c.tag)
	}
	c.tag = response.GetCount()
	at := c.got
	if c.protocol == session {
		at = int(response.GetSequence())
		if slices.Contains(c.answers, at) {
			c.failf("response %d came twice", at)
		}
		c.answers = append(c.answers, at)
	}
	c.expect(at, response, "received")
	if c.got++; c.protocol == watched && c.got == c.responses() {
		c.cancelled.Store(true)
		c.cancel()
	}
}

// start takes down the request of a Download that begins anywhere, and returns where.
func (a *arrival) start(request *testv1.Request) (int, error) {
	start := int(request.GetSequence())
	if a.call.protocol != resumed && a.call.protocol != watched || start == 0 {
		return 0, a.take(request)
	}
	if request.GetKey() != a.call.id || start > a.call.responses() {
		a.call.failf("attempt %d was sent %v", a.previous+1, request)
	}
	a.received++
	return start, a.step()
}

// session serves a duplex stream whose answers come in another order.
func (a *arrival) session(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response]) error {
	var waiting []*testv1.Request
	last := -1
	for {
		request, err := stream.Recv()
		over := errors.Is(err, io.EOF)
		switch {
		case over:
		case err != nil:
			return err
		case int(request.GetSequence()) <= last:
			a.call.failf("attempt %d was sent %d after %d", a.previous+1, request.GetSequence(), last)
		default:
			last = int(request.GetSequence())
			a.received = last
			if err := a.take(request); err != nil {
				return err
			}
			waiting = append(waiting, request)
		}
		if over || len(waiting) == batch {
			for _, request := range slices.Backward(waiting) {
				if err := stream.Send(a.answer(int(request.GetSequence()), request.GetPayload())); err != nil {
					return err
				}
			}
			waiting = waiting[:0]
		}
		if over {
			return nil
		}
	}
}

// await waits for the end of a watch.
func await(stream grpc.ServerStream) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}
