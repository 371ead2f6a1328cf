// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

const (
	ordered = "__results_in_order__"
	window  = "__prefetch__"
)

// lasting returns a request for each duration, with ids from 1 on.
func lasting(durations ...string) []*jinapb.DataRequestProto {
	in := make([]*jinapb.DataRequestProto, len(durations))
	for i, d := range durations {
		in[i] = request(strconv.Itoa(i+1), "/slow", d)
	}
	return in
}

// When answers come, by the metadata of the call.
func TestCallOrder(t *testing.T) {
	cases := map[string]struct {
		md        []string
		durations []string
		ids       []string
		at        []time.Duration
	}{
		"as done":          {nil, []string{"3s", "1s", "2s"}, []string{"2", "3", "1"}, []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second}},
		"in order":         {[]string{ordered, "true"}, []string{"3s", "1s", "2s"}, []string{"1", "2", "3"}, []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
		"not true":         {[]string{ordered, "True"}, []string{"3s", "1s", "2s"}, []string{"2", "3", "1"}, []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second}},
		"last order":       {[]string{ordered, "true", ordered, "false"}, []string{"2s", "1s"}, []string{"2", "1"}, []time.Duration{1 * time.Second, 2 * time.Second}},
		"nothing":          {nil, nil, nil, nil},
		"nothing in order": {[]string{ordered, "true"}, nil, nil, nil},
		"window 1":         {[]string{window, "1"}, []string{"3s", "1s", "2s"}, []string{"1", "2", "3"}, []time.Duration{3 * time.Second, 4 * time.Second, 6 * time.Second}},
		"window 2":         {[]string{window, "2"}, []string{"3s", "1s", "1s"}, []string{"2", "3", "1"}, []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second}},
		"head of line":     {[]string{window, "2", ordered, "true"}, []string{"3s", "1s", "1s"}, []string{"1", "2", "3"}, []time.Duration{3 * time.Second, 3 * time.Second, 4 * time.Second}},
		"bad window":       {[]string{window, "1", window, "two"}, []string{"2s", "1s"}, []string{"1", "2"}, []time.Duration{2 * time.Second, 3 * time.Second}},
		"last window":      {[]string{window, "1", window, "0"}, []string{"2s", "1s"}, []string{"2", "1"}, []time.Duration{1 * time.Second, 2 * time.Second}},
		"only bad":         {[]string{window, "x"}, []string{"2s", "1s"}, []string{"2", "1"}, []time.Duration{1 * time.Second, 2 * time.Second}},
		"no window":        {[]string{window, "0"}, []string{"2s", "1s"}, []string{"2", "1"}, []time.Duration{1 * time.Second, 2 * time.Second}},
		"negative":         {[]string{window, "-3"}, []string{"2s", "1s"}, []string{"2", "1"}, []time.Duration{1 * time.Second, 2 * time.Second}},
		"huge":             {[]string{window, "9223372036854775807"}, []string{"2s", "1s"}, []string{"2", "1"}, []time.Duration{1 * time.Second, 2 * time.Second}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				g.Handle("a", "/slow", slow)
				o := call(t.Context(), g.Dial(), c.md, lasting(c.durations...)...)
				require.NoError(t, o.err)
				assert.Equal(t, c.ids, ids(o.answers))
				assert.Equal(t, c.at, o.at)
				assert.Empty(t, o.trailer.Get("is-error"))
			})
		})
	}
}

// The window's size is 1000 unless the client says otherwise; one request more is read.
func TestCallWindow(t *testing.T) {
	for value, want := range map[string]int{"": 1000, "2": 2, "0": 1100} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				var running, most atomic.Int64
				g.Handle("a", "/slow", func(ctx context.Context, docs []jina.Document, p map[string]any) ([]jina.Document, error) {
					raise(&most, running.Add(1))
					defer running.Add(-1)
					return slow(ctx, docs, p)
				})
				var md []string
				if value != "" {
					md = []string{window, value}
				}
				in := make([]*jinapb.DataRequestProto, 1100)
				for i := range in {
					in[i] = request(strconv.Itoa(i), "/slow", "1s")
				}
				done := make(chan outcome, 1)
				go func() { done <- call(t.Context(), g.Dial(), md, in...) }()
				synctest.Wait()
				assert.Equal(t, int64(want), running.Load())
				assert.Len(t, g.Attempts()[0].Requests, min(want+1, len(in)))
				o := <-done
				require.NoError(t, o.err)
				assert.Len(t, o.answers, len(in))
				assert.Equal(t, int64(want), most.Load())
				assert.Equal(t, time.Duration((len(in)+want-1)/want)*time.Second, o.took)
			})
		})
	}
}

// raise makes the most at least n.
func raise(most *atomic.Int64, n int64) {
	for before := most.Load(); before < n; before = most.Load() {
		if most.CompareAndSwap(before, n) {
			return
		}
	}
}

// A client that does not read holds up the requests that it sends.
func TestCallUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/big", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			return []jina.Document{make(jina.Document, 1<<20)}, nil
		})
		ctx := metadata.AppendToOutgoingContext(t.Context(), window, "2")
		stream, err := jinapb.NewJinaRPCClient(g.Dial()).Call(ctx)
		require.NoError(t, err)
		for i := range 10 {
			require.NoError(t, stream.Send(request(strconv.Itoa(i), "/big")))
		}
		require.NoError(t, stream.CloseSend())
		synctest.Wait()
		assert.Less(t, len(g.Attempts()[0].Requests), 10)
		o := drain(stream, time.Now())
		require.NoError(t, o.err)
		assert.Len(t, o.answers, 10)
	})
}

// Answers come while the stream is open, and errors do not end it.
func TestCallGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/bad", failing(errors.New("bad")))
		g.Handle("a", "/good", suffixed("1"))
		stream, err := jinapb.NewJinaRPCClient(g.Dial()).Call(t.Context())
		require.NoError(t, err)
		for i, endpoint := range []string{"/bad", "/good", "/bad"} {
			require.NoError(t, stream.Send(request(strconv.Itoa(i), endpoint, "d")))
			answer, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(i), answer.GetHeader().GetRequestId())
			assert.Equal(t, endpoint == "/bad", answer.GetHeader().GetStatus().GetCode() == jinapb.StatusProto_ERROR)
		}
		require.NoError(t, stream.CloseSend())
		o := drain(stream, time.Now())
		require.NoError(t, o.err)
		assert.Empty(t, o.answers)
		assert.Equal(t, []string{"true"}, o.trailer.Get("is-error"))
	})
}

// One response more, and then the status, at the turn of the request.
func TestCallUnreachable(t *testing.T) {
	for _, c := range []struct {
		md   []string
		ids  []string
		took time.Duration
	}{
		{nil, []string{"3", "2"}, 2 * time.Second},
		{[]string{ordered, "true"}, []string{"1", "2"}, 3 * time.Second},
	} {
		t.Run(fmt.Sprint(c.md), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				g.Handle("a", "/slow", slow)
				g.Handle("a", "/lost", func(ctx context.Context, _ []jina.Document, _ map[string]any) ([]jina.Document, error) {
					time.Sleep(2 * time.Second)
					if err := grpc.SetTrailer(ctx, metadata.Pairs("tried", "a:1")); err != nil {
						return nil, err
					}
					return nil, jinatest.Unreachable(codes.Unavailable, "a is down")
				})
				in := lasting("3s", "", "1s", "1h")
				in[1] = request("2", "/lost", "d")
				o := call(t.Context(), g.Dial(), c.md, in...)
				assert.Equal(t, codes.Unavailable, status.Code(o.err))
				assert.Equal(t, "a is down", status.Convert(o.err).Message())
				assert.Equal(t, []string{"a:1"}, o.trailer.Get("tried"))
				assert.Equal(t, c.took, o.took)
				require.Equal(t, c.ids, ids(o.answers))
				want := &jinapb.DataRequestProto{Header: &jinapb.HeaderProto{RequestId: "2"}}
				assert.True(t, proto.Equal(want, o.answers[1]), "got %v", o.answers[1])
				assert.Equal(t, c.took, o.at[1])
			})
		})
	}
}

// The call does not wait for handlers that do not heed its end; Close does.
func TestCallLeavesHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := jinatest.New(t)
		var ended time.Duration
		g.Handle("a", "/deaf", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			time.Sleep(10 * time.Second)
			ended = time.Since(start)
			return nil, nil
		})
		g.Handle("a", "/lost", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			time.Sleep(time.Second)
			return nil, jinatest.Unreachable(codes.Unavailable, "")
		})
		o := call(t.Context(), g.Dial(), nil, request("1", "/deaf"), request("2", "/lost"))
		assert.Equal(t, codes.Unavailable, status.Code(o.err))
		assert.Equal(t, time.Second, o.took)
		g.Close()
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, 10*time.Second, ended)
	})
}

// The contexts of all handlers end with the client's, and nothing is left.
func TestCallCancelled(t *testing.T) {
	for _, md := range [][]string{nil, {ordered, "true"}, {window, "1"}} {
		t.Run(fmt.Sprint(md), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				var ended atomic.Int64
				g.Handle("a", "/slow", func(ctx context.Context, docs []jina.Document, p map[string]any) ([]jina.Document, error) {
					defer ended.Add(1)
					return slow(ctx, docs, p)
				})
				ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), md...))
				defer cancel()
				stream, err := jinapb.NewJinaRPCClient(g.Dial()).Call(ctx)
				require.NoError(t, err)
				for _, in := range lasting("1h", "1h", "1h") {
					require.NoError(t, stream.Send(in))
				}
				time.Sleep(time.Second)
				cancel()
				start := time.Now()
				a := g.Await(t, testserver.Ended(1))[0]
				assert.Equal(t, codes.Canceled, a.Status.Code())
				assert.True(t, a.Cancelled)
				synctest.Wait()
				if md != nil && md[0] == window {
					assert.EqualValues(t, 1, ended.Load())
				} else {
					assert.EqualValues(t, 3, ended.Load())
				}
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// A request that cannot be received ends the call with the reason.
func TestCallTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t, testserver.ServerOptions(grpc.MaxRecvMsgSize(100)))
		g.Handle("a", "/slow", slow)
		o := call(t.Context(), g.Dial(), nil, request("1", "/slow", "1h"), request("2", "/slow", string(make([]byte, 200))))
		assert.Equal(t, codes.ResourceExhausted, status.Code(o.err))
		assert.Zero(t, o.took)
	})
}
