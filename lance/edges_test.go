// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/lance"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// TestEdgesNestedOwnIDs: an id that the caller has given stays in a call that is made with
// another's context, whichever of the two it was given for.
func TestEdgesNestedOwnIDs(t *testing.T) {
	for _, outer := range []bool{true, false} {
		bubble(t, fmt.Sprint(outer), func(t *testing.T) {
			var r *rig
			r = newRig(t, lance.RetryConfig{}, lance.WithObserver(grpcretry.Observer{
				Attempt: func(ctx context.Context, method string, a grpcretry.Attempt) {
					if method == read && a.Number == 1 {
						if !outer {
							ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs("x-request-id", "mine"))
						}
						assert.NoError(t, r.call(ctx, write))
					}
				},
			}))
			r.server.Script(read, fail(codes.Unavailable))
			r.server.Script(write, fail(codes.Aborted))
			ctx := t.Context()
			if outer {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-request-id", "mine")
			}
			require.NoError(t, r.call(ctx, read))
			for _, a := range r.server.Attempts(write) {
				assert.Equal(t, []string{"mine"}, a.Metadata.Get("x-request-id"))
			}
		})
	}
}

// TestEdgesSeveralIDs: of several ids of the caller's all are sent, and the error has the
// last. The observer is told of an attempt that succeeds, too.
func TestEdgesSeveralIDs(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var told []bool
		r := newRig(t, lance.RetryConfig{}, lance.WithObserver(grpcretry.Observer{
			Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) { told = append(told, a.Failure == nil) },
		}))
		r.server.Script(write, fail(codes.Aborted).Times(4))
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-id", "a", "x-request-id", "b")
		require.ErrorContains(t, r.call(ctx, write), "Hit retry limit for request_id=b (")
		require.NoError(t, r.call(ctx, write))
		for _, a := range r.server.Attempts() {
			assert.Equal(t, []string{"a", "b"}, a.Metadata.Get("x-request-id"))
		}
		assert.Equal(t, []bool{false, false, false, false, true}, told)
	})
}

// TestEdgesBounds: the least and the greatest that a config takes. A method may be named
// twice, but not as both.
func TestEdgesBounds(t *testing.T) {
	const factor = "LANCE_CLIENT_RETRY_BACKOFF_FACTOR"
	for _, explicit := range [][]int{{400, 599}, nil} {
		t.Setenv("LANCE_CLIENT_RETRY_STATUSES", "400 , 599")
		_, err := lance.DialOptions(lance.RetryConfig{Retries: new(255), Statuses: explicit}, lance.WithAttemptTimeout(0),
			lance.WithText("a", 400), lance.WithText("a", 599))
		require.NoError(t, err)
	}
	_, err := lance.DialOptions(lance.RetryConfig{Statuses: []int{200, 201}})
	require.EqualError(t, err, "lance: RetryConfig.Statuses[0] is 200; a status of a failure is from 400 to 599")
	t.Setenv(factor, "0X1p-2")
	_, err = lance.DialOptions(lance.RetryConfig{})
	require.ErrorContains(t, err, factor)
	t.Setenv(factor, "")
	_, err = lance.DialOptions(lance.RetryConfig{}, lance.WithReads(write, write[1:]), lance.WithReads(write), lance.WithWrites(read, read))
	require.NoError(t, err)
	_, err = lance.DialOptions(lance.RetryConfig{}, lance.WithWrites(write), lance.WithReads(write))
	require.EqualError(t, err, `lance: WithReads("`+write+`"): it is named as the opposite, too`)
}

// TestEdgesDetails: how far details are looked into, to the last that counts.
func TestEdgesDetails(t *testing.T) {
	const found = "commit conflict"
	within := func(levels int) []proto.Message {
		var detail proto.Message = &errdetails.ErrorInfo{Reason: found}
		for range levels {
			detail, _ = anypb.New(detail)
		}
		return []proto.Message{detail}
	}
	entries := func(n, size int) []proto.Message {
		first := slices.Repeat([]string{strings.Repeat("x", size)}, n)
		return []proto.Message{&errdetails.DebugInfo{StackEntries: first}, &errdetails.ErrorInfo{Reason: found}}
	}
	for _, row := range []struct {
		name    string
		details []proto.Message
		found   bool
	}{
		{"10 deep", within(9), true},
		{"11 deep", within(10), false},
		{"1000 strings", entries(999, 0), true},
		{"1001 strings", entries(1000, 0), false},
		{"the last of 1001 in a list", []proto.Message{&errdetails.DebugInfo{StackEntries: append(make([]string, 1000), found)}}, false},
		{"below 256 KiB", entries(255, 1028), true},
		{"256 KiB", entries(256, 1024), false},
	} {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{}, lance.WithText(found, 409))
			r.server.Script(read, fail(codes.NotFound).Details(row.details...))
			assert.Equal(t, row.found, r.call(t.Context(), read) == nil)
		})
	}
}

// TestEdgesIdle: the timeout of attempts bounds each receive of a stream, too.
func TestEdgesIdle(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{}, lance.WithAttemptTimeout(time.Second))
		r.server.Script(testv1.TestService_Download_FullMethodName, testserver.Hang().Sent(1))
		begun := time.Now()
		stream, err := r.client.Download(t.Context(), &testv1.Request{})
		for err == nil {
			_, err = stream.Recv()
		}
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err), err)
		assert.Equal(t, time.Second, time.Since(begun))
	})
}

// TestEdgesProxy: of an answer that is not gRPC's the status counts, not that nobody else
// answered.
func TestEdgesProxy(t *testing.T) {
	for status, streams := range map[int]int{400: 1, 404: 1, 409: 2, 429: 2, 500: 2, 501: 1, 503: 2} {
		server := rawh2.New(t)
		server.Script(rawh2.HTTPStatus(status, "text/html", "x"))
		options, err := lance.DialOptions(lance.RetryConfig{BackoffFactor: new(ms), BackoffJitter: new(ms)})
		require.NoError(t, err)
		r := &rig{T: t, client: testv1.NewTestServiceClient(server.Dial(options...))}
		assert.Equal(t, streams == 2, r.call(t.Context(), read) == nil)
		assert.Len(t, server.Record().Streams, streams, status)
	}
}

// TestEdgesNoLimit: what ends a call is a limit of the config's only if it is reached; none
// of 0 is before there was a failure.
func TestEdgesNoLimit(t *testing.T) {
	for name, end := range map[string]func(r *rig) error{
		"a write takes too long": func(r *rig) error {
			r.server.Script(write, testserver.Hang())
			return r.call(r.Context(), write)
		},
		"a write has no answer": func(r *rig) error { // which is not one to retry
			r.server.Script(write, fail(codes.Aborted), testserver.Cut().Received(1))
			return r.call(r.Context(), write)
		},
		"a call's own policy": func(r *rig) error {
			r.server.Script(read, fail(codes.Unavailable))
			return r.call(r.Context(), read, grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: 1}))
		},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{Retries: new(2), ConnectRetries: new(0), ReadRetries: new(0)}, lance.WithAttemptTimeout(time.Second))
			require.NotContains(t, end(r).Error(), "Hit retry limit")
		})
	}
}

// TestEdgesWriteMayHaveRun: a write is not repeated after these, be they in the list.
func TestEdgesWriteMayHaveRun(t *testing.T) {
	for name, s := range map[string]testserver.Step{
		"408": testserver.Fail(codes.NotFound, "too slow"), "499": fail(codes.Canceled),
		"413": testserver.Fail(codes.ResourceExhausted, "Message larger than max"),
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{Statuses: []int{408, 413, 429, 499}}, lance.WithText("too slow", 408))
			r.server.Script("", s.Times(2))
			require.Error(t, r.call(t.Context(), write))
			require.NoError(t, r.call(t.Context(), read))
			assert.Len(t, r.server.Attempts(), 3)
		})
	}
}

// TestEdgesTexts: statuses in texts, of which all must be listed and each has three digits.
func TestEdgesTexts(t *testing.T) {
	const listed, other = "Http error: (request_id=a) 429 x", "Http error: (request_id=b) 404 x"
	for _, row := range []struct {
		method string
		step   testserver.Step
		passes bool
	}{
		{write, testserver.Fail(codes.ResourceExhausted, "CLIENT: Sent Message larger than max (2 vs. 1)"), false},
		{write, testserver.Fail(codes.ResourceExhausted, "grpc: message after decompression larger than max"), false},
		{write, testserver.Fail(codes.ResourceExhausted, "grpc: message too large (9 bytes)"), false},
		{read, testserver.Fail(codes.Internal, "grpc: message too large (9 bytes)").SendHeader().Trailer("a", "b"), true}, // the server's word
		{read, testserver.Fail(codes.NotFound, listed+other), false},
		{read, testserver.Fail(codes.NotFound, other+listed), false},
		{read, testserver.Fail(codes.NotFound, "unexpected HTTP status code received from server: 4130"), false},
	} {
		bubble(t, "", func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{Statuses: []int{413, 429}, ReadRetries: new(1)})
			r.server.Script(row.method, row.step)
			assert.Equal(t, row.passes, r.call(t.Context(), row.method) == nil, row.step)
		})
	}
}

// TestEdgesNoAnswer: a failure that gRPC may make of an attempt without an answer is
// retried, though no status is listed; another is a server's word.
func TestEdgesNoAnswer(t *testing.T) {
	byGRPC := []codes.Code{codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		bubble(t, code.String(), func(t *testing.T) {
			options, err := lance.DialOptions(lance.RetryConfig{Statuses: []int{}})
			require.NoError(t, err)
			attempts := 0
			options = append(options, grpc.WithChainUnaryInterceptor(func(
				context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption,
			) error {
				attempts++
				return status.Error(code, "x") // which gRPC does not report
			}))
			_, err = testv1.NewTestServiceClient(testserver.New(t).Dial(options...)).Read(t.Context(), &testv1.Request{})
			require.Error(t, err)
			assert.Equal(t, slices.Contains(byGRPC, code), attempts == 3, attempts)
		})
	}
}
