// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// TestRequests holds what is sent, with the parameters of Jina's client.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, parameters map[string]any) ([]jina.Document, error) {
				assert.Equal(t, map[string]any{"top_k": 3.0, "filter": map[string]any{"a": []any{true, nil}}}, parameters)
				return docs, nil
			})
			ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "a")
			o := r.post(ctx, m.input(texts(250)), jina.WithStream(m.stream), jina.WithRequestSize(100), jina.WithResultsInOrder(true),
				jina.WithParameters(map[string]any{"top_k": 3, "filter": map[string]any{"a": []any{true, nil}}}),
				jina.WithTargetExecutor("ech.*"), jina.WithPrefetch(2),
				jina.WithMetadata(metadata.Pairs("tenant", "b")), jina.WithMetadata(metadata.Pairs("trace", "c")))
			require.NoError(t, o.err)
			assert.Equal(t, strings.Join(o.docs, ""), numbers(1, 250))
			assert.Equal(t, []jina.Progress{{1, 100, 250}, {2, 200, 250}, {3, 250, 250}}, o.progress)

			var requests []*jinaRequest
			for _, a := range r.gateway.Attempts() {
				for _, m := range a.Requests {
					request := m.(*jinaRequest)
					requests = append(requests, request)
				}
				assert.Equal(t, []string{"a", "b"}, a.Metadata.Get("tenant"))
				assert.Equal(t, []string{"c"}, a.Metadata.Get("trace"))
				if m.stream {
					assert.Equal(t, []string{"2"}, a.Metadata.Get("__prefetch__"))
					assert.Equal(t, []string{"true"}, a.Metadata.Get("__results_in_order__"))
				}
			}
			require.Len(t, requests, 3)
			ids := map[string]bool{}
			for _, request := range requests {
				ids[request.GetHeader().GetRequestId()] = true
				assert.Equal(t, "/echo", request.GetHeader().GetExecEndpoint())
				assert.Equal(t, "ech.*", request.GetHeader().GetTargetExecutor())
				assert.Nil(t, request.GetHeader().GetStatus())
			}
			assert.Len(t, ids, 3)
			for i, response := range o.responses {
				assert.True(t, ids[response.RequestID()])
				first, documents := response.Request()
				assert.Equal(t, [2]int{i * 100, []int{100, 100, 50}[i]}, [2]int{first, documents})
				assert.EqualValues(t, 3, response.Parameters()["top_k"])
				require.NoError(t, response.Err())
				assert.NotEmpty(t, response.Message().GetRoutes())
			}
		})
	}
}

// numbers are the texts of documents, in one.
func numbers(from, to int) string {
	var all strings.Builder
	for n := from; n <= to; n++ {
		fmt.Fprint(&all, n)
	}
	return all.String()
}

// TestDefaults holds what is sent by default, and for an input without documents.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for _, row := range []struct {
			name     string
			input    jina.Input
			opts     []jina.Option
			requests []int // their documents
		}{
			{"a hundred documents a request", jina.Documents(texts(101)...), nil, []int{100, 1}},
			{"no more than there are", jina.Documents(texts(100)...), nil, []int{100}},
			{"all in one", jina.Documents(texts(301)...), []jina.Option{jina.WithRequestSize(0)}, []int{301}},
			{"all in one, too", jina.Documents(texts(301)...), []jina.Option{jina.WithRequestSize(-1)}, []int{301}},
			{"empty", jina.Documents(), nil, nil},
			{"empty, in one", jina.Documents(), []jina.Option{jina.WithRequestSize(0)}, nil},
			{"no input", jina.Input{}, nil, []int{0}},
			{"nil documents", jina.Documents(nil, nil), nil, []int{2}},
		} {
			bubble(t, m.name+", "+row.name, func(t *testing.T) {
				r := newRig(t, jina.Params{})
				var got []int
				for response, err := range r.client.Post(t.Context(), "/x", row.input, append(inOrder(m), row.opts...)...) {
					require.NoError(t, err)
					n := 0
					for _, err := range response.Documents() {
						require.NoError(t, err)
						n++
					}
					got = append(got, n)
					assert.Empty(t, response.Results())
				}
				assert.Equal(t, row.requests, got)
				for _, a := range r.gateway.Attempts() {
					assert.Empty(t, a.Metadata.Get("__prefetch__"))
					for _, m := range a.Requests {
						request := m.(*jinaRequest)
						assert.Equal(t, map[string]any{"__results__": map[string]any{}}, request.GetParameters().AsMap())
						assert.Nil(t, request.GetHeader().TargetExecutor)
						assert.Len(t, request.GetHeader().GetRequestId(), 32)
					}
				}
				if len(row.requests) == 0 {
					assert.Empty(t, r.gateway.Attempts(), "nothing is asked")
				}
			})
		}
	}
}

// TestInputs holds that documents come from wherever.
func TestInputs(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			ch := make(chan jina.Document, 3)
			for _, doc := range texts(3) {
				ch <- doc
			}
			close(ch)
			for total, input := range map[int]jina.Input{
				3:  jina.Documents(texts(3)...),
				0:  jina.Channel(ch),
				30: jina.Sequence(slices.Values(texts(3))).WithTotal(30),
				-1: once(texts(3)).WithTotal(-1),
			} {
				o := r.post(t.Context(), input, inOrder(m)...)
				require.NoError(t, o.err)
				assert.Equal(t, []string{"1", "2", "3"}, o.docs)
				assert.Equal(t, max(total, 0), o.progress[2].Total)
			}
		})
	}
}

// TestBadInput holds that what cannot be used is named, before anything is sent.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for text, opt := range map[string]jina.Option{
		"option 0 is nil": nil,
		"params: MaxAttempts is -1; it must not be negative":                            jina.WithParams(jina.Params{MaxAttempts: -1}),
		"WithPrefetch(-1): it must not be negative":                                     jina.WithPrefetch(-1),
		"WithLogger(nil): a logger is needed":                                           jina.WithLogger(nil),
		"WithParameters: the key \"__results__\" is reserved for results":               jina.WithParameters(map[string]any{"__results__": nil}),
		"WithParameters: the key \"\\xff\" is not valid UTF-8":                          jina.WithParameters(map[string]any{"\xff": nil}),
		"WithParameters: the value of \"a\", a chan int: ":                              jina.WithParameters(map[string]any{"a": make(chan int)}),
		"WithParameters: the value of \"b\", a string: ":                                jina.WithParameters(map[string]any{"b": "\xff"}),
		"WithTargetExecutor(\"\\xff\"): it is not valid UTF-8":                          jina.WithTargetExecutor("\xff"),
		"WithMetadata: the key \"__prefetch__\" is reserved; there is an option for it": jina.WithMetadata(metadata.MD{"__Prefetch__": {"1"}}),
		"WithMetadata: the key \"__results_in_order__\" is reserved":                    jina.WithMetadata(metadata.Pairs("__results_in_order__", "true")),
		"WithCompression(\"Deflate\"): no such compressor is registered with g":         jina.WithCompression("Deflate"),
		"WithOnDone(nil): a function is needed":                                         jina.WithOnDone(nil),
		"WithOnError(nil): a function is needed":                                        jina.WithOnError(nil),
		"WithOnAlways(nil): a function is needed":                                       jina.WithOnAlways(nil),
		"WithProgress(nil): a function is needed":                                       jina.WithProgress(nil),
		"WithTrailer(nil): a function is needed":                                        jina.WithTrailer(nil),
	} {
		_, err := only(jina.NewClient(nil).Post(t.Context(), "/x", jina.Documents(), opt))
		require.ErrorContains(t, err, "jina: /x: bad client input: "+text)
		require.ErrorIs(t, err, jina.ErrBadClientInput)
	}
	for text, input := range map[string]jina.Input{
		"Channel(nil)": jina.Channel(nil), "Sequence(nil)": jina.Sequence(nil), "Generator(nil)": jina.Generator(nil),
	} {
		_, err := only(jina.NewClient(nil).Post(t.Context(), "/x", input.WithTotal(3)))
		require.EqualError(t, err, "jina: /x: bad client input: the input is "+text+", which has nothing to draw from")
	}
	_, err := only(jina.NewClient(nil).Post(t.Context(), "", jina.Documents()))
	require.EqualError(t, err, "jina: bad client input: the endpoint is empty")
	_, err = only(jina.NewClient(nil).Post(t.Context(), "/\xff", jina.Documents()))
	require.EqualError(t, err, "jina: /\xff: bad client input: the endpoint \"/\\xff\" is not valid UTF-8")
	var none context.Context
	_, err = only(jina.NewClient(nil).Post(none, "/x", jina.Documents()))
	require.EqualError(t, err, "jina: /x: bad client input: the context is nil")
	require.EqualError(t, jina.NewClient(nil).Ready(none), "jina: dry_run: bad client input: the context is nil")
	_, err = only(jina.NewClient(nil).Post(t.Context(), "/x", jina.Documents(), jina.WithPrefetch(-1), jina.WithLogger(nil)))
	require.EqualError(t, err, "jina: /x: bad client input: WithPrefetch(-1): it must not be negative\nWithLogger(nil): a logger is needed")
}

func TestCompression(t *testing.T) {
	t.Parallel()
	for _, m := range both {
		for name, want := range map[string]string{
			"gzip": "gzip", "Gzip": "gzip", "NoCompression": "identity", "": "identity", "identity": "identity",
		} {
			bubble(t, m.name+" "+name, func(t *testing.T) {
				r := newRig(t, jina.Params{})
				o := r.post(t.Context(), m.input(texts(3)), append(inOrder(m), jina.WithCompression(name))...)
				require.NoError(t, o.err)
				assert.Equal(t, []string{"1", "2", "3"}, o.docs)
				assert.Equal(t, want, r.encoding)
			})
		}
	}
}

// TestBadMetadata holds that metadata which cannot be sent are named before anything is
// sent, and those of the context are gRPC's to refuse, which is not retried.
func TestBadMetadata(t *testing.T) {
	t.Parallel()
	for text, md := range map[string]metadata.MD{
		`the key "no spaces" must be of letters, digits, '-', '_' and '.'`:                               metadata.Pairs("no spaces", "x"),
		`the key "" is not for metadata`:                                                                 {"": {"x"}},
		`the key "user-agent" is not for metadata`:                                                       metadata.Pairs("User-Agent", "x"),
		`the key "grpc-timeout" is gRPC's own`:                                                           metadata.Pairs("grpc-timeout", "x"),
		`the value "\x00" of the key "a" must be of printable ASCII, since the key does not end in -bin`: metadata.Pairs("b-bin", "\x00", "a", "\x00"),
	} {
		_, err := only(jina.NewClient(nil).Post(t.Context(), "/x", jina.Documents(), jina.WithMetadata(md)))
		require.EqualError(t, err, "jina: /x: bad client input: WithMetadata: "+text)
	}
	for _, m := range both {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{MaxAttempts: 3})
			ctx := metadata.AppendToOutgoingContext(t.Context(), "no spaces", "x")
			o := r.post(ctx, m.input(texts(3)), inOrder(m)...)
			require.ErrorContains(t, o.err, "no spaces")
			assert.Equal(t, []string{"1"}, o.attempts)
			assert.Empty(t, r.gateway.Attempts())
		})
	}
}

// TestOptionsAreCopies holds that what options were given may change afterwards.
func TestOptionsAreCopies(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		parameters, md := map[string]any{"a": "b"}, metadata.Pairs("c", "d")
		post := r.client.Post(t.Context(), "/x", jina.Documents(texts(1)...), jina.WithParameters(parameters), jina.WithMetadata(md))
		parameters["a"] = "other"
		md.Set("c", "other")
		response, err := only(post)
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"a": "b"}, response.Parameters())
		assert.Equal(t, []string{"d"}, r.gateway.Attempts()[0].Metadata.Get("c"))
	})
}

// TestResponse holds what can be read of a response that is not what one expects.
func TestResponse(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{})
		results, err := structpb.NewStruct(map[string]any{"__results__": map[string]any{"echo": math.Pi}})
		require.NoError(t, err)
		r.answer(func(all []*jinaRequest) []*jinaRequest {
			all[0].Data = &jinapb.DataRequestProto_DataContentProto{
				Documents: &jinapb.DataRequestProto_DataContentProto_DocsBytes{DocsBytes: []byte("x")},
			}
			all[1].Data = &jinapb.DataRequestProto_DataContentProto{
				Documents: &jinapb.DataRequestProto_DataContentProto_Docs{Docs: []byte("x")},
			}
			all[2].Parameters = results
			all[3].Header.Status = &jinapb.StatusProto{Code: 7}
			return all
		})
		var responses []*jina.Response
		for response, err := range r.client.Post(t.Context(), "/x", jina.Documents(texts(4)...), jina.WithRequestSize(1),
			jina.WithOnError(func(*jina.Response) error { return nil })) {
			require.NoError(t, err)
			responses = append(responses, response)
		}
		require.Len(t, responses, 4)
		for i, text := range []string{"they are docs_bytes", "reading a list of documents: at byte 0 of 1"} {
			for doc, err := range responses[i].Documents() {
				require.ErrorContains(t, err, text)
				assert.Nil(t, doc)
			}
		}
		assert.Equal(t, map[string]any{"echo": math.Pi}, responses[2].Results())
		require.EqualError(t, responses[3].Err(), "jina: /x: executor: an error without a description")
	})
}
