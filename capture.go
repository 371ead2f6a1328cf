// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"reflect"
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
// An interceptor between us and gRPC may return while its invoker still runs, drop
// options, or call the invoker twice. So the results are trusted only if gRPC
// reported exactly one end, with the error that the attempt returned; and a
// capture is used for another call only if that end was a success.
type capture struct {
	results

	state atomic.Int32
	err   error // what gRPC reported; valid in captureEnded

	// options are an attempt's. Their capacity ends with them, so that an
	// interceptor that appends gets a copy.
	options []grpc.CallOption
	// own are the suite's options, with Header before and StaticMethod after those
	// that every attempt gets, so that any choice of the two is a part of it. They
	// never change: whoever keeps them after the call does no harm.
	own    [7]grpc.CallOption
	nested callOption

	asked     asked
	hasHeader bool // options have Header
	hasStatic bool // options have StaticMethod

	// The rule of the last method that this capture served. Generated code passes
	// the same string each time, so that comparing it costs next to nothing.
	method   string
	rule     *rule
	guarded  bool
	policies *policies // where the rule is from
}

// asked is what a capture's caller asks for by options.
type asked struct {
	static bool // StaticMethod, which generated code always passes
	more   bool // others that each attempt gets
	held   bool // some that are kept back until the call ends
	header bool // Header, which is one of those
}

// The states of a capture.
const (
	captureOpen int32 = iota
	captureEnding
	captureEnded
	captureConfused // more than one end was reported
)

func newCapture() *capture {
	c := &capture{nested: callOption{nested: true}}
	c.own = [...]grpc.CallOption{
		grpc.Header(&c.header),
		&c.nested,
		grpc.Peer(&c.peer),
		grpc.Trailer(&c.trailer),
		grpc.OnFinish(c.ended),
		// gRPC sends a refused stream again even if its retries are switched off,
		// and may then report a failure as a bare io.EOF. Without a buffer it
		// leaves the matter to us.
		grpc.MaxRetryRPCBufferSize(0),
		grpc.StaticMethod(),
	}
	return c
}

// ended is what gRPC calls at the end of an attempt.
func (c *capture) ended(err error) {
	if !c.state.CompareAndSwap(captureOpen, captureEnding) {
		c.state.Store(captureConfused)
		return
	}
	c.err = err
	c.state.CompareAndSwap(captureEnding, captureEnded)
}

// reported tells whether gRPC itself ended the attempt with the very error that it
// returned: only then its end proves something. Identity counts, since statuses
// that say the same are equal to errors.Is.
func (c *capture) reported(err error) bool {
	return c.state.Load() == captureEnded && same(err, c.err) && c.intact()
}

// trusted tells whether the results are those of an attempt that returned err on a
// connection: gRPC reported that end, which may have been wrapped since, or there
// is no gRPC below that could write.
func (c *capture) trusted(err error, conn *grpc.ClientConn) bool {
	return c.state.Load() == captureEnded && wraps(err, c.err) || err == nil && conn == nil
}

// same tells whether two errors are one.
func same(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.ValueOf(b).Comparable() && a == b //nolint:err113,errorlint // identity is asked for
}

// wraps tells whether err is the error that gRPC reported, or wraps it.
func wraps(err, reported error) bool {
	if same(err, reported) {
		return true
	}
	for ; err != nil && reported != nil; err = errors.Unwrap(err) {
		if same(err, reported) {
			return true
		}
	}
	return false
}

// ruleOf returns the rule of a method, and whether a call of it must not be
// repeated without proof that it did not run.
func (c *capture) ruleOf(p *policies, method string) (r *rule, guarded bool) {
	if c.policies != p || c.method != method {
		r := p.find(method)
		c.method, c.rule, c.guarded, c.policies = method, r, p.guards(r, method), p
	}
	return c.rule, c.guarded
}

// take sorts the caller's options: those that act at the end of the call are
// kept back, all others go to every attempt. It returns the one option of the
// suite's own that counts, if there is any.
func (c *capture) take(opts []grpc.CallOption) *callOption {
	var mine *callOption
	for _, opt := range opts {
		switch o := opt.(type) {
		case grpc.StaticMethodCallOption:
			c.asked.static = true
		case grpc.HeaderCallOption, *grpc.HeaderCallOption:
			c.asked.held, c.asked.header = true, true
		case grpc.TrailerCallOption, grpc.PeerCallOption, grpc.OnFinishCallOption,
			*grpc.TrailerCallOption, *grpc.PeerCallOption, *grpc.OnFinishCallOption:
			c.asked.held = true
		case grpc.MaxRetryRPCBufferSizeCallOption, *grpc.MaxRetryRPCBufferSizeCallOption:
			// It is about gRPC's own retries, of which there are none.
		case *callOption:
			mine = mine.or(o)
		default:
			c.asked.more = true
		}
	}
	return mine
}

// arrange makes the options of the attempts, out of what take found. All that
// generated code without options of its caller needs is there already; else the
// options are in memory of their own.
func (c *capture) arrange(opts []grpc.CallOption, header bool) {
	header = header || c.asked.header
	if c.options != nil && !c.asked.more && c.hasHeader == header && c.hasStatic == c.asked.static {
		return // those of the call before
	}
	c.hasHeader, c.hasStatic = header, c.asked.static
	from, to := 1, len(c.own)-1
	if header {
		from--
	}
	if c.asked.static {
		to++
	}
	c.options = c.own[from:to:to]
	if !c.asked.more {
		return
	}
	c.options = slices.Concat(c.options, opts)
	own := to - from
	c.options = slices.Clip(append(c.options[:own], slices.DeleteFunc(c.options[own:], keptBack)...))
}

// keptBack tells whether an option of the caller's is kept back, or there already.
func keptBack(opt grpc.CallOption) bool {
	_, static := opt.(grpc.StaticMethodCallOption)
	return static || held(opt)
}

// held tells whether an option of the caller's is not for attempts.
func held(opt grpc.CallOption) bool {
	switch pointee(opt).(type) {
	case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption,
		grpc.OnFinishCallOption, grpc.MaxRetryRPCBufferSizeCallOption, *callOption:
		return true
	}
	return false
}

// intact tells whether the capture's own options are still in their place: an
// interceptor may have put its own there.
func (c *capture) intact() bool {
	h, isHeader := c.own[0].(grpc.HeaderCallOption)
	n, isNested := c.own[1].(*callOption)
	p, isPeer := c.own[2].(grpc.PeerCallOption)
	t, isTrailer := c.own[3].(grpc.TrailerCallOption)
	_, isOnFinish := c.own[4].(grpc.OnFinishCallOption)
	m, isMax := c.own[5].(grpc.MaxRetryRPCBufferSizeCallOption)
	_, isStatic := c.own[6].(grpc.StaticMethodCallOption)
	return isHeader && isNested && isPeer && isTrailer && isOnFinish && isMax && isStatic &&
		h.HeaderAddr == &c.header && n == &c.nested && p.PeerAddr == &c.peer && t.TrailerAddr == &c.trailer &&
		m.MaxRetryRPCBufferSize == 0
}

// clear makes the capture ready for another attempt of the same call.
func (c *capture) clear() {
	c.results, c.err = results{}, nil
	if c.state.Load() != captureOpen { // a store costs more than a load
		c.state.Store(captureOpen)
	}
}

// forget makes the capture ready for another call.
func (c *capture) forget() {
	if c.asked.more {
		c.options = nil // the caller's are among them
	}
	c.asked = asked{}
	c.clear()
}

// serve gives the caller's options what they asked for: the results of the
// attempt whose result the call returns, never those of another or of an earlier
// call, with the number of attempts in the trailer. The first taker of a map gets
// the map itself, unless it is shared; every other gets a copy.
func (r results) serve(opts []grpc.CallOption, attempts int, shared bool) {
	headerShared, trailerShared := shared, shared
	for _, opt := range opts {
		switch o := pointee(opt).(type) {
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

// pointee returns the option that a pointer to one stands for: gRPC takes both.
func pointee(opt grpc.CallOption) grpc.CallOption {
	switch o := opt.(type) {
	case *grpc.HeaderCallOption:
		return *o
	case *grpc.TrailerCallOption:
		return *o
	case *grpc.PeerCallOption:
		return *o
	case *grpc.OnFinishCallOption:
		return *o
	case *grpc.MaxRetryRPCBufferSizeCallOption:
		return *o
	}
	return opt
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
		if o, ok := pointee(opt).(grpc.OnFinishCallOption); ok && o.OnFinish != nil {
			o.OnFinish(err)
		}
	}
}
