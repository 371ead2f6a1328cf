// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// Which executors handle a request, and in which order.
func TestFlow(t *testing.T) {
	cases := map[string]struct {
		endpoint, target string
		docs             []string
		stations         []string
	}{
		"all":              {"/index", "", []string{"d12", "e12"}, []string{"gateway", "first", "second", "third"}},
		"one has it":       {"/only", "", []string{"do", "eo"}, []string{"gateway", "first", "second", "third"}},
		"default":          {"/other", "", []string{"d*", "e*"}, []string{"gateway", "first", "second", "third"}},
		"no endpoint":      {"", "", []string{"d*", "e*"}, []string{"gateway", "first", "second", "third"}},
		"default by name":  {"/default", "third", []string{"d*", "e*"}, []string{"gateway", "third"}},
		"target":           {"/index", "second", []string{"d2", "e2"}, []string{"gateway", "second"}},
		"beginning":        {"/index", "fi|sec", []string{"d12", "e12"}, []string{"gateway", "first", "second"}},
		"not the middle":   {"/index", "irst|econd", []string{"d", "e"}, []string{"gateway"}},
		"expression":       {"/index", "(?i)SEC.*D$", []string{"d2", "e2"}, []string{"gateway", "second"}},
		"quoted":           {"/index", `\Qsecond`, []string{"d2", "e2"}, []string{"gateway", "second"}},
		"passed unhandled": {"/only", "second", []string{"d", "e"}, []string{"gateway", "second"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				g.Handle("first", "/index", suffixed("wrong"))
				g.Handle("second", "/index", suffixed("2"))
				g.Handle("third", "", suffixed("*"))
				g.Handle("third", "/index", suffixed(""))
				g.Handle("third", "/only", suffixed("o"))
				g.Handle("first", "/index", suffixed("1"))
				// What one request aims at is nothing to the next.
				aimed := request("r", "/nobody")
				aimed.Header.TargetExecutor = new("second")
				cc := g.Dial()
				require.NoError(t, single(t.Context(), cc, aimed).err)
				in := request("r", c.endpoint, "d", "e")
				if c.target != "" {
					in.Header.TargetExecutor = &c.target
				}
				o := single(t.Context(), cc, in)
				require.NoError(t, o.err)
				assert.Equal(t, c.docs, texts(t, o.answers[0]))
				assert.Equal(t, c.stations, stations(o.answers[0]))
				assert.Empty(t, o.trailer.Get("is-error"))
			})
		})
	}
}

// The answer has everything that the request had, and what became of it.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/e", slow)
		g.Handle("b", "/e", slow)
		in := request("r", "/e", "1s")
		in.Header.TargetExecutor, in.Header.Timeout = new("a|b"), new(uint32(7))
		in.Parameters.Fields["top"] = structpb.NewNumberValue(3)
		in.Routes = []*jinapb.RouteProto{{Executor: "client"}}
		start := time.Now()
		o := single(t.Context(), g.Dial(), in)
		require.NoError(t, o.err)
		assert.Equal(t, 2*time.Second, o.took)
		out := o.answers[0]
		want := proto.CloneOf(in)
		want.Header.Status = &jinapb.StatusProto{}
		want.Routes = out.GetRoutes()
		assert.True(t, proto.Equal(want, out), "got %v", out)

		var spans []string
		for _, route := range out.GetRoutes()[1:] {
			spans = append(spans, fmt.Sprintf("%s %v %v %v", route.GetExecutor(), route.GetStartTime().AsTime().Sub(start),
				route.GetEndTime().AsTime().Sub(start), route.GetStatus().GetCode()))
		}
		assert.Equal(t, []string{"gateway 0s 2s SUCCESS", "a 0s 1s SUCCESS", "b 1s 2s SUCCESS"}, spans)
		assert.Equal(t, "client", out.GetRoutes()[0].GetExecutor())
	})
}

// Nil leaves the documents as they are, an empty list takes them away.
func TestDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		var seen []string
		g.Handle("a", "/nil", failing(nil))
		g.Handle("a", "/none", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			return []jina.Document{}, nil
		})
		g.Handle("b", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
			seen = append(seen, fmt.Sprintf("%q", docs))
			return nil, nil
		})
		cc := g.Dial()
		o := single(t.Context(), cc, request("r", "/nil", "d", "", "e"))
		require.NoError(t, o.err)
		assert.Equal(t, []string{"d", "", "e"}, texts(t, o.answers[0]))
		o = single(t.Context(), cc, request("r", "/none", "d"))
		require.NoError(t, o.err)
		assert.Empty(t, texts(t, o.answers[0]))
		assert.Equal(t, []string{`["d" "" "e"]`, `[]`}, seen)

		// A request without anything is one without documents.
		o = single(t.Context(), cc, &jinapb.DataRequestProto{})
		require.NoError(t, o.err)
		assert.Nil(t, o.answers[0].GetData())
		assert.Nil(t, o.answers[0].GetParameters())
		assert.Equal(t, jinapb.StatusProto_SUCCESS, o.answers[0].GetHeader().GetStatus().GetCode())
	})
}

// What a handler appends to the documents that it keeps is not the next one's.
func TestDocumentsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		var kept [][]jina.Document
		for _, name := range []string{"a", "b"} {
			g.Handle(name, "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
				kept = append(kept, append(docs, jina.Document(name)))
				return nil, nil
			})
		}
		require.NoError(t, single(t.Context(), g.Dial(), request("r", "/e", "1", "2", "3")).err)
		assert.Equal(t, `[["1" "2" "3" "a"] ["1" "2" "3" "b"]]`, fmt.Sprintf("%q", kept))
	})
}

func TestParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		var seen []map[string]any
		note := func(_ context.Context, _ []jina.Document, p map[string]any) ([]jina.Document, error) {
			seen = append(seen, map[string]any{"top": p["top"], "__results__": p["__results__"], "more": p["more"]})
			p["more"] = "mine"
			return nil, nil
		}
		g.Handle("a", "", note)
		g.Handle("b", "", note)
		in := request("r", "/e")
		in.Parameters.Fields["top"] = structpb.NewNumberValue(3)
		o := single(t.Context(), g.Dial(), in)
		require.NoError(t, o.err)
		want := map[string]any{"top": 3.0, "__results__": map[string]any{}, "more": nil}
		assert.Equal(t, []map[string]any{want, want}, seen)
		assert.True(t, proto.Equal(in.GetParameters(), o.answers[0].GetParameters()))
	})
}

// Errors of handlers are answers.
func TestExceptions(t *testing.T) {
	boom := &jinatest.Exception{Name: "ValueError", Args: []string{"it's", "b"}, Stacks: []string{"line 1\n", "line 2\n"}}
	cases := map[string]struct {
		handler     jinatest.Handler
		description string
		name        string
		args        []string
		stacks      []string
	}{
		"exception": {failing(boom), `ValueError("it's", 'b')`, "ValueError", boom.Args, boom.Stacks},
		"wrapped":   {failing(fmt.Errorf("wrapped: %w", boom)), `ValueError("it's", 'b')`, "ValueError", boom.Args, boom.Stacks},
		"no class":  {failing(&jinatest.Exception{}), `Exception()`, "Exception", nil, nil},
		"error":     {failing(errors.New("bad")), `RuntimeError('bad')`, "RuntimeError", []string{"bad"}, nil},
		"status":    {failing(status.Error(codes.Aborted, "no")), `RuntimeError('rpc error: code = Aborted desc = no')`, "RuntimeError", []string{"rpc error: code = Aborted desc = no"}, nil},
		"not UTF-8": {failing(errors.New("a\xffb")), "RuntimeError('a\uFFFDb')", "RuntimeError", []string{"a\uFFFDb"}, nil},
		"ended": {func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			(&fakeTB{}).Fatalf("failed")
			return nil, nil
		}, `RuntimeError('the handler ended its goroutine, as FailNow does')`, "RuntimeError", []string{"the handler ended its goroutine, as FailNow does"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				after := 0
				g.Handle("before", "/e", suffixed("1"))
				g.Handle("broken", "/e", c.handler)
				g.Handle("after", "/e", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
					after++
					return nil, nil
				})
				cc := g.Dial()
				for _, o := range []outcome{
					single(t.Context(), cc, request("r", "/e", "d")),
					call(t.Context(), cc, nil, request("r", "/e", "d")),
				} {
					require.NoError(t, o.err)
					out := o.answers[0]
					assert.Equal(t, "r", out.GetHeader().GetRequestId())
					want := &jinapb.StatusProto{
						Code: jinapb.StatusProto_ERROR, Description: c.description,
						Exception: &jinapb.StatusProto_ExceptionProto{Name: c.name, Args: c.args, Stacks: c.stacks, Executor: "broken"},
					}
					assert.True(t, proto.Equal(want, out.GetHeader().GetStatus()), "got %v", out.GetHeader().GetStatus())
					assert.Equal(t, []string{"gateway", "before", "broken"}, stations(out))
					assert.True(t, proto.Equal(want, out.GetRoutes()[0].GetStatus()))
					assert.Equal(t, jinapb.StatusProto_SUCCESS, out.GetRoutes()[1].GetStatus().GetCode())
					assert.True(t, proto.Equal(want, out.GetRoutes()[2].GetStatus()))
					assert.Equal(t, []string{"d1"}, texts(t, out))
					assert.Equal(t, []string{"true"}, o.trailer.Get("is-error"))
				}
				assert.Zero(t, after)
			})
		})
	}
}

func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("text", "/text", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			panic("oh") //nolint:forbidigo // what a handler should not do
		})
		g.Handle("typed", "/typed", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			return nil, (*jinatest.Exception)(nil)
		})
		cc := g.Dial()
		for endpoint, text := range map[string]string{"/text": "RuntimeError('panic: oh')", "/typed": "nil pointer"} {
			o := single(t.Context(), cc, request("r", endpoint))
			require.NoError(t, o.err)
			got := o.answers[0].GetHeader().GetStatus()
			assert.Contains(t, got.GetDescription(), text)
			assert.Equal(t, "RuntimeError", got.GetException().GetName())
			assert.NotEmpty(t, got.GetException().GetStacks())
			assert.Equal(t, []string{"true"}, o.trailer.Get("is-error"))
		}
	})
}

// What no executor can read is an error of the first that wants to, and of no other.
func TestUnreadable(t *testing.T) {
	cases := map[string]struct {
		data *jinapb.DataRequestProto_DataContentProto
		text string
	}{
		"malformed": {encoded([]byte("\x0a\x01a\x0a\x05b")), "at byte 3 of 6, where document 2 would be"},
		"other": {&jinapb.DataRequestProto_DataContentProto{
			Documents: &jinapb.DataRequestProto_DataContentProto_DocsBytes{DocsBytes: []byte("\x0a\x01a")},
		}, "data.docs_bytes cannot be read"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := jinatest.New(t)
				g.Handle("other", "/other", suffixed("1"))
				g.Handle("reads", "/e", suffixed("1"))
				cc := g.Dial()
				in := request("r", "/e")
				in.Data = c.data
				o := single(t.Context(), cc, in)
				require.NoError(t, o.err)
				got := o.answers[0].GetHeader().GetStatus()
				assert.Equal(t, jinapb.StatusProto_ERROR, got.GetCode())
				assert.Contains(t, got.GetDescription(), c.text)
				assert.Equal(t, "DecodeError", got.GetException().GetName())
				assert.Equal(t, "reads", got.GetException().GetExecutor())
				assert.True(t, proto.Equal(c.data, o.answers[0].GetData()))
				assert.Equal(t, []string{"true"}, o.trailer.Get("is-error"))

				in.Header.ExecEndpoint = new("/nobody")
				o = single(t.Context(), cc, in)
				require.NoError(t, o.err)
				assert.Equal(t, jinapb.StatusProto_SUCCESS, o.answers[0].GetHeader().GetStatus().GetCode())
				assert.True(t, proto.Equal(c.data, o.answers[0].GetData()))
			})
		})
	}
}

func TestBadTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "", suffixed("1"))
		cc := g.Dial()
		for _, target := range []string{"(", "a)|(b", `a\`} {
			in := request("r", "/e", "d")
			in.Header.TargetExecutor = &target
			o := single(t.Context(), cc, in)
			require.NoError(t, o.err)
			got := o.answers[0].GetHeader().GetStatus()
			assert.Equal(t, jinapb.StatusProto_ERROR, got.GetCode())
			assert.Contains(t, got.GetDescription(), "error parsing regexp")
			assert.Empty(t, got.GetException().GetExecutor())
			assert.Equal(t, []string{"gateway"}, stations(o.answers[0]))
			assert.Equal(t, []string{"d"}, texts(t, o.answers[0]))
		}
	})
}

// An executor that cannot be reached ends the RPC.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/e", func(ctx context.Context, _ []jina.Document, _ map[string]any) ([]jina.Document, error) {
			if err := grpc.SetTrailer(ctx, metadata.Pairs("tried", "a:1")); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("wrapped: %w", jinatest.Unreachable(codes.Unavailable, "a is down", &structpb.Value{}))
		})
		after := 0
		g.Handle("b", "/e", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			after++
			return nil, nil
		})
		o := single(t.Context(), g.Dial(), request("r", "/e", "d"))
		assert.Equal(t, codes.Unavailable, status.Code(o.err))
		assert.Equal(t, "a is down", status.Convert(o.err).Message())
		assert.Len(t, status.Convert(o.err).Details(), 1)
		assert.Equal(t, []string{"a:1"}, o.trailer.Get("tried"))
		assert.Empty(t, o.trailer.Get("is-error"))
		assert.Zero(t, after)
		a := g.Attempts()
		require.Len(t, a, 1)
		assert.Equal(t, codes.Unavailable, a[0].Status.Code())
	})
}

func TestBadUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/ok", failing(jinatest.Unreachable(codes.OK, "")))
		g.Handle("a", "/detail", failing(jinatest.Unreachable(codes.Aborted, "", nil)))
		g.Handle("a", "/typed", failing(jinatest.Unreachable(codes.Aborted, "", (*errdetails.RetryInfo)(nil))))
		g.Handle("a", "/text", failing(jinatest.Unreachable(codes.Aborted, "\xff", &errdetails.RetryInfo{})))
		cc := g.Dial()
		err := single(t.Context(), cc, request("r", "/text")).err
		assert.Equal(t, "\uFFFD", status.Convert(err).Message())
		assert.Len(t, status.Convert(err).Details(), 1, "details survive a text that is not valid UTF-8")
		for endpoint, text := range map[string]string{
			"/ok": "the code is OK", "/detail": "a detail is nil", "/typed": "a detail is nil",
		} {
			err := single(t.Context(), cc, request("r", endpoint)).err
			assert.Equal(t, codes.Internal, status.Code(err))
			assert.ErrorContains(t, err, "jinatest: Unreachable: "+text)
		}
		assert.EqualError(t, jinatest.Unreachable(codes.NotFound, "gone"),
			"the executor is unreachable: rpc error: code = NotFound desc = gone")
	})
}

// The context of a handler ends with the client's, and the executors after it are left out.
func TestSingleCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		ran := 0
		g.Handle("a", "/e", func(ctx context.Context, _ []jina.Document, _ map[string]any) ([]jina.Document, error) {
			<-ctx.Done()
			return nil, nil
		})
		g.Handle("b", "/e", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			ran++
			return nil, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := single(ctx, g.Dial(), request("r", "/e"))
		assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
		assert.Equal(t, time.Second, o.took)
		a := g.Await(t, testserver.Ended(1))[0]
		assert.Equal(t, time.Second, a.End.Sub(a.Start))
		assert.Contains(t, []codes.Code{codes.DeadlineExceeded, codes.Canceled}, a.Status.Code())
		assert.Zero(t, ran)
	})
}

func TestProcessData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		g.Handle("a", "/e", suffixed("1"))
		client := jinapb.NewJinaDataRequestRPCClient(g.Dial())
		send := func(in ...*jinapb.DataRequestProto) (*jinapb.DataRequestProto, error) {
			return client.ProcessData(t.Context(), &jinapb.DataRequestListProto{Requests: in})
		}
		out, err := send(request("r", "/e", "c", "d"), request("s", "/other", "e"))
		require.NoError(t, err)
		assert.Equal(t, "r", out.GetHeader().GetRequestId())
		assert.Equal(t, []string{"c1", "d1", "e1"}, texts(t, out))

		other := request("s", "/other")
		other.Data.Documents = &jinapb.DataRequestProto_DataContentProto_DocsBytes{DocsBytes: []byte("x")}
		out, err = send(other)
		require.NoError(t, err)
		assert.Equal(t, "x", string(out.GetData().GetDocsBytes()))
		_, err = send(request("r", "/e"), other)
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		assert.ErrorContains(t, err, "request 2 of 2: data.docs_bytes cannot be joined")
		_, err = send()
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}
