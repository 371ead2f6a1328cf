// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// An outer interceptor's stream that changes messages and has one field and, being
// embedded in / having a Send, passes for generated code.
type loudStub struct{ shouting }

func (s loudStub) Send(m *testv1.Request) error { return s.SendMsg(m) }

type loudGeneric struct {
	*grpc.GenericClientStream[testv1.Request, testv1.Response]
}

func (s loudGeneric) SendMsg(m any) error { return shouting{s.GenericClientStream}.SendMsg(m) }

type loudOne struct{ grpc.ClientStream }

func (s loudOne) SendMsg(m any) error          { return shouting(s).SendMsg(m) }
func (s loudOne) Send(m *testv1.Request) error { return s.SendMsg(m) }

func TestSendAllThroughWrappers(t *testing.T) {
	for name, wrap := range map[string]func(grpc.ClientStream) grpc.ClientStream{
		"embeds a wrapper": func(s grpc.ClientStream) grpc.ClientStream { return loudStub{shouting{s}} },
		"embeds generic": func(s grpc.ClientStream) grpc.ClientStream {
			return loudGeneric{&grpc.GenericClientStream[testv1.Request, testv1.Response]{ClientStream: s}}
		},
		"overrides SendMsg": func(s grpc.ClientStream) grpc.ClientStream { return loudOne{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, anyCall)
				outer := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					stream, err := streamer(ctx, desc, cc, method, opts...)
					return wrap(stream), err
				})
				client := testv1.NewTestServiceClient(r.server.Dial(append([]grpc.DialOption{outer}, r.retrier.DialOptions()...)...))
				r.server.Script(upload, busy.Received(3))
				_, sendErr, err := sendSources(t.Context(), client, runs("abc"))
				require.NoError(t, errors.Join(sendErr, err))
				assert.Equal(t, []string{"ABC", "ABC"}, received(r.server.Attempts()))
			})
		})
	}
}

type (
	nilBase  struct{ grpc.ClientStream }
	nilEmbed struct {
		*nilBase // nil; all methods are the wrapper's own

		real grpc.ClientStream
	}
)

func (n nilEmbed) SendMsg(m any) error          { return n.real.SendMsg(m) }
func (n nilEmbed) Send(m *testv1.Request) error { return n.real.SendMsg(m) }

func TestSendAllThroughNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		assert.NotPanics(t, func() { _ = grpcretry.SendAll(nilEmbed{real: stream}, runs("a")) })
		_, _ = stream.CloseAndRecv()
	})
}

// A wrapper that does not embed under the name ClientStream: the source's error does
// not end the call, and the server takes a part for the whole.
type delegating struct {
	grpc.ClientStreamingClient[testv1.Request, testv1.Response]
}

func TestSendAllFailsThroughWrappers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		w := delegating{stream}
		require.ErrorIs(t, grpcretry.SendAll(w, once("ab!")), errBroken)
		_, err = w.CloseAndRecv()
		require.ErrorIs(t, err, errBroken, "the server took a part for all")
	})
}

// The source fails while attempt 2 is being made: the real failure of attempt 1 is
// not in the chain; the "last failure" is the cancellation that abort made itself.
func TestSendAllSourceFailsWhileAnAttemptIsMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		slowly := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if _, later := grpcretry.AttemptFromContext(ctx); later {
				<-ctx.Done()
			}
			return streamer(ctx, desc, cc, method, opts...)
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), slowly)...))
		r.server.Script(exchange, busy.Received(1))
		stream, err := client.Exchange(t.Context())
		require.NoError(t, err)
		var wg sync.WaitGroup
		var final error
		go1 := make(chan struct{})
		wg.Go(func() {
			_ = grpcretry.SendAll(stream, grpcretry.Once(func(yield func(*testv1.Request, error) bool) {
				if yield(&testv1.Request{}, nil) {
					<-go1
					yield(nil, errBroken)
				}
			}))
		})
		wg.Go(func() { _, final = stream.Recv() })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		close(go1)
		wg.Wait()
		assert.ErrorIs(t, final, errBroken)
		assert.ErrorContains(t, final, "last failure: rpc error: code = Unavailable desc = busy")
	})
}

// The replay of attempt 2 is superseded while it is inside of the source, whose
// goroutine ends (Goexit) later: it takes attempt 3, which is well, with it. OnFinish
// is never called; after the end Recv contradicts what it said.
func TestSendAllGoexitOfAnEarlierRun(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "while attempt 3 runs", true: "after the end"}[late], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, anyCall)
				r.server.Script(exchange, busy.Received(2), busy.Delay(time.Second))
				var run atomic.Int32
				release := make(chan struct{})
				var finished []error
				stream, err := r.Exchange(t.Context(), grpc.OnFinish(func(err error) { finished = append(finished, err) }))
				require.NoError(t, err)
				require.NoError(t, grpcretry.SendAll(stream, grpcretry.Replayable(func() requestSeq {
					n := run.Add(1)
					return func(yield func(*testv1.Request, error) bool) {
						if n == 2 {
							<-release
							runtime.Goexit()
						}
						keyed("ab")(yield)
					}
				})))
				_, err = stream.Recv()
				require.NoError(t, err, "attempt 3 answered")
				if late {
					require.NoError(t, stream.CloseSend())
					for err == nil {
						_, err = stream.Recv()
					}
					require.ErrorContains(t, err, "EOF")
					assert.Equal(t, []error{nil}, finished)
				}
				close(release)
				synctest.Wait()
				if !late {
					require.NoError(t, stream.CloseSend())
				}
				for err = nil; err == nil; {
					_, err = stream.Recv()
				}
				assert.EqualError(t, err, "EOF")
				assert.Equal(t, []error{nil}, finished)
			})
		})
	}
}

// TestSendAllStretchesAreBounded holds that sources of next to nothing cost something.
func TestSendAllStretchesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1000, Fail: true}))
		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		for n := 0; err == nil; n++ {
			require.Less(t, n, 30)
			err = grpcretry.SendAll(stream, runs("a"))
		}
		assert.ErrorIs(t, err, grpcretry.ErrBufferFull)
	})
}
