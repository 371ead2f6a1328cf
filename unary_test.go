// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func TestAttemptContext(t *testing.T) {
	type idKey struct{}
	bubble(t, func(t *testing.T) {
		var seen []string
		inner := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			number, ok := grpcretry.AttemptFromContext(ctx)
			seen = append(seen, fmt.Sprintf("%v %v %v", ctx.Value(idKey{}), number, ok))
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithAttemptContext(func(ctx context.Context, attempt int) context.Context {
			id := fmt.Sprintf("id-%d", attempt)
			return metadata.AppendToOutgoingContext(context.WithValue(ctx, idKey{}, id), "request-id", id)
		}))
		r.server.Script(read, busy.Times(2))
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), grpc.WithChainUnaryInterceptor(inner))...))
		ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "a", "grpc-previous-rpc-attempts", "41")
		_, err := client.Read(ctx, &testv1.Request{})
		require.NoError(t, err)
		assert.Equal(t, []string{"id-1 0 false", "id-2 2 true", "id-3 3 true"}, seen)
		for i, a := range r.server.Attempts() {
			assert.Equal(t, []string{"a"}, a.Metadata["tenant"])
			assert.Equal(t, []string{fmt.Sprintf("id-%d", i+1)}, a.Metadata["request-id"])
			want := []string{"41"} // the first attempt is the caller's own affair
			if i > 0 {
				want = []string{fmt.Sprint(i)}
			}
			assert.Equal(t, want, a.Metadata["grpc-previous-rpc-attempts"])
		}
	})
}

func TestAttemptContextNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithAttemptContext(func(ctx context.Context, attempt int) context.Context {
			if attempt == 2 {
				return nil
			}
			return ctx
		}))
		r.server.Script(read, busy.Forever())
		_, err := r.call(t.Context(), read)
		assert.Equal(t, codes.Internal, status.Code(err))
		require.ErrorIs(t, err, grpcretry.ErrLocal)
		assert.ErrorContains(t, err, "WithAttemptContext's function returned nil for attempt 2")
		assert.Len(t, r.server.Attempts(), 1)
	})
}

func TestManyAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 300})
		r.server.Script(read, busy.Forever())
		var trailer metadata.MD
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer))
		var retryError *grpcretry.Error
		require.ErrorAs(t, err, &retryError)
		assert.ErrorContains(t, err, "(300 attempts, ")
		require.Len(t, retryError.Attempts, 100, "the history is bounded")
		assert.Equal(t, 201, retryError.Attempts[0].Number)
		assert.Equal(t, 300, retryError.Attempts[99].Number)
		n, _ := grpcretry.AttemptsFromMD(trailer)
		assert.Equal(t, 300, n)
		assert.Equal(t, 299, r.server.Attempts()[299].PreviousAttempts)
	})
}

func TestCheck(t *testing.T) {
	garbled := func(reply any) error {
		response, _ := reply.(*testv1.Response)
		if response.GetCount() == 13 {
			return status.Error(codes.DataLoss, "garbled")
		}
		if response.GetCount() == 14 {
			return errors.New("unlucky")
		}
		return nil
	}
	answer := func(count int64) testserver.Step {
		return testserver.Do(func(stream grpc.ServerStream) error {
			return errors.Join(stream.RecvMsg(&testv1.Request{}), stream.SendMsg(&testv1.Response{Key: "partial", Count: count}))
		})
	}
	t.Run("is retried like a listed code", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Check: garbled, Codes: []codes.Code{}})
			r.server.Script(read, answer(13), answer(14), answer(15))
			response, err := r.call(t.Context(), read)
			require.NoError(t, err)
			assert.EqualValues(t, 15, response.GetCount())
			assert.Equal(t, []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}, r.starts())
			assert.True(t, r.journal.attempts[0].Failure.Listed)
			assert.Equal(t, grpcretry.Answered, r.journal.attempts[0].Failure.Kind)
		})
	})
	t.Run("resets the reply and keeps the status", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Check: garbled})
			r.server.Script(read, answer(14).Times(2), answer(13))
			var reply testv1.Response
			conn := r.server.Dial(r.retrier.DialOptions()...)
			err := conn.Invoke(t.Context(), read, &testv1.Request{}, &reply)
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			assert.Equal(t, codes.DataLoss, status.Code(err))
			assert.Equal(t, codes.Unknown, r.journal.attempts[0].Failure.Status.Code())
			assert.Empty(t, reply.GetKey())
		})
	})
	t.Run("does not repeat what may not be repeated", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{Check: garbled})
			r.server.Script(write, answer(13))
			_, err := r.call(t.Context(), write)
			require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
			assert.Equal(t, codes.DataLoss, status.Code(err))
		})
	})
}

func TestRetryable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []grpcretry.Failure
		r := newRig(t, grpcretry.Policy{MaxAttempts: 5, Retryable: func(f grpcretry.Failure) bool {
			seen = append(seen, f)
			return f.Status.Code() == codes.NotFound
		}})
		r.server.Script(read, testserver.Fail(codes.NotFound, "none").Header("h", "1").Trailer("t", "1"), busy)
		_, err := r.call(t.Context(), read)
		require.ErrorIs(t, err, grpcretry.ErrNotRetryable)
		require.Len(t, seen, 2)
		assert.False(t, seen[0].Listed)
		assert.Equal(t, []string{"1"}, seen[0].Header["h"], "the header is captured for Retryable")
		assert.Equal(t, []string{"1"}, seen[0].Trailer["t"])
		assert.Equal(t, read, seen[0].Method)
		assert.Equal(t, 1, seen[0].Attempt)
		assert.NotNil(t, seen[0].Peer)
		assert.True(t, seen[1].Listed)
		assert.Equal(t, 2, seen[1].Attempt)
	})
}

func TestDisable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Trailer("t", "1").Times(2))
		var trailer metadata.MD
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer), grpcretry.Disable())
		assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy")
		_, reported := grpcretry.AttemptsFromMD(trailer)
		assert.False(t, reported)
		assert.Empty(t, r.journal.done)

		_, err = r.call(t.Context(), read, grpcretry.Disable(), grpcretry.WithCallPolicy(grpcretry.Policy{}))
		require.NoError(t, err, "the last option counts")
		assert.Len(t, r.server.Attempts(), 3)
	})
}

func TestCallOptionsWithoutRetrier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		client := testv1.NewTestServiceClient(testserver.New(t).Dial())
		_, err := client.Read(t.Context(), &testv1.Request{}, grpcretry.Disable(), grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: -1}))
		require.NoError(t, err)
	})
}

func TestCallPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 1})
		r.server.Script(read, busy.Times(3))
		option := grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: 4, Backoff: grpcretry.Backoff{Initial: time.Second, Multiplier: 1}})
		_, err := r.call(t.Context(), read, option)
		require.NoError(t, err)
		_, err = r.call(t.Context(), read, option)
		require.NoError(t, err, "an option may be used again")
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}, r.starts())
	})
}

func TestCallPolicyInvalid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		trailer := metadata.Pairs("t", "stale")
		var finished []error
		_, err := r.call(t.Context(), read, grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { finished = append(finished, err) }),
			grpcretry.WithCallPolicy(grpcretry.Policy{MaxAttempts: -2, Timeout: -time.Second}))
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "WithCallPolicy: MaxAttempts is -2")
		assert.ErrorContains(t, err, "WithCallPolicy: Timeout is -1s")
		assert.Equal(t, []error{err}, finished)
		assert.Equal(t, metadata.MD{"jina-client-attempts": {"0"}}, trailer)
		assert.Empty(t, r.server.Attempts())
		require.Len(t, r.journal.done, 1)
		assert.Equal(t, err, r.journal.done[0].err)
	})
}

func TestStreamsPassThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		stream, err := r.Exchange(t.Context(), grpcretry.Disable(), grpcretry.WithCallPolicy(grpcretry.Policy{}))
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
		response, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, "a", response.GetKey())
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		assert.Equal(t, io.EOF, err)
	})
}

// TestOddInvokers gives the interceptor what other interceptors may: bare errors,
// errors that claim success, no connection, replies that are no messages.
func TestOddInvokers(t *testing.T) {
	t.Parallel()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait))
	require.NoError(t, err)
	for _, row := range []struct {
		name     string
		err      error
		code     codes.Code
		attempts int
	}{
		{"UNAVAILABLE", status.Error(codes.Unavailable, "busy"), codes.Unavailable, 3},
		{"io.EOF", io.EOF, codes.Unknown, 1},
		{"wrapped io.EOF", fmt.Errorf("inner: %w", io.EOF), codes.Unknown, 1},
		{"claims to be OK", okError{}, codes.Unknown, 1},
		{"bare", errors.New("bare"), codes.Unknown, 1},
		{"bare deadline", context.DeadlineExceeded, codes.Unknown, 1},
		{"wrapped status", fmt.Errorf("inner: %w", status.Error(codes.Unavailable, "busy")), codes.Unavailable, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, reply := range []any{nil, (*testv1.Response)(nil), &testv1.Response{}, new(string), "text", 3} {
				made := 0
				err := retrier.UnaryClientInterceptor()(t.Context(), "no/slash/at/all", nil, reply, nil,
					func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
						made++
						return row.err
					})
				assert.Equal(t, row.code, status.Code(err), "%v", err)
				assert.NotErrorIs(t, err, io.EOF)
				assert.Equal(t, row.attempts, made)
			}
		})
	}
}

type okError struct{}

func (okError) Error() string              { return "not ok" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// carrier is a reply that is no message, as codecs of proxies use them.
type carrier struct{ into *testv1.Response }

func TestReplyThatIsNoMessage(t *testing.T) {
	t.Parallel()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait))
	require.NoError(t, err)
	reply := &carrier{into: &testv1.Response{}}
	fails := failing(2)
	err = retrier.UnaryClientInterceptor()(t.Context(), read, nil, reply, nil,
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			if err := fails(ctx, method, req, reply, cc, opts...); err != nil {
				return err
			}
			reply.(*carrier).into.Key = "answer"
			return nil
		})
	require.NoError(t, err)
	assert.Equal(t, "answer", reply.into.GetKey())
}

// TestSlowFunctions holds that the time spent in the policy's and the observer's
// own functions counts: no wait is begun that no longer fits.
func TestSlowFunctions(t *testing.T) {
	const nearly = 950 * time.Millisecond
	slowly := func() { time.Sleep(nearly) }
	for name, row := range map[string]struct {
		policy  grpcretry.Policy
		options []grpcretry.Option
		script  testserver.Step
		code    codes.Code
	}{
		"Check": {policy: grpcretry.Policy{Check: func(any) error {
			slowly()
			return status.Error(codes.DataLoss, "garbled")
		}}, script: testserver.OK(), code: codes.DataLoss},
		"Retryable": {policy: grpcretry.Policy{Retryable: func(grpcretry.Failure) bool {
			slowly()
			return true
		}}, script: busy, code: codes.Unavailable},
		"Delay": {policy: grpcretry.Policy{Backoff: grpcretry.Backoff{Delay: func(int, grpcretry.Failure, float64) time.Duration {
			slowly()
			return 100 * time.Millisecond
		}}}, script: busy, code: codes.Unavailable},
		"Observer.Attempt": {options: []grpcretry.Option{grpcretry.WithObserver(grpcretry.Observer{
			Attempt: func(context.Context, string, grpcretry.Attempt) { slowly() },
		})}, script: busy, code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, row.policy, row.options...)
				r.server.Script(read, row.script.Forever())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := r.call(ctx, read)
				assert.Equal(t, row.code, status.Code(err))
				require.ErrorIs(t, err, grpcretry.ErrDeadline)
				assert.Equal(t, nearly, time.Since(start))
			})
		})
	}
}

// TestPushbackAtTheAttemptsDeadline holds that the server's word wins even if the
// attempt's own time is over.
func TestPushbackAtTheAttemptsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{AttemptTimeout: time.Second})
		for range 20 { // the two timers go off in any order
			r.server.Script(read, testserver.Fail(codes.DeadlineExceeded, "too late").Delay(time.Second).Pushback("-1"))
			before := len(r.server.Attempts())
			_, err := r.call(t.Context(), read)
			if !errors.Is(err, grpcretry.ErrPushback) {
				require.NoError(t, err, "the client's timer was first, and the answer never seen")
			}
			if err != nil {
				assert.Len(t, r.server.Attempts(), before+1)
			}
		}
	})
}

// TestServiceConfigTimeout holds that the timeout of a service config, which gRPC
// applies to each attempt, is no error of this side.
func TestServiceConfigTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), steady,
			grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"timeout":"1s","waitForReady":true}]}`))...))
		r.server.Stop()
		_, err := client.Write(t.Context(), &testv1.Request{})
		require.ErrorIs(t, err, grpcretry.ErrExhausted)
		for _, a := range r.journal.attempts {
			assert.Equal(t, grpcretry.Connect, a.Failure.Kind)
		}
	})
}

func TestCloseDuringAWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Pushback("50000"))
		conn := r.server.Dial(r.retrier.DialOptions()...)
		time.AfterFunc(time.Second, func() { _ = conn.Close() })
		start := time.Now()
		_, err := testv1.NewTestServiceClient(conn).Read(t.Context(), &testv1.Request{})
		assert.Equal(t, codes.Canceled, status.Code(err))
		assert.Equal(t, time.Second, time.Since(start), "no wait can help a closed connection")
		assert.ErrorIs(t, err, grpcretry.ErrLocal)
		assert.ErrorContains(t, err, "last failure: rpc error: code = Unavailable desc = busy")
		var retryError *grpcretry.Error
		require.ErrorAs(t, err, &retryError)
		assert.Equal(t, codes.Unavailable, status.Code(retryError.Unwrap()[1]), "law 4: the last real failure is in the chain")
	})
}

// TestPointersToOptions: gRPC takes a pointer to an option too.
func TestPointersToOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy, testserver.OK().Header("h", "2"))
		var header, trailer metadata.MD
		var from peer.Peer
		finished := 0
		_, err := r.call(t.Context(), read, &grpc.HeaderCallOption{HeaderAddr: &header}, &grpc.TrailerCallOption{TrailerAddr: &trailer},
			&grpc.PeerCallOption{PeerAddr: &from}, &grpc.OnFinishCallOption{OnFinish: func(error) { finished++ }})
		require.NoError(t, err)
		assert.Equal(t, []string{"2"}, header["h"])
		assert.Equal(t, []string{"2"}, trailer["jina-client-attempts"])
		assert.NotNil(t, from.Addr)
		assert.Equal(t, 1, finished)
	})
}

// TestRetrierNotMadeByNew: nil and zero Retriers fail calls, and do not panic.
func TestRetrierNotMadeByNew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, retrier := range []*grpcretry.Retrier{nil, {}} {
			client := testv1.NewTestServiceClient(testserver.New(t).Dial(retrier.DialOptions()...))
			trailer, finished := metadata.Pairs("t", "stale"), 0
			_, err := client.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer), grpc.OnFinish(func(error) { finished++ }))
			assert.EqualError(t, err, "rpc error: code = Internal desc = grpcretry: the Retrier was not made by New")
			assert.Empty(t, trailer["t"])
			assert.Equal(t, 1, finished)
			_, err = client.Exchange(t.Context())
			assert.Equal(t, codes.Internal, status.Code(err))
			assert.Error(t, retrier.Update())
			assert.Equal(t, 3, retrier.Policy(read).MaxAttempts)
		}
	})
}
