// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// The tests of this file are of streams in bad company: hooks, and interceptors below.

// TestStreamCommitHookPanics holds that a hook which panics, or ends its goroutine, ends
// no more than that.
func TestStreamCommitHookPanics(t *testing.T) {
	for name, end := range map[string]func(){
		"panics":  func() { panic("hook") }, //nolint:forbidigo // what hooks should not do
		"Goexits": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: -1}),
					grpcretry.WithObserver(grpcretry.Observer{Commit: func(context.Context, string, error) { end() }}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream, err := r.Upload(ctx)
				require.NoError(t, err)
				var sender sync.WaitGroup
				sender.Go(func() {
					defer func() { _ = recover() }()
					_ = stream.Send(&testv1.Request{})
				})
				sender.Wait()
			})
		})
	}
}

// ahead is a stream of an interceptor below that reads ahead.
// ahead reads responses before it is asked for them.
type ahead struct {
	grpc.ClientStream

	queue chan *testv1.Response
	end   error
	ctx   context.Context // nil if the end of the context is not looked at
}

func (a *ahead) read() {
	for {
		m := &testv1.Response{}
		if err := a.ClientStream.RecvMsg(m); err != nil {
			a.end = err
			close(a.queue)
			return
		}
		a.queue <- m
	}
}

func (a *ahead) RecvMsg(m any) error {
	if a.ctx != nil && a.ctx.Err() != nil {
		return a.ctx.Err()
	}
	got, ok := <-a.queue
	if !ok {
		return a.end
	}
	proto.Merge(m.(proto.Message), got)
	return nil
}

// An interceptor below that reads ahead: gRPC reports a good end before the caller
// has received. A stream that is committed by Context (or by its buffer) then ends
// with io.EOF and without its responses; one that is not, is cancelled at its first
// response.
func TestStreamBelowReadAhead(t *testing.T) {
	for _, committed := range []bool{true, false} {
		for _, looks := range []bool{true, false} {
			t.Run(map[bool]string{true: "committed", false: "not"}[committed]+map[bool]string{true: ", looks at ctx", false: ""}[looks], func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, anyCall)
					wrap := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
						s, err := streamer(ctx, desc, cc, method, opts...)
						if err != nil {
							return nil, err
						}
						a := &ahead{ClientStream: s, queue: make(chan *testv1.Response, 100)}
						if looks {
							a.ctx = ctx
						}
						go a.read()
						return a, nil
					})
					client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), wrap)...))
					var finished []error
					stream, err := client.Exchange(t.Context(), grpc.OnFinish(func(err error) { finished = append(finished, err) }))
					require.NoError(t, err)
					if committed {
						stream.Context()
					}
					for range 3 {
						require.NoError(t, stream.Send(&testv1.Request{}))
					}
					require.NoError(t, stream.CloseSend())
					time.Sleep(time.Second)
					synctest.Wait()
					n := 0
					for {
						if _, err = stream.Recv(); err != nil {
							break
						}
						n++
					}
					assert.Equal(t, io.EOF, err)
					assert.Equal(t, 3, n, "responses")
					assert.Equal(t, []error{nil}, finished)
				})
			})
		}
	}
}

// inproc is an upload of an in-process transport, which has neither header nor
// trailer, but honours OnFinish.
// inproc is a stream without gRPC, that has neither header nor trailer.
type inproc struct {
	ctx      context.Context
	onFinish []func(error)
	before   func()
}

func (*inproc) Header() (metadata.MD, error) { return nil, nil } //nolint:nilnil // as gRPC does at an end without header
func (*inproc) Trailer() metadata.MD         { return nil }
func (*inproc) CloseSend() error             { return nil }
func (i *inproc) Context() context.Context   { return i.ctx }
func (*inproc) SendMsg(any) error            { return nil }
func (i *inproc) RecvMsg(any) error {
	for _, f := range i.onFinish {
		f(nil)
	}
	i.before()
	return nil
}

// The one response is there, gRPC's report is hollow, and the context ends: the call
// is ended twice. OnFinish is called with nil and with an error.
func TestStreamInProcess(t *testing.T) {
	twice, disagree := 0, 0
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways}))
		require.NoError(t, err)
		var finished []error
		stream, err := retrier.StreamClientInterceptor()(ctx, &grpc.StreamDesc{ClientStreams: true}, nil, upload,
			func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				i := &inproc{ctx: ctx, before: cancel}
				for _, o := range opts {
					if f, ok := o.(grpc.OnFinishCallOption); ok {
						i.onFinish = append(i.onFinish, f.OnFinish)
					}
				}
				return i, nil
			}, grpc.OnFinish(func(err error) { finished = append(finished, err) }))
		require.NoError(t, err)
		err = stream.RecvMsg(&testv1.Response{})
		if len(finished) != 1 {
			twice++
		} else if any(finished[0]) != any(err) {
			disagree++
		}
	}
	require.Zero(t, twice+disagree, "twice %d, disagree %d", twice, disagree)
}

// closeCounter counts how often it is closed.
type closeCounter struct {
	*os.File

	closed *int
}

func (c closeCounter) Close() error { *c.closed++; return c.File.Close() }

// Below an interceptor that drops the options, a stream that is sent on and then
// cancelled keeps its memory and its file for ever: Total is used up by and by.
func TestStreamCancelledBelowDroppedOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: 100, Disk: 1 << 20}))
		closed := 0
		grpcretry.WithFile(r.retrier, func() (grpcretry.File, error) {
			f, err := os.CreateTemp(t.TempDir(), "")
			return closeCounter{f, &closed}, err
		})
		drop := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(ctx, desc, cc, method)
		})
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), drop)...))
		ctx, cancel := context.WithCancel(t.Context())
		finished := 0
		stream, err := client.Exchange(ctx, grpc.OnFinish(func(error) { finished++ }))
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, stream.Send(&testv1.Request{}))
		}
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		assert.Equal(t, 1, closed)
		assert.Equal(t, 1, finished)
	})
}

// signed is a protobuf message by embedding; a codec knows what else is in it.
type signed struct {
	*testv1.Request

	signature string
}

type signingCodec struct{}

func (signingCodec) Name() string { return "proto" }
func (signingCodec) Marshal(m any) ([]byte, error) {
	if s, ok := m.(*signed); ok {
		r := proto.CloneOf(s.Request)
		r.Key += " signed by " + s.signature
		return proto.Marshal(r)
	}
	return proto.Marshal(m.(proto.Message))
}

func (signingCodec) Unmarshal(b []byte, m any) error { return proto.Unmarshal(b, m.(proto.Message)) }

// What embeds a message is kept as the message alone: the replay sends another thing.
func TestStreamOfMoreThanMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(exchange, busy.Received(1))
		conn := r.server.Dial(append(r.retrier.DialOptions(), grpc.WithDefaultCallOptions(grpc.ForceCodec(signingCodec{})))...)
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchange)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(&signed{&testv1.Request{Key: "a"}, "me"}))
		require.NoError(t, stream.CloseSend())
		for err == nil {
			err = stream.RecvMsg(&testv1.Response{})
		}
		assert.Equal(t, []string{"a signed by me"}, received(r.server.Attempts()), "there is no copy that says it all")
	})
}
