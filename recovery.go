// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Recovery says how a stream goes on when it fails after its caller has had a response.
// It is made by [Skip], [Resume] or [Acked]; the zero Recovery commits the stream to its
// first response, or the header, so that the failure is the caller's.
//
// All else is as before the first response: a failure must be one that the policy
// retries, what may have run is repeated only if Policy.Repeat allows it, there are
// Policy.MaxAttempts in the life of the stream (but see [ResetAfter]), and failures are
// noticed by the operation that meets them, mostly RecvMsg. AttemptTimeout bounds each
// attempt until its first response, IdleTimeout each receive once the caller has had one,
// and a receive that runs into it is recovered from. The header that the caller asked
// for is no obstacle any more, and Header is that of the attempt under way; but Context
// still commits, as does an input that does not fit the [Buffer].
//
// The functions of a Recovery are called by whoever sends or receives, or asks for the
// header, without a lock, and those of a policy by all its streams: they must be safe for
// concurrent use. They must not use the stream, nor modify what they are given. If one
// panics, so does the operation that called it, and the call is over, with INTERNAL.
//
// Between two attempts Send waits for the next.
type Recovery struct {
	mode  recoveryMode
	equal func(had, got any) bool
	next  func(last any) (requests []any, err error)
	key   func(message any) string
}

type recoveryMode int

const (
	commits recoveryMode = iota
	skips
	resumes
	acknowledges
)

// String returns the name of what made the Recovery.
func (r Recovery) String() string {
	switch r.mode {
	case skips:
		return "Skip"
	case resumes:
		return "Resume"
	case acknowledges:
		return "Acked"
	case commits:
	}
	return "none"
}

// Skip recovers by sending all requests again, and dropping as many responses as the
// caller has: for methods that answer the same input with the same output. Each response
// that is dropped is compared to the one that the caller has; nil for equal means
// [proto.Equal]. If they differ, or if there are fewer, the call ends with DATA_LOSS and
// the position, so that the caller never gets the parts of two different outputs.
//
// All requests and all responses are kept for the life of the stream, as copies, within
// the [Buffer]: beyond its Memory in files, if it has a Disk. A response is charged 64
// bytes beside its size, so that without more than the default of 256 KiB a few thousand
// small ones are kept. Responses that are not protobuf are kept only with
// Buffer.ByReference, and must not be modified then. A client stream has but one response,
// and is as without a Recovery.
//
// The server must give each attempt with the same requests the same responses, in the
// same order. What may differ, like a time, equal must not look at.
func Skip(equal func(had, got any) bool) Recovery {
	if equal == nil {
		equal = equalMessages
	}
	return Recovery{mode: skips, equal: equal}
}

// equalMessages is how Skip compares messages by itself.
func equalMessages(had, got any) bool {
	a, isProto := asProto(had)
	b, both := asProto(got)
	return isProto && both && proto.Equal(a, b)
}

// Resume recovers by asking its caller, before each further attempt, for the requests
// that are to be sent in place of all earlier ones, given the last response: for methods
// that take a position, an offset, a cursor or a resource version. last is a copy of the
// last response of any sort; if some have no position, like heartbeats, next must remember
// it. Nor is next given the first request: where that says more than the position, give the
// Recovery to the call, by [WithRecovery], with a function that knows the request.
//
// A server stream must be given exactly one request. An error ends the call, with that
// error's status; so do requests that are nil, or of another type than the stream's.
//
// Before the first response all is sent again as it was. From then on nothing is kept but
// the last response, which may have any size within Buffer.Total. A message whose Send had
// returned when next is called is not sent again unless next gives it; one whose Send is
// under way, or begins later, follows the requests that next gave. The stream is
// half-closed if the caller half-closed it. Whether the requests make sense nobody checks:
// next may ask for the same forever, and gets it, as often as the policy allows.
//
// The server must begin behind the position that it is given, and fail if it does not know
// it any more: its status then ends the call. A server that ends the stream well ends it.
func Resume(next func(last any) (requests []any, err error)) Recovery {
	return Recovery{mode: resumes, next: next}
}

// Acked recovers a duplex stream that answers each request with one response: key tells
// which of them belong together, and is asked for requests and for responses. A request
// is kept until the response with its key is handed over, so that a stream may run
// forever; what has no answer yet is sent again to each further attempt, in order. The
// responses may come in any order. One whose key no request waits for is handed over too.
//
// The key of a request must not be empty, nor that of another without an answer:
// such a SendMsg fails with INVALID_ARGUMENT, and the call with it. key must give the same
// for the same message each time. A request that has no answer, like a greeting, has the
// key [NoAnswer].
//
// A request is charged its key and 128 bytes beside what [Buffer] says, and is not kept on
// the disk. What [SendAll] sends of a [Replayable] source is kept as if it were [Once].
// Policy.IdleTimeout runs only while a request waits for its answer, or the caller has
// half-closed the stream, and so does Policy.AttemptTimeout in attempts that follow the
// first response.
//
// The server must answer a request once, whole, whether another attempt was sent it before
// or not. If it ends the stream well while it owes answers, the call ends with DATA_LOSS,
// unless it is committed, of which nobody knows any more what it is owed.
func Acked(key func(message any) string) Recovery {
	return Recovery{mode: acknowledges, key: key}
}

// NoAnswer is the key of a request of an [Acked] stream that has no answer. It stays for
// the life of the stream, and is sent to each attempt, in its place, so that there should
// be few of them.
const NoAnswer = "grpcretry: no answer"

// problem returns what is wrong with a Recovery; nil if nothing is.
func (r Recovery) problem() error {
	switch {
	case r.mode == resumes && r.next == nil:
		return errors.New("Recovery is Resume(nil); it must be given a function")
	case r.mode == acknowledges && r.key == nil:
		return errors.New("Recovery is Acked(nil); it must be given a function")
	}
	return nil
}

// suits returns why a kind of stream cannot be recovered so; nil if it can.
func (r Recovery) suits(method string, clientStreams, serverStreams bool) error {
	kind := "a server stream"
	switch {
	case clientStreams && serverStreams:
		return nil
	case clientStreams:
		kind = "a client stream"
	case !serverStreams:
		kind = "unary"
	}
	switch {
	case r.mode == acknowledges:
		return fmt.Errorf("Recovery is Acked; it is for duplex streams, and %s is %s", method, kind)
	case r.mode == resumes && !serverStreams:
		return fmt.Errorf("Recovery is Resume; it is for streams of responses, and %s is %s", method, kind)
	case r.mode == skips && !serverStreams && !clientStreams:
		return fmt.Errorf("Recovery is Skip; it is for streams, and %s is %s", method, kind)
	}
	return nil
}

// WithRecovery gives one call its own [Recovery], in place of that of its policy, be it
// the method's or that of [WithCallPolicy]. One that cannot be used, or is not for this
// kind of stream, fails the call before its first attempt, with INTERNAL. Of several such
// options the last counts. The option has no effect on unary calls, on a call with
// [Disable], or without a [Retrier].
func WithRecovery(r Recovery) grpc.CallOption {
	return &recoveryOption{recovery: r}
}

// recoveryOption is a call's own Recovery; gRPC ignores it.
type recoveryOption struct {
	grpc.EmptyCallOption

	recovery Recovery
}

// errNoRecovery is the error of calls that want a Recovery of their own where the channel
// has the method.
var errNoRecovery = status.Error(codes.Internal,
	"grpcretry: WithRecovery: gRPC's own retry has the method, by WithChannelRetry or a service config; "+
		"it recovers no streams")
