// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

const (
	read  = testv1.TestService_Read_FullMethodName  // NO_SIDE_EFFECTS
	put   = testv1.TestService_Put_FullMethodName   // IDEMPOTENT
	write = testv1.TestService_Write_FullMethodName // no idempotency_level
)

// middle is the random number that leaves a wait as it is.
const middle = 0.5

// rig is a client of a scripted server, with a journal of what its observer was told.
type rig struct {
	testv1.TestServiceClient

	server  *testserver.Server
	retrier *grpcretry.Retrier
	journal *journal
}

// journal is what an observer was told. The hooks run on the goroutine of the call.
type journal struct {
	attempts []grpcretry.Attempt
	done     []doneCall
}

type doneCall struct {
	method   string
	attempts []grpcretry.Attempt
	err      error
}

func (j *journal) observer() grpcretry.Observer {
	return grpcretry.Observer{
		Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) {
			j.attempts = append(j.attempts, a)
		},
		Done: func(_ context.Context, method string, attempts []grpcretry.Attempt, err error) {
			j.done = append(j.done, doneCall{method, attempts, err})
		},
	}
}

// newRig sets up a server and a client with the policy and no jitter.
func newRig(t *testing.T, p grpcretry.Policy, opts ...grpcretry.Option) *rig {
	t.Helper()
	r := &rig{server: testserver.New(t), journal: &journal{}}
	all := append([]grpcretry.Option{grpcretry.WithPolicy(p), grpcretry.WithObserver(r.journal.observer())}, opts...)
	retrier, err := grpcretry.New(all...)
	require.NoError(t, err)
	r.retrier = grpcretry.WithRandom(retrier, middle)
	r.TestServiceClient = testv1.NewTestServiceClient(r.server.Dial(r.retrier.DialOptions()...))
	return r
}

// starts returns when the attempts reached the server, since the first one.
func (r *rig) starts() []time.Duration {
	var starts []time.Duration
	attempts := r.server.Attempts()
	for _, a := range attempts {
		starts = append(starts, a.Start.Sub(attempts[0].Start))
	}
	return starts
}

// call makes one unary call of the method and returns what the caller sees.
func (r *rig) call(ctx context.Context, method string, opts ...grpc.CallOption) (*testv1.Response, error) {
	request := &testv1.Request{Key: "k", Sequence: 7, Payload: []byte("payload")}
	switch method {
	case read:
		return r.Read(ctx, request, opts...)
	case put:
		return r.Put(ctx, request, opts...)
	default:
		return r.Write(ctx, request, opts...)
	}
}

// assertOneLedger holds law 1 for a call that is over: server, metadata, observer
// and error know the same number of attempts.
func (r *rig) assertOneLedger(t *testing.T, trailer metadata.MD, err error) {
	t.Helper()
	made := len(r.server.Attempts())
	for i, a := range r.server.Attempts() {
		want := i
		if i == 0 {
			want = -1 // the first attempt says nothing
		}
		assert.Equal(t, want, a.PreviousAttempts, "grpc-previous-rpc-attempts of attempt %d", i+1)
	}
	reported, ok := grpcretry.AttemptsFromMD(trailer)
	assert.True(t, ok, "%v", trailer)
	assert.Equal(t, made, reported, "jina-client-attempts")

	if made == 1 && err == nil {
		assert.Empty(t, r.journal.attempts, "a plain success")
		assert.Empty(t, r.journal.done, "a plain success")
		return
	}
	assert.Len(t, r.journal.attempts, made, "Observer.Attempt")
	require.Len(t, r.journal.done, 1, "Observer.Done")
	done := r.journal.done[0]
	assert.Equal(t, err, done.err)
	assert.Len(t, done.attempts, made, "Observer.Done")
	for i, a := range r.server.Attempts() {
		assert.Equal(t, i+1, done.attempts[i].Number)
		assert.True(t, a.Start.Equal(done.attempts[i].Start), "start of attempt %d", i+1)
		assert.Equal(t, r.journal.attempts[i].Wait, done.attempts[i].Wait)
		assert.Equal(t, i == made-1 && err == nil, done.attempts[i].Failure == nil)
	}
	if retryError, ok := errors.AsType[*grpcretry.Error](err); ok {
		assert.Equal(t, done.attempts, retryError.Attempts, "Error.Attempts")
	}
}

// bubble runs a test in virtual time. When it returns, no goroutine is left.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

var (
	busy    = testserver.Fail(codes.Unavailable, "busy")
	slow    = grpcretry.Policy{AttemptTimeout: time.Second}
	anyCall = grpcretry.Policy{Repeat: grpcretry.RepeatAlways}
)

// nativeRetry is a service config that makes gRPC itself retry every method.
const nativeRetry = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.01s",` +
	`"maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

func TestLaw2OneLayerRetries(t *testing.T) {
	t.Run("a service config of gRPC's own retry", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read, busy.Forever())
			options := append(r.retrier.DialOptions(), grpc.WithDefaultServiceConfig(nativeRetry))
			client := testv1.NewTestServiceClient(r.server.Dial(options...))
			_, err := client.Read(t.Context(), &testv1.Request{})
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			assert.Len(t, r.server.Attempts(), 3)
		})
	})
	t.Run("another Retrier on the connection", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read, busy.Forever())
			options := append(r.retrier.DialOptions(), r.retrier.DialOptions()...)
			client := testv1.NewTestServiceClient(r.server.Dial(options...))
			var trailer metadata.MD
			_, err := client.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			r.assertOneLedger(t, trailer, err)
			assert.Len(t, r.server.Attempts(), 3)
		})
	})
}

func TestLaw4TheLastErrorSurvives(t *testing.T) {
	detail := &errdetails.ErrorInfo{Reason: "BUSY", Domain: "test"}
	detailed := testserver.Fail(codes.Unavailable, "busy", detail)
	assertStatus := func(t *testing.T, st *status.Status) {
		t.Helper()
		assert.Equal(t, codes.Unavailable, st.Code())
		assert.Equal(t, "busy", st.Message())
		require.Len(t, st.Details(), 1)
		got, _ := st.Details()[0].(*errdetails.ErrorInfo)
		assert.Equal(t, "BUSY", got.GetReason())
	}
	t.Run("attempts exhausted", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read, busy.Times(2), detailed)
			_, err := r.call(t.Context(), read)
			assertStatus(t, status.Convert(err))
			assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy (3 attempts, 300ms: attempts exhausted)")
		})
	})
	t.Run("the deadline ends the wait", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read, detailed.Forever())
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			_, err := r.call(ctx, read)
			assert.Equal(t, codes.Canceled, status.Code(err))
			require.ErrorIs(t, err, context.Canceled)
			assert.EqualError(t, err, "rpc error: code = Canceled desc = context canceled (1 attempt, 50ms: context canceled; "+
				"last failure: rpc error: code = Unavailable desc = busy)")
			var retryError *grpcretry.Error
			require.ErrorAs(t, err, &retryError)
			assertStatus(t, retryError.Attempts[0].Failure.Status)
			assertStatus(t, status.Convert(retryError.Unwrap()[1]))
		})
	})
	t.Run("the deadline ends an attempt", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read, detailed, testserver.Hang())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.call(ctx, read)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var retryError *grpcretry.Error
			require.ErrorAs(t, err, &retryError)
			require.Len(t, retryError.Attempts, 2)
			assertStatus(t, status.Convert(retryError.Unwrap()[1]))
			assert.Equal(t, 900*time.Millisecond, retryError.Attempts[1].Duration)
		})
	})
	t.Run("an attempt timeout is a failure like others", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, slow)
			r.server.Script(read, busy.Times(2), testserver.Hang())
			_, err := r.call(t.Context(), read)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
		})
	})
	t.Run("an only attempt keeps gRPC's own error", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{MaxAttempts: 1})
			r.server.Script(read, detailed)
			_, err := r.call(t.Context(), read)
			assertStatus(t, status.Convert(err))
			assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy")
		})
	})
}

func TestLaw5NoAttemptOnAFinishedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: -1}})
		ctx, cancel := context.WithCancel(t.Context())
		r.server.Script(read, testserver.Do(func(grpc.ServerStream) error {
			cancel()
			return status.Error(codes.Unavailable, "busy")
		}).Forever())
		_, err := r.call(ctx, read)
		assert.Equal(t, codes.Canceled, status.Code(err))
		assert.Len(t, r.server.Attempts(), 1, "peers' fault 1.4-7: a zero backoff is no reason to ignore a dead context")
	})
}

func TestLaw8CallOptionsActOnce(t *testing.T) {
	t.Run("with the values of the attempt that succeeded", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read,
				busy.Header("h", "1").Trailer("t", "1", "only", "1"),
				testserver.OK().Header("h", "2").Trailer("t", "2", "jina-client-attempts", "99"))
			var header, trailer, again metadata.MD
			var p peer.Peer
			var finished []error
			_, err := r.call(t.Context(), read, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Trailer(&again), grpc.Peer(&p),
				grpc.OnFinish(func(err error) { finished = append(finished, err) }))
			require.NoError(t, err)
			assert.Equal(t, []string{"2"}, header["h"])
			assert.Equal(t, metadata.MD{"t": {"2"}, "jina-client-attempts": {"2"}}, trailer)
			assert.Equal(t, trailer, again)
			again["t"][0] = "changed"
			assert.Equal(t, []string{"2"}, trailer["t"], "each option has a copy of its own")
			assert.NotNil(t, p.Addr)
			assert.Equal(t, []error{nil}, finished)
		})
	})
	t.Run("with the values of the attempt that failed last", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			r.server.Script(read, busy.Trailer("t", "1").Times(2), testserver.Fail(codes.NotFound, "none").Header("h", "3").Trailer("t", "3"))
			var header, trailer metadata.MD
			var finished []error
			_, err := r.call(t.Context(), read, grpc.Header(&header), grpc.Trailer(&trailer),
				grpc.OnFinish(func(err error) { finished = append(finished, err) }))
			assert.Equal(t, codes.NotFound, status.Code(err))
			assert.Equal(t, []string{"3"}, header["h"])
			assert.Equal(t, metadata.MD{"t": {"3"}, "jina-client-attempts": {"3"}}, trailer)
			assert.Equal(t, []error{err}, finished)
			trailer["t"][0] = "changed"
			var retryError *grpcretry.Error
			require.ErrorAs(t, err, &retryError)
			assert.Equal(t, []string{"3"}, retryError.Attempts[2].Failure.Trailer["t"], "the history is not the caller's")
		})
	})
	t.Run("with nothing stale", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var server *testserver.Server
			r := newRig(t, grpcretry.Policy{}, grpcretry.WithObserver(grpcretry.Observer{
				Attempt: func(context.Context, string, grpcretry.Attempt) { server.Stop() },
			}))
			server = r.server
			r.server.Script(read, busy.Header("h", "1").Trailer("t", "1")) // the others find nobody
			header, trailer := metadata.Pairs("h", "old"), metadata.Pairs("t", "old")
			p := peer.Peer{Addr: staleAddr{}}
			_, err := r.call(t.Context(), read, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&p))
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.Empty(t, header)
			assert.Equal(t, metadata.MD{"jina-client-attempts": {"3"}}, trailer)
			assert.Nil(t, p.Addr)
		})
	})
	t.Run("and may be nil", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{})
			_, err := r.call(t.Context(), read, grpc.Header(nil), grpc.Trailer(nil), grpc.Peer(nil), grpc.OnFinish(nil))
			require.NoError(t, err)
		})
	})
}

type staleAddr struct{}

func (staleAddr) Network() string { return "stale" }
func (staleAddr) String() string  { return "stale" }

func TestLaw9SupersededAttemptsAreCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var contexts []context.Context
		inner := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			for i, earlier := range contexts {
				assert.Error(t, earlier.Err(), "the context of attempt %d while attempt %d begins", i+1, len(contexts)+1)
			}
			contexts = append(contexts, ctx)
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		r := newRig(t, slow)
		r.server.Script(read, busy, testserver.Hang())
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), grpc.WithChainUnaryInterceptor(inner))...))
		_, err := client.Read(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		require.Len(t, contexts, 3)
		assert.Error(t, contexts[2].Err())
		attempts := r.server.Await(t, testserver.Ended(3))
		assert.True(t, attempts[1].Cancelled)
	})
}
