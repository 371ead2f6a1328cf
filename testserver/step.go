// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Step is what one attempt meets: how it ends, and what comes before. It is a
// value; every method returns a changed copy, so that a step may be shared,
// varied, and used in several scripts at a time. The zero Step is [OK].
//
// Whatever the order of the calls that made it, a step runs in this order:
// Delay, SendHeader, Received, the method's handler (all of it for OK and Do,
// as far as Sent or Applied say for the others, else not at all), the end.
//
// A mistake in a step (a negative count, an odd list of keys and values, a
// trailer on a step that never sends one) is reported by [Server.Script].
type Step struct {
	end     ending
	status  *status.Status
	handler func(grpc.ServerStream) error

	delay    time.Duration
	header   metadata.MD
	sendNow  bool
	trailer  metadata.MD
	received int
	limited  bool // only the first sent responses go out
	sent     int
	applied  bool
	times    int // 0 means 1
	faults   []string
}

type ending int

const (
	endAnswer ending = iota
	endFail
	endHang
	endCut
	endReset
)

func (e ending) String() string {
	return [...]string{"OK", "Fail", "Hang", "Cut", "Reset"}[e]
}

const forever = -1

// OK runs the method's handler: the one given to [Server.Handle], else the
// registered service, else the default answer.
func OK() Step { return Step{} }

// Do runs f in the handler's place, once for each attempt that meets the step.
// What f returns is the attempt's status, as with any handler.
func Do(f func(stream grpc.ServerStream) error) Step {
	s := Step{handler: f}
	if f == nil {
		return s.fault("Do: the function is nil")
	}
	return s
}

// Fail answers with a status that is not OK. Without a header or a response it
// is what gRPC calls trailers-only.
func Fail(code codes.Code, message string, details ...proto.Message) Step {
	s := Step{end: endFail, status: status.New(code, message)}
	if code == codes.OK {
		return s.fault("Fail: the code is OK, which is no failure")
	}
	return s.Details(details...)
}

// Hang never answers: it waits until the attempt's context ends (the client
// cancels, its deadline passes, the connection goes or the server stops).
func Hang() Step { return Step{end: endHang} }

// Cut closes the connection (over TCP with FIN) where a status would be sent.
// Headers and responses that the step promises have been written before. The
// other calls on the connection fail with it.
//
// With SendHeader or Sent, an encrypted connection cannot be followed, so there
// the attempt ends with INTERNAL instead.
func Cut() Step { return Step{end: endCut} }

// Reset is Cut, but over TCP the connection ends with RST. What the client had
// not yet received, promised or not, may be lost. In memory it equals Cut.
func Reset() Step { return Step{end: endReset} }

// Details adds details to the status of a Fail step, in order.
func (s Step) Details(details ...proto.Message) Step {
	if len(details) == 0 {
		return s
	}
	if s.end != endFail {
		return s.fault("Details: %v has no status", s.end)
	}
	old := make([]protoadapt.MessageV1, len(details))
	for i, d := range details {
		if d == nil {
			return s.fault("Details: detail %d is nil", i+1)
		}
		old[i] = protoadapt.MessageV1Of(d)
	}
	st, err := s.status.WithDetails(old...)
	if err != nil {
		return s.fault("Details: %v", err)
	}
	s.status = st
	return s
}

// RetryInfo adds a google.rpc.RetryInfo that asks the client to wait for d,
// which may be zero or negative, to the status of a Fail step.
func (s Step) RetryInfo(d time.Duration) Step {
	if s.end != endFail {
		return s.fault("RetryInfo: %v has no status", s.end)
	}
	return s.Details(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
}

// Pushback adds the trailer grpc-retry-pushback-ms with these values, verbatim,
// sensible or not. gRPC expects one, a number of milliseconds.
func (s Step) Pushback(values ...string) Step {
	if len(values) == 0 {
		return s.fault("Pushback: no value")
	}
	for _, v := range values {
		s = s.Trailer("grpc-retry-pushback-ms", v)
	}
	return s
}

// Header adds header metadata, given as key, value, key, value. It leaves with
// the first response or, if there is none, right before the trailers, which
// then are no longer trailers-only.
func (s Step) Header(kv ...string) Step {
	md, err := pairs(s.header, kv)
	if err != nil {
		return s.fault("Header: %v", err)
	}
	s.header = md
	return s
}

// SendHeader adds header metadata, which may be none, and sends the headers at
// once: before requests are read and before the handler runs.
func (s Step) SendHeader(kv ...string) Step {
	md, err := pairs(s.header, kv)
	if err != nil {
		return s.fault("SendHeader: %v", err)
	}
	s.header, s.sendNow = md, true
	return s
}

// Trailer adds trailer metadata, given as key, value, key, value.
func (s Step) Trailer(kv ...string) Step {
	md, err := pairs(s.trailer, kv)
	if err != nil {
		return s.fault("Trailer: %v", err)
	}
	s.trailer = md
	return s
}

// Delay makes the step wait for d before anything else, or until the attempt's
// context ends, which then ends the attempt.
func (s Step) Delay(d time.Duration) Step {
	if d < 0 {
		return s.fault("Delay: %v is negative", d)
	}
	s.delay = d
	return s
}

// Received makes the step read n request messages first. A handler that runs
// afterwards still gets them. If the client half-closes earlier, the attempt
// ends with INTERNAL. Without it, a step that runs no handler reads nothing.
func (s Step) Received(n int) Step {
	if n < 0 {
		return s.fault("Received: %d is negative", n)
	}
	s.received = n
	return s
}

// Sent lets the handler run until its first n responses are sent, and then ends
// the attempt: the handler is halted inside its n-th SendMsg, which returns an
// error to it once the attempt is over. Sent(0) runs no handler. If the handler
// ends with fewer responses, the attempt ends with INTERNAL.
func (s Step) Sent(n int) Step {
	if n < 0 {
		return s.fault("Sent: %d is negative", n)
	}
	s.limited, s.sent = true, n
	return s
}

// Applied lets the handler run to its end, so that its effects are there, and
// drops its responses, its trailers and its status; with Sent(n) the first n
// responses are delivered.
func (s Step) Applied() Step {
	s.applied = true
	return s
}

// Times repeats the step for n attempts in all.
func (s Step) Times(n int) Step {
	if n < 1 {
		return s.fault("Times: %d is less than 1", n)
	}
	s.times = n
	return s
}

// Forever repeats the step for every attempt to come. It must be the last of
// its script.
func (s Step) Forever() Step {
	s.times = forever
	return s
}

func (s Step) fault(format string, args ...any) Step {
	s.faults = append(slices.Clip(s.faults), fmt.Sprintf(format, args...))
	return s
}

// check returns what is wrong with the step, things that would never leave the
// server included.
func (s Step) check() error {
	faults := slices.Clone(s.faults)
	silent := s.end == endHang || s.end == endCut || s.end == endReset
	if silent && len(s.trailer) > 0 {
		faults = append(faults, fmt.Sprintf("Trailer or Pushback: %v never sends trailers", s.end))
	}
	if silent && len(s.header) > 0 && !s.sendNow && s.sent == 0 {
		faults = append(faults, fmt.Sprintf("Header: %v never sends it; use SendHeader or Sent", s.end))
	}
	if len(faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}
