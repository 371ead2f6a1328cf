// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"slices"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// results are what gRPC reports at the end of an attempt besides the error.
type results struct {
	header, trailer metadata.MD
	peer            peer.Peer
}

// capture stands between one attempt and the call options of its caller. gRPC
// writes Header, Trailer and Peer at the end of every attempt, and calls OnFinish
// each time; the caller must see each of them once. So an attempt gets options of
// its own, and the caller's are served when the call is over.
//
// Captures are pooled. One goes back to the pool only after a success, and its
// results are read after a failure only once gRPC reported the attempt's end: an
// interceptor between us and gRPC may return while its invoker still runs.
type capture struct {
	results

	reported atomic.Bool // gRPC called OnFinish

	// options are the suite's own, always the same, and then the caller's.
	options []grpc.CallOption
	array   [10]grpc.CallOption
	nested  callOption

	// The rule of the last method that this capture served. Generated code passes
	// the same string each time, so that comparing it costs next to nothing.
	method   string
	rule     *rule
	policies *policies // where the rule is from

	held       bool // options of the caller are kept back until the call ends
	wantHeader bool // one of them is for the header
}

// ownOptions is how many options each attempt gets from its capture.
const ownOptions = 5

func newCapture() *capture {
	c := &capture{nested: callOption{nested: true}}
	c.options = append(c.array[:0],
		&c.nested,
		grpc.Peer(&c.peer),
		grpc.Trailer(&c.trailer),
		grpc.OnFinish(func(error) { c.reported.Store(true) }),
		// gRPC sends a refused stream again even if its retries are switched off,
		// and may then report a failure as a bare io.EOF. Without a buffer it
		// leaves the matter to us.
		grpc.MaxRetryRPCBufferSize(0),
	)
	return c
}

// ruleOf returns the rule of a method.
func (c *capture) ruleOf(p *policies, method string) *rule {
	if c.policies != p || c.method != method {
		c.method, c.rule, c.policies = method, p.find(method), p
	}
	return c.rule
}

// take sorts the caller's options: those that act at the end of the call are
// kept back, all others go to every attempt. It returns the one option of the
// suite's own that counts, if there is any.
func (c *capture) take(opts []grpc.CallOption) *callOption {
	var own *callOption
	for _, opt := range opts {
		switch o := opt.(type) {
		case grpc.HeaderCallOption:
			c.held, c.wantHeader = true, true
		case grpc.TrailerCallOption, grpc.PeerCallOption, grpc.OnFinishCallOption:
			c.held = true
		case grpc.MaxRetryRPCBufferSizeCallOption:
			// It is about gRPC's own retries, of which there are none.
		case *callOption:
			if own == nil || !own.nested {
				own = o
			}
		default:
			c.options = append(c.options, opt)
		}
	}
	return own
}

// captureHeader makes the attempts capture the header too. It is not done always,
// since gRPC then copies the header of every call.
func (c *capture) captureHeader() {
	c.options = append(c.options, grpc.Header(&c.header))
}

// attemptOptions returns the options of an attempt. Their capacity ends with
// them, so that an interceptor that appends gets a copy.
func (c *capture) attemptOptions() []grpc.CallOption {
	return slices.Clip(c.options)
}

// clear makes the capture ready for another attempt of the same call.
func (c *capture) clear() {
	c.results = results{}
	if c.reported.Load() { // a store costs more than a load
		c.reported.Store(false)
	}
}

// forget makes the capture ready for another call.
func (c *capture) forget() {
	clear(c.options[ownOptions:]) // they belong to the caller
	c.options = c.options[:ownOptions]
	c.held, c.wantHeader = false, false
	c.clear()
}

// serve gives the caller's options what they asked for: the results of the
// attempt whose result the call returns, never those of another or of an earlier
// call, with the number of attempts in the trailer. The first taker of a map gets
// the map itself, unless it is shared; every other gets a copy.
func (r results) serve(opts []grpc.CallOption, attempts int, shared bool) {
	headerShared, trailerShared := shared, shared
	for _, opt := range opts {
		switch o := opt.(type) {
		case grpc.HeaderCallOption:
			if o.HeaderAddr != nil {
				*o.HeaderAddr = own(r.header, &headerShared)
			}
		case grpc.TrailerCallOption:
			if o.TrailerAddr != nil {
				*o.TrailerAddr = withAttempts(own(r.trailer, &trailerShared), attempts)
			}
		case grpc.PeerCallOption:
			if o.PeerAddr != nil {
				*o.PeerAddr = r.peer
			}
		}
	}
}

// own returns md, or a copy once it is shared; it is from now on.
func own(md metadata.MD, shared *bool) metadata.MD {
	if *shared {
		return md.Copy()
	}
	*shared = true
	return md
}

// withAttempts returns the trailer with the number of attempts in it. A server's
// own value under that name is replaced.
func withAttempts(trailer metadata.MD, attempts int) metadata.MD {
	if trailer == nil {
		trailer = make(metadata.MD, 1)
	}
	trailer[attemptsKey] = []string{strconv.Itoa(attempts)}
	return trailer
}

// finish calls the caller's OnFinish options, each once, with the call's error.
func finish(opts []grpc.CallOption, err error) {
	for _, opt := range opts {
		if o, ok := opt.(grpc.OnFinishCallOption); ok && o.OnFinish != nil {
			o.OnFinish(err)
		}
	}
}
