// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// TestOutcomeJudge holds what each piece of evidence does to the verdict on an
// attempt, where TestFailureCauses holds which evidence gRPC leaves.
func TestOutcomeJudge(t *testing.T) {
	t.Parallel()
	const draining = "the connection is draining"
	went := results{peer: peer.Peer{Addr: &net.TCPAddr{}}}
	bare := results{trailer: metadata.MD{}}
	answered := results{trailer: metadata.Pairs("t", "1")}
	headed := results{header: metadata.MD{}, trailer: metadata.MD{}}
	// Short for the flags that an outcome gets.
	type flags struct{ timedOut, endedByCall, unprocessed bool }
	for _, row := range []struct {
		name                  string
		results               results
		unreported, refused   bool
		code                  codes.Code
		message               string
		callOver, attemptOver bool
		kind                  Kind
		want                  flags
	}{
		{name: "no stream", code: codes.Unavailable, kind: Connect},
		{name: "no stream, and not for want of a connection", code: codes.Internal, kind: Local},
		{name: "no stream before the service config's timeout", code: codes.DeadlineExceeded, kind: Connect},
		{name: "no stream before the attempt's timeout", code: codes.DeadlineExceeded, attemptOver: true, kind: Connect, want: flags{timedOut: true}},
		{name: "no stream when the attempt is cancelled", code: codes.Canceled, attemptOver: true, kind: Connect, want: flags{timedOut: true}},
		{name: "no stream before the call's deadline", code: codes.DeadlineExceeded, callOver: true, attemptOver: true, kind: Local, want: flags{endedByCall: true}},
		{name: "no stream, but gRPC did not say so", unreported: true, code: codes.Unavailable, kind: Lost},
		{name: "a peer is a stream", results: went, code: codes.Unavailable, kind: Lost},
		{name: "an empty trailer is a stream", results: bare, code: codes.Unavailable, kind: Lost},
		{name: "a trailer is an answer", results: answered, code: codes.Unavailable, kind: Answered},
		{name: "a trailer is no answer to what has timed out", results: answered, code: codes.DeadlineExceeded, attemptOver: true, kind: Lost, want: flags{timedOut: true}},
		{name: "a trailer as the call ends", results: answered, code: codes.DeadlineExceeded, callOver: true, attemptOver: true, kind: Answered, want: flags{endedByCall: true}},
		{name: "other codes do not time out", results: answered, code: codes.Unavailable, callOver: true, attemptOver: true, kind: Answered},
		{name: "the stream times out", results: bare, code: codes.Canceled, attemptOver: true, kind: Lost, want: flags{timedOut: true}},

		{name: "unprocessed", results: bare, code: codes.Unavailable, message: draining, kind: Connect, want: flags{unprocessed: true}},
		{name: "unprocessed without a stream", code: codes.Unavailable, message: draining, kind: Connect},
		{name: "unprocessed after a header", results: headed, code: codes.Unavailable, message: draining, kind: Lost},
		{name: "unprocessed with a trailer", results: answered, code: codes.Unavailable, message: draining, kind: Answered},
		{name: "unprocessed, but gRPC did not say so", results: bare, unreported: true, code: codes.Unavailable, message: draining, kind: Lost},
		{name: "unprocessed and refused by Check", results: bare, refused: true, code: codes.Unavailable, message: draining, kind: Answered},
		{name: "unprocessed with another code", results: bare, code: codes.Internal, message: draining, kind: Lost},

		{name: "refused by Check", results: headed, refused: true, code: codes.Internal, kind: Answered},
		{name: "made here", results: bare, code: codes.Internal, message: "grpc: error while marshaling: no", kind: Local},
		{name: "made here, and the text is elsewhere", results: bare, code: codes.Internal, message: "no grpc: error while marshaling", kind: Lost},
		{name: "made here with another code", results: bare, code: codes.Unknown, message: "grpc: error while marshaling", kind: Lost},
		{name: "made there", results: answered, code: codes.Internal, message: "grpc: error while marshaling", kind: Answered},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := outcome{results: row.results, reported: !row.unreported, refused: row.refused}
			err := status.Error(row.code, row.message)
			o.judge(err, row.callOver, row.attemptOver)
			assert.Equal(t, row.kind, o.kind)
			assert.Equal(t, row.want, flags{o.timedOut, o.endedByCall, o.unprocessed})
			assert.Equal(t, row.code, o.status.Code())
			assert.Equal(t, err, o.err)
			assert.Equal(t, !row.unreported, o.reported)
		})
	}
}

// TestOutcomeOfOddErrors holds that no error is a success, and none a clean end of
// a stream, whoever says that gRPC reported it.
func TestOutcomeOfOddErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err      error
		code     codes.Code
		reported bool
	}{
		{io.EOF, codes.Unknown, false},
		{okError{}, codes.Unknown, false},
		{errors.New("odd"), codes.Unknown, true},
		{errors.Join(status.Error(codes.NotFound, "none"), context.Canceled), codes.NotFound, true},
		{context.Canceled, codes.Canceled, true},
		{context.DeadlineExceeded, codes.DeadlineExceeded, true},
	} {
		o := outcome{reported: true, results: results{trailer: metadata.Pairs("t", "1")}}
		o.judge(row.err, false, false)
		assert.Equal(t, row.code, o.status.Code(), "%v", row.err)
		assert.Equal(t, row.code, statusOf(o.err).Code(), "%v", row.err)
		assert.Equal(t, row.reported, o.reported, "%v", row.err)
		assert.Equal(t, row.reported, o.kind == Answered, "%v", row.err)
		assert.NotErrorIs(t, o.err, io.EOF)
	}
}

// okError claims to be OK.
type okError struct{}

func (okError) Error() string              { return "fine" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "fine") }

// TestOutcomePublic holds that a failure has a peer only if there was one, and that
// a reply which Check refused asks for nothing.
func TestOutcomePublic(t *testing.T) {
	t.Parallel()
	o := outcome{status: status.New(codes.Unavailable, ""), results: results{trailer: metadata.Pairs(pushbackKey, "5")}}
	assert.Nil(t, o.failure("/a/b", 1, false).Peer)
	assert.True(t, o.demand().given)
	o.refused = true
	assert.Equal(t, demand{}, o.demand())
	o.peer.Addr = &net.TCPAddr{Port: 7}
	assert.Equal(t, o.peer, *o.failure("/a/b", 1, false).Peer)
}

// TestMadeLocally holds that a failure of this side never passes for a clean end.
func TestMadeLocally(t *testing.T) {
	t.Parallel()
	for _, err := range []error{io.EOF, fmt.Errorf("read: %w", io.EOF), errors.New("broken")} {
		o := madeLocally(err)
		assert.NotErrorIs(t, o.err, io.EOF)
		assert.NotEqual(t, codes.OK, status.Code(o.err))
		assert.NotEqual(t, codes.OK, o.status.Code())
		assert.Equal(t, Local, o.kind)
	}
	broken := errors.New("broken")
	assert.Equal(t, broken, madeLocally(broken).err, "all others stay as they are")
}
