// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Kind says what the end of an attempt proves about the server. The file
// docs/failures.md has a table of causes and their kinds.
type Kind int

const (
	// Connect means that the request never left the client, or that the server
	// refused it unprocessed. It is safe to try again.
	Connect Kind = iota + 1
	// Answered means that the status is the server's own.
	Answered
	// Lost means that the request may have run and that no answer came: the
	// connection broke, a proxy answered instead, or a timeout ended the attempt.
	Lost
	// Local means that the error was made on this side and would be made again:
	// a message that is too large or cannot be encoded, bad metadata, a closed
	// connection.
	Local
)

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Connect:
		return "connect"
	case Answered:
		return "answered"
	case Lost:
		return "lost"
	case Local:
		return "local"
	default:
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
}

// Failure is how one attempt failed. Its metadata and status are shared between
// all who see the failure and must not be modified.
type Failure struct {
	// Kind is what the failure proves about the server.
	Kind Kind
	// Status is the attempt's status, with the details that came with it.
	Status *status.Status
	// Header is the server's header. In the first attempt of a unary call it is
	// known only where the caller passed [grpc.Header], where the policy sets
	// Retryable or a MaxAttempts of 1, and where the call must not be repeated
	// without proof.
	Header metadata.MD
	// Trailer is the server's trailer; empty where the server sent none.
	Trailer metadata.MD
	// Peer is the server that the attempt went to; nil where it went to none.
	Peer *peer.Peer
	// Method is the full method name, like "/pkg.Service/Method".
	Method string
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Listed tells whether Status has one of Policy.Codes, or is that of a reply
	// which Policy.Check refused.
	Listed bool
}

// outcome is what one attempt left behind, by value: most failures are followed
// by an attempt that succeeds, and nobody ever looks at them.
type outcome struct {
	// results are known if reported is set: gRPC itself said that the attempt ended
	// in err. Else an interceptor between us and gRPC may have dropped our call
	// options, made calls of its own, or returned before the attempt ended.
	results

	reported bool
	err      error
	status   *status.Status
	kind     Kind

	// timedOut is set where the attempt's own timeout ended it, endedByCall where
	// the call's context did.
	timedOut, endedByCall bool
	// unprocessed is set where the server refused the stream without looking at it,
	// refused where it answered OK and Policy.Check objected.
	unprocessed, refused bool
}

// judge works out what the error of an attempt means. callOver and attemptOver
// tell whether the contexts of the call and of the attempt had ended by then.
func (o *outcome) judge(err error, callOver, attemptOver bool) {
	o.status = statusOf(err)
	if o.err = err; passesForEnd(err) { // gRPC returns nothing of the kind
		o.err = o.status.Err()
		o.reported = false
	}
	code := o.status.Code()
	interrupted := code == codes.DeadlineExceeded || code == codes.Canceled
	o.timedOut = interrupted && attemptOver && !callOver
	// The server's own timer may be the first to notice the end of the call.
	o.endedByCall = interrupted && callOver
	o.unprocessed = o.reported && !o.refused && o.stream() && o.header == nil && len(o.trailer) == 0 &&
		refusedUnprocessed(o.status)
	o.kind = classify(o)
}

// madeLocally is what an error means that was made on this side.
func madeLocally(err error) outcome {
	o := outcome{err: err, status: statusOf(err), kind: Local}
	if passesForEnd(err) {
		o.err = o.status.Err()
	}
	return o
}

// passesForEnd tells whether a failure would pass for a clean end further up.
func passesForEnd(err error) bool {
	return errors.Is(err, io.EOF) || status.Code(err) == codes.OK
}

// stream tells whether the attempt got as far as a stream: gRPC then has a peer,
// and a trailer, which may be empty.
func (o *outcome) stream() bool {
	return o.peer.Addr != nil || o.trailer != nil
}

// demand returns what the server asked for when it failed.
func (o *outcome) demand() demand {
	if o.refused {
		return demand{}
	}
	return demandOf(o.status, o.trailer)
}

// failure makes the public form of the outcome of a failed attempt.
func (o *outcome) failure(method string, attempt int, listed bool) Failure {
	failure := Failure{
		Kind:    o.kind,
		Status:  o.status,
		Header:  o.header,
		Trailer: o.trailer,
		Method:  method,
		Attempt: attempt,
		Listed:  listed,
	}
	if o.peer.Addr != nil {
		p := o.peer
		failure.Peer = &p
	}
	return failure
}

// classify says what the end of a failed attempt proves. Where the evidence
// allows for two answers it takes the one that does not repeat a call.
func classify(o *outcome) Kind {
	code := o.status.Code()
	switch {
	case o.refused:
		return Answered
	case !o.reported:
		return Lost
	case !o.stream():
		// UNAVAILABLE is gRPC's word for "no connection", and a deadline that is
		// not the call's is the attempt's or the service config's; the rest
		// (credentials, metadata, a compressor that does not exist, a closed
		// connection) fails the same way every time.
		if code == codes.Unavailable || o.timedOut || code == codes.DeadlineExceeded && !o.endedByCall {
			return Connect
		}
		return Local
	case o.timedOut:
		return Lost
	case len(o.trailer) > 0 && !o.tooLargeHere():
		return Answered
	case o.unprocessed:
		return Connect
	case madeHere(code, o.status.Message()):
		return Local
	default:
		return Lost
	}
}

// tooLargeHere tells whether a message was too large for this side, though the server's
// trailer came behind it. Where the server finds that, the answer is trailers-only, which
// carries its content-type in the trailer, or else would be made again just as well.
func (o *outcome) tooLargeHere() bool {
	return o.status.Code() == codes.ResourceExhausted && len(o.trailer["content-type"]) == 0 &&
		madeHere(codes.ResourceExhausted, o.status.Message())
}

// refusedUnprocessed recognises the texts by which gRPC says that the server
// refused a stream without processing it. It has no other way of saying so.
func refusedUnprocessed(st *status.Status) bool {
	if st.Code() != codes.Unavailable {
		return false
	}
	switch st.Message() {
	case "stream terminated by RST_STREAM with error code: REFUSED_STREAM",
		"the connection is draining",
		"the stream is rejected because server is draining the connection":
		return true
	}
	return false
}

// madeHere recognises the texts of the errors that gRPC makes on this side while
// it encodes a request or decodes a response.
func madeHere(code codes.Code, message string) bool {
	var texts []string
	switch code {
	case codes.ResourceExhausted:
		texts = []string{
			"trying to send message larger than max",
			"grpc: received message larger than max",
			"grpc: received message after decompression larger than max",
			"grpc: message after decompression larger than max",
			"grpc: message too large",
		}
	case codes.Internal:
		texts = []string{
			"grpc: error while marshaling",
			"grpc: error while compressing",
			"grpc: failed to unmarshal",
			"grpc: failed to decompress",
			"grpc: failed to read decompressed data",
			"grpc: no decompressor available",
			"grpc: compressed flag set with identity or empty encoding",
			"grpc: peer compressed the response",
			"grpc: Decompressor is not installed",
			"grpc: received unexpected payload format",
			"cardinality violation: ",
		}
	default:
		return false
	}
	for _, text := range texts {
		if strings.HasPrefix(message, text) {
			return true
		}
	}
	return false
}

// statusOf returns the status of a failed attempt, which is never OK: an error
// that claims to be OK is an error all the same.
func statusOf(err error) *status.Status {
	st, ok := status.FromError(err)
	if !ok {
		// Interceptors may return bare errors; the two that have a code of
		// their own get it.
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			st = status.New(codes.DeadlineExceeded, err.Error())
		case errors.Is(err, context.Canceled):
			st = status.New(codes.Canceled, err.Error())
		}
	}
	if st.Code() == codes.OK {
		return status.New(codes.Unknown, err.Error())
	}
	return st
}
