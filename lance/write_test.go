// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance_test

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/lance"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// counting makes the server count how often each write was applied.
func (r *rig) counting() *atomic.Int64 {
	var applied atomic.Int64
	for _, method := range []string{write, upload} {
		r.server.Handle(method, func(stream grpc.ServerStream) error {
			for {
				err := stream.RecvMsg(&testv1.Request{})
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return err
				}
			}
			applied.Add(1)
			return stream.SendMsg(&testv1.Response{Payload: make([]byte, 100)})
		})
	}
	return &applied
}

// step is what an attempt of a write meets, and whether the write may be repeated.
type step struct {
	name     string
	step     testserver.Step
	repeated bool
}

// steps are all failures that the server knows.
func steps() []step {
	var all []step
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		none := code == codes.Aborted || code == codes.ResourceExhausted // they say that nothing was done
		all = append(
			all,
			step{code.String(), fail(code), none},
			// It cannot be told from what a proxy makes of a connection that breaks.
			step{code.String() + " with a header", fail(code).SendHeader(), false},
			step{code.String() + " after the request", fail(code).Received(1), none},
			step{code.String() + " after the answer", fail(code).Sent(1).Trailer("a", "b"), false},
		)
		if !none {
			all = append(all, step{code.String() + ", applied", fail(code).Applied(), false})
		}
	}
	for name, s := range map[string]testserver.Step{
		"cut": testserver.Cut(), "reset": testserver.Reset(), "cut after the header": testserver.Cut().SendHeader(),
		"cut after the request": testserver.Cut().Received(1), "cut, applied": testserver.Cut().Applied(),
		"cut after the answer": testserver.Cut().Sent(1), "hang": testserver.Hang(), "hang after the request": testserver.Hang().Received(1),
		"too slow": testserver.OK().Delay(time.Minute),
	} {
		all = append(all, step{name, s, false})
	}
	return all
}

// TestNoWriteTwice: no write is applied twice, whatever goes wrong, unary or a stream of
// requests; one that was provably not applied is tried again.
func TestNoWriteTwice(t *testing.T) {
	for _, method := range []string{write, upload} {
		for _, s := range steps() {
			bubble(t, method+" "+s.name, func(t *testing.T) {
				r := newRig(t, lance.RetryConfig{}, lance.WithWrites(upload), lance.WithAttemptTimeout(10*time.Second))
				applied := r.counting()
				r.server.Script(method, s.step)
				err := r.call(t.Context(), method)
				assert.LessOrEqual(t, applied.Load(), int64(1))
				if s.repeated {
					require.NoError(t, err)
					assert.Len(t, r.server.Attempts(), 2)
					assert.EqualValues(t, 1, applied.Load())
					return
				}
				assert.Len(t, r.server.Attempts(), 1, "it may have been applied")
				if s.name != "cut after the answer" {
					require.Error(t, err)
				}
			})
		}
		bubble(t, method+" connects", func(t *testing.T) {
			r := newRig(t, unjittered(), lance.WithWrites(upload))
			applied := r.counting()
			r.server.Stop()
			time.AfterFunc(100*ms, func() { assert.NoError(t, r.server.Start()) })
			require.NoError(t, r.call(t.Context(), method))
			assert.EqualValues(t, 1, applied.Load())
		})
	}
}

// TestNoWriteTwiceTooLargeElsewhere: so was one of which other servers of gRPC say so.
func TestNoWriteTwiceTooLargeElsewhere(t *testing.T) {
	for _, text := range []string{
		"Sent message larger than max (11 vs. 1)", "gRPC message exceeds maximum size 1: 11",
		"Sending message exceeds the maximum configured message size.", "message size 11 exceeds sendMaxBytes 1",
		"Attempted to send message with a size larger than 1", "Cannot return body with more than 4GB of data but got 5 bytes",
	} {
		bubble(t, text, func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{})
			r.server.Script(write, testserver.Fail(codes.ResourceExhausted, text).Forever())
			require.Error(t, r.call(t.Context(), write))
			assert.Len(t, r.server.Attempts(), 1)
		})
	}
}

// TestNoWriteTwiceTooLarge: a write whose answer is too large was applied, whoever finds
// that.
func TestNoWriteTwiceTooLarge(t *testing.T) {
	for _, method := range []string{write, upload} {
		for name, opts := range map[string]struct {
			server []testserver.Option
			call   []grpc.CallOption
		}{
			"for the server": {server: []testserver.Option{testserver.ServerOptions(grpc.MaxSendMsgSize(1))}},
			"for us":         {call: []grpc.CallOption{grpc.MaxCallRecvMsgSize(1)}},
		} {
			for _, s := range []testserver.Step{testserver.OK(), testserver.OK().Trailer("a", "b")} {
				bubble(t, method+" "+name, func(t *testing.T) {
					r := newRigOf(t, testserver.New(t, opts.server...), lance.RetryConfig{}, lance.WithWrites(upload))
					applied := r.counting()
					r.server.Script(method, s.Times(3))
					err := r.call(t.Context(), method, opts.call...)
					assert.Equal(t, codes.ResourceExhausted, status.Code(err))
					assert.EqualValues(t, 1, applied.Load())
				})
			}
		}
	}
}

// TestNoWriteTwiceTwoTexts: of several statuses in a failure the worst counts, wherever it
// stands, that of its code among them.
func TestNoWriteTwiceTwoTexts(t *testing.T) {
	const safe, unsafe = "Http error: (request_id=a) 429 x", "Http error: (request_id=b) 500 x"
	for _, s := range []testserver.Step{
		testserver.Fail(codes.Internal, safe+": "+unsafe),
		testserver.Fail(codes.Internal, unsafe+": "+safe),
		testserver.Fail(codes.Internal, safe, &errdetails.ErrorInfo{Reason: unsafe}),
		testserver.Fail(codes.Internal, safe),
		testserver.Fail(codes.DataLoss, safe),
		testserver.Fail(codes.Unavailable, safe),
		testserver.Fail(codes.Internal, "x", &errdetails.ErrorInfo{Metadata: map[string]string{"a": safe, "b": unsafe, "c": safe}}),
	} {
		for range 10 {
			bubble(t, "", func(t *testing.T) {
				r := newRig(t, lance.RetryConfig{})
				r.server.Script(write, s.Times(2))
				require.Error(t, r.call(t.Context(), write))
				assert.Len(t, r.server.Attempts(), 1)
			})
		}
	}
}

// TestReadsAndWrites: what is a write, by its declaration and by name.
func TestReadsAndWrites(t *testing.T) {
	const service = "grpcretry.test.v1.TestService"
	for _, row := range []struct {
		name   string
		opts   []lance.Option
		method string
		read   bool
	}{
		{"NO_SIDE_EFFECTS", nil, read, true},
		{"IDEMPOTENT", nil, put, true},
		{"nothing is declared", nil, write, false},
		{"named a read", []lance.Option{lance.WithReads(write)}, write, true},
		{"named a write", []lance.Option{lance.WithWrites(read)}, read, false},
		{"its service is reads", []lance.Option{lance.WithReads(service)}, write, true},
		{"its service is writes", []lance.Option{lance.WithWrites(service)}, read, false},
		{"its service is writes, but it is not", []lance.Option{lance.WithWrites(service), lance.WithReads(put)}, put, true},
		{"its service is reads, but it is not", []lance.Option{lance.WithReads(service), lance.WithWrites(write)}, write, false},
	} {
		for _, s := range []testserver.Step{fail(codes.Unavailable), testserver.Cut().Received(1)} {
			bubble(t, fmt.Sprint(row.name, s), func(t *testing.T) {
				r := newRig(t, lance.RetryConfig{}, row.opts...)
				r.server.Script(row.method, s)
				err := r.call(t.Context(), row.method)
				assert.Equal(t, row.read, err == nil, err)
			})
		}
	}
	for text, opt := range map[string]lance.Option{
		`WithMethodPolicy("/` + service + `")`:  lance.WithReads("/" + service),
		`WithMethodPolicy("/` + read + `")`:     lance.WithReads("/" + read),
		"WithReads: no name is given":           lance.WithReads(),
		"WithWrites: no name is given":          lance.WithWrites(),
		`WithMethodPolicy("` + service + `/X")`: lance.WithReads(service + "/X"),
		`WithMethodPolicy("no name")`:           lance.WithWrites("no name"),
		"option 0 is nil":                       nil,
	} {
		_, err := lance.DialOptions(lance.RetryConfig{}, opt)
		require.ErrorContains(t, err, "lance: ")
		require.ErrorContains(t, err, text)
	}
	_, err := lance.DialOptions(lance.RetryConfig{}, lance.WithReads(read), lance.WithWrites(read[1:]))
	require.EqualError(t, err, `lance: WithWrites("`+read[1:]+`"): it is named as the opposite, too`)
}
