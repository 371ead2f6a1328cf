// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
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
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/lance"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// ids are the request ids of all attempts.
func (r *rig) ids() []string {
	var ids []string
	for _, a := range r.server.Attempts() {
		given := a.Metadata.Get("x-request-id")
		require.Len(r, given, 1)
		ids = append(ids, given[0])
	}
	return ids
}

// TestNestedIDs: an id that was made for a call is not the caller's own for another that
// is made with its context.
func TestNestedIDs(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var r *rig
		var inner error
		r = newRig(t, lance.RetryConfig{}, lance.WithObserver(grpcretry.Observer{
			Attempt: func(ctx context.Context, method string, a grpcretry.Attempt) {
				if method == read && a.Number == 1 {
					inner = r.call(ctx, write)
				}
			},
		}))
		r.server.Script(read, fail(codes.Unavailable))
		r.server.Script(write, fail(codes.Aborted).Times(2))
		require.NoError(t, r.call(t.Context(), read))
		require.NoError(t, inner)
		ids := map[string]map[string]bool{read: {}, write: {}}
		for i, id := range r.ids() {
			ids[r.server.Attempts()[i].Method][id] = true
		}
		assert.Len(t, ids[read], 1)
		assert.Len(t, ids[write], 3)
		for id := range ids[read] {
			assert.False(t, ids[write][id])
		}
	})
	bubble(t, "Disable", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{})
		for _, method := range []string{read, write, upload} {
			require.NoError(t, r.call(t.Context(), method, grpcretry.Disable()))
		}
		assert.Len(t, r.ids(), 3)
	})
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// TestRequestIDs: a read has one id for all attempts, a write another in each, and the
// caller's own stays. The error has the last.
func TestRequestIDs(t *testing.T) {
	for _, row := range []struct {
		name, method string
		own          string
		distinct     int
	}{
		{"read", read, "", 1},
		{"idempotent stream", upload, "", 1},
		{"write", write, "", 3},
		{"the caller's, read", read, "mine", 1},
		{"the caller's, write", write, "mine", 1},
	} {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{})
			r.server.Script(row.method, fail(codes.Aborted).Forever())
			ctx := metadata.AppendToOutgoingContext(t.Context(), "other", "x")
			if row.own != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "X-Request-ID", row.own)
			}
			for range 2 { // calls with the same context have ids of their own
				err := r.call(ctx, row.method)
				failed, ok := errors.AsType[*lance.RetryError](err)
				require.True(t, ok, err)
				ids := r.ids()
				assert.Equal(t, ids[len(ids)-1], failed.RequestID)
			}
			ids := r.ids()
			require.Len(t, ids, 6)
			if row.own != "" {
				assert.Equal(t, slices.Repeat([]string{row.own}, 6), ids)
				return
			}
			for _, id := range ids {
				assert.Regexp(t, uuid, id)
			}
			assert.Len(t, slices.Compact(slices.Clone(ids[:3])), row.distinct)
			slices.Sort(ids)
			assert.Len(t, slices.Compact(ids), 2*row.distinct)
			for _, a := range r.server.Attempts() {
				assert.Equal(t, []string{"x"}, a.Metadata.Get("other"))
			}
		})
	}
}

// TestRetryError: the error has LanceDB's text, all counters, and everything below it.
func TestRetryError(t *testing.T) {
	for _, method := range []string{read, upload} {
		bubble(t, method, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{})
			r.server.Script(method, testserver.Fail(codes.Unavailable, "busy", &errdetails.ErrorInfo{Reason: "LOAD"}).Forever())
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-id", "r1")
			var trailer metadata.MD
			err := r.call(ctx, method, grpc.Trailer(&trailer))
			require.ErrorContains(t, err, "Hit retry limit for request_id=r1 (request_failures=3/3, connect_failures=0/3, read_failures=0/3): "+
				"rpc error: code = Unavailable desc = busy (3 attempts, ")
			failed, ok := errors.AsType[*lance.RetryError](err)
			require.True(t, ok)
			assert.Equal(t, lance.Counter{Limit: 3}, failed.Connects)
			assert.Equal(t, lance.Counter{Limit: 3}, failed.Reads)
			history, ok := errors.AsType[*grpcretry.Error](err)
			require.True(t, ok)
			assert.Len(t, history.Attempts, 3)
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			s, ok := status.FromError(err)
			require.True(t, ok)
			assert.Equal(t, "busy", s.Message())
			require.Len(t, s.Details(), 1)
			assert.Equal(t, "LOAD", s.Details()[0].(*errdetails.ErrorInfo).GetReason())
			attempts, _ := grpcretry.AttemptsFromMD(trailer)
			assert.Equal(t, 3, attempts)
		})
	}
	bubble(t, "one attempt", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{Retries: new(0)})
		r.server.Script(read, fail(codes.Unavailable))
		require.ErrorContains(t, r.call(t.Context(), read), "(request_failures=1/0, connect_failures=0/3, read_failures=0/3): rpc error: ")
	})
	for name, end := range map[string]func(ctx context.Context, cancel func(), r *rig) error{
		"the caller cancels": func(ctx context.Context, cancel func(), r *rig) error {
			r.server.Script(read, testserver.Hang())
			time.AfterFunc(time.Second, cancel)
			return r.call(ctx, read)
		},
		"the server forbids": func(ctx context.Context, _ func(), r *rig) error {
			r.server.Script(read, fail(codes.Unavailable).Pushback("-1"))
			return r.call(ctx, read)
		},
		"the stream is committed": func(ctx context.Context, _ func(), r *rig) error {
			r.server.Script(testv1.TestService_Download_FullMethodName, testserver.Cut().Sent(1))
			stream, err := r.client.Download(ctx, &testv1.Request{})
			for err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"it is not to be retried": func(ctx context.Context, _ func(), r *rig) error {
			r.server.Script(read, fail(codes.NotFound))
			return r.call(ctx, read)
		},
		"a write had no answer": func(ctx context.Context, _ func(), r *rig) error {
			r.server.Script(write, testserver.Hang())
			return r.call(ctx, write)
		},
	} {
		for _, limit := range []int{1, 3} {
			if limit == 1 && name == "a write had no answer" {
				continue // that is the limit of all failures
			}
			bubble(t, fmt.Sprintf("%s, %d", name, limit), func(t *testing.T) {
				r := newRig(t, lance.RetryConfig{Retries: &limit, ReadRetries: &limit}, lance.WithAttemptTimeout(time.Minute))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := end(ctx, cancel, r)
				require.Error(t, err)
				require.NotContains(t, err.Error(), "Hit retry limit")
			})
		}
	}
	bubble(t, "a deadline is no limit", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{})
		r.server.Script(read, fail(codes.Unavailable).Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		err := r.call(ctx, read)
		require.ErrorIs(t, err, grpcretry.ErrDeadline)
		require.NotContains(t, err.Error(), "Hit retry limit")
	})
	bubble(t, "a stream that ends well", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{})
		stream, err := r.client.Download(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		_, err = stream.Header()
		require.NoError(t, err)
		for err == nil {
			_, err = stream.Recv()
		}
		assert.Equal(t, "EOF", err.Error())
	})
	bubble(t, "a stream asked for its header", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{})
		r.server.Script(testv1.TestService_Download_FullMethodName, fail(codes.Unavailable).Forever())
		stream, err := r.client.Download(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		_, _ = stream.Header()
		_, err = stream.Recv()
		require.ErrorContains(t, err, "Hit retry limit")
	})
	bubble(t, "an observer beside", func(t *testing.T) {
		var told []int
		r := newRig(t, lance.RetryConfig{}, lance.WithObserver(grpcretry.Observer{
			Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) { told = append(told, a.Number) },
		}))
		r.server.Script(read, fail(codes.Unavailable).Forever())
		require.Error(t, r.call(t.Context(), read))
		assert.Equal(t, []int{1, 2, 3}, told)
	})
	bubble(t, "more failures than an error has", func(t *testing.T) {
		config := unjittered()
		config.Retries, config.BackoffFactor = new(255), new(time.Duration(0))
		r := newRig(t, config)
		r.server.Script(read, fail(codes.Unavailable).Forever())
		require.ErrorContains(t, r.call(t.Context(), read), "(request_failures=255/255, ")
		assert.Len(t, r.server.Attempts(), 255)
	})
}

// TestText: a text in the message, or anywhere in the details, beats the code.
func TestText(t *testing.T) {
	nested, err := anypb.New(&errdetails.DebugInfo{StackEntries: []string{"a", "commit conflict"}})
	require.NoError(t, err)
	mapped, err := structpb.NewStruct(map[string]any{"a": map[string]any{"b": []any{"commit conflict"}}})
	require.NoError(t, err)
	conflict := lance.WithText(`(?i)commit CONFLICT`, 409)
	for _, row := range []struct {
		name    string
		step    testserver.Step
		opts    []lance.Option
		retried bool
	}{
		{"a text of nobody's", testserver.Fail(codes.FailedPrecondition, "commit conflict"), nil, false},
		{"in the message", testserver.Fail(codes.FailedPrecondition, "a commit conflict here"), []lance.Option{conflict}, true},
		{"in a detail", fail(codes.FailedPrecondition).Details(&errdetails.ErrorInfo{Reason: "commit conflict"}), []lance.Option{conflict}, true},
		{"in a key", fail(codes.NotFound).Details(&errdetails.ErrorInfo{Metadata: map[string]string{"commit conflict": ""}}), []lance.Option{conflict}, true},
		{"in a value", fail(codes.NotFound).Details(&errdetails.ErrorInfo{Metadata: map[string]string{"": "commit conflict"}}), []lance.Option{conflict}, true},
		{"within a detail", fail(codes.NotFound).Details(nested), []lance.Option{conflict}, true},
		{"deep within a detail", fail(codes.NotFound).Details(mapped), []lance.Option{conflict}, true},
		{"another status", testserver.Fail(codes.Unavailable, "gone for good"), []lance.Option{lance.WithText("gone for good", 410)}, false},
		{"the first counts", testserver.Fail(codes.NotFound, "a b"), []lance.Option{lance.WithText("b", 409), lance.WithText("a", 404)}, true},
		{"a proxy's", testserver.Fail(codes.NotFound, `unexpected HTTP status code received from server: 503 (Service Unavailable)`), nil, true},
		{"a proxy's, not listed", testserver.Fail(codes.Unavailable, `unexpected HTTP status code received from server: 404 (Not Found)`), nil, false},
		{"LanceDB's", testserver.Fail(codes.NotFound, `Http error: (request_id=a1) 429 Too Many Requests: slow down`), nil, true},
		{"LanceDB's, not listed", testserver.Fail(codes.Unknown, `Http error: (request_id=a1) 400 Bad Request: 503`), nil, false},
		{"no status", testserver.Fail(codes.NotFound, `Http error: (request_id=a1) 4290: slow down`), nil, false},
	} {
		bubble(t, row.name, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{}, row.opts...)
			r.server.Script(read, row.step)
			err := r.call(t.Context(), read)
			assert.Equal(t, row.retried, err == nil, err)
		})
	}
	bubble(t, "of a write", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{}, conflict, lance.WithText("overloaded", 503))
		r.server.Script(write, testserver.Fail(codes.Internal, "commit conflict"))
		require.NoError(t, r.call(t.Context(), write), "409")
		r.server.Script(write, testserver.Fail(codes.ResourceExhausted, "overloaded"))
		require.Error(t, r.call(t.Context(), write), "503")
	})
	for text, opt := range map[string]lance.Option{
		`WithText("(", 409): `: lance.WithText("(", 409),
		`WithText("a", 200): a status of a failure is from 400 to 599`: lance.WithText("a", 200),
		`WithAttemptTimeout(-1ns): it must not be negative`:            lance.WithAttemptTimeout(-1),
		`WithConnectWait(0s): it must be positive`:                     lance.WithConnectWait(0),
		`WithThrottle: `:          lance.WithThrottle(grpcretry.Throttle{MaxTokens: -1}),
		`WithBuffer: Total is -1`: lance.WithBuffer(grpcretry.Buffer{Total: -1}),
	} {
		_, err := lance.DialOptions(lance.RetryConfig{}, opt)
		require.ErrorContains(t, err, "lance: ")
		require.ErrorContains(t, err, text)
	}
}

// TestAnsweredBehindHeader: a code that gRPC never makes of a broken connection is the
// server's word, however it came, or that of an interceptor in between.
func TestAnsweredBehindHeader(t *testing.T) {
	for _, code := range []codes.Code{
		codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange, codes.DataLoss,
	} {
		bubble(t, code.String(), func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{})
			r.server.Script(read, fail(code).SendHeader().Forever())
			require.Equal(t, status.Error(code, "x").Error(), r.call(t.Context(), read).Error())
			assert.Len(t, r.server.Attempts(), 1)
		})
	}
}

// TestSendAll: a source that can be run again is, since nothing hides the stream.
func TestSendAll(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, unjittered(), lance.WithBuffer(grpcretry.Buffer{Memory: 1, Fail: true}))
		r.server.Script(upload, fail(codes.Unavailable).Received(5))
		stream, err := r.client.Upload(t.Context())
		require.NoError(t, err)
		require.NoError(t, grpcretry.SendAll(stream, grpcretry.Replayable(func() iter.Seq2[*testv1.Request, error] {
			return func(yield func(*testv1.Request, error) bool) {
				for range 10 {
					if !yield(&testv1.Request{Payload: make([]byte, 1000)}, nil) {
						return
					}
				}
			}
		})))
		_, err = stream.CloseAndRecv()
		require.NoError(t, err)
		assert.Len(t, r.server.Attempts(), 2)
	})
}

// TestDeepDetails: details that go on and on are looked into so far and no further.
func TestDeepDetails(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var detail proto.Message = &errdetails.ErrorInfo{Reason: "commit conflict"}
		for range 100 {
			packed, err := anypb.New(detail)
			require.NoError(t, err)
			detail = packed
		}
		r := newRig(t, lance.RetryConfig{}, lance.WithText("commit conflict", 409))
		r.server.Script(read, fail(codes.NotFound).Details(detail))
		require.Error(t, r.call(t.Context(), read))
	})
}

// TestStatuses: the statuses of the config in codes.
func TestStatuses(t *testing.T) {
	for status, listed := range map[int][]codes.Code{
		400: {codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange},
		401: {codes.Unauthenticated}, 403: {codes.PermissionDenied}, 404: {codes.NotFound}, 409: {codes.Aborted},
		418: {}, 429: {codes.ResourceExhausted}, 499: {codes.Canceled}, 500: {codes.Internal, codes.Unknown},
		501: {codes.Unimplemented}, 502: {codes.Unavailable}, 503: {codes.Unavailable}, 504: {codes.DeadlineExceeded},
	} {
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			bubble(t, "", func(t *testing.T) {
				r := newRig(t, lance.RetryConfig{Statuses: []int{status}})
				r.server.Script(read, fail(code))
				err := r.call(t.Context(), read)
				assert.Equal(t, slices.Contains(listed, code), err == nil, "%d %v", status, code)
			})
		}
	}
	bubble(t, "none", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{Statuses: []int{}})
		r.server.Script(read, fail(codes.Unavailable), testserver.Cut().Received(1))
		require.Error(t, r.call(t.Context(), read))
		require.NoError(t, r.call(t.Context(), read), "no answer is not a status")
	})
}
