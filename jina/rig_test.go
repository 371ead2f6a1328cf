// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

const (
	callMethod   = jinapb.JinaRPC_Call_FullMethodName
	singleMethod = jinapb.JinaSingleDataRequestRPC_ProcessSingleData_FullMethodName
)

// rig is a client, and a gateway with an executor that answers with the documents that
// it was given.
type rig struct {
	*testing.T

	gateway *jinatest.Gateway
	conn    *grpc.ClientConn
	client  *jina.Client

	mu       sync.Mutex
	waits    []time.Duration // of all calls, as the observer was told
	encoding string          // of the last call's requests
}

func newRig(t *testing.T, params jina.Params, opts ...grpc.DialOption) *rig {
	t.Helper()
	return newRigOf(t, jinatest.New(t), params, opts...)
}

// newRigOf is a rig with a certain gateway.
func newRigOf(t *testing.T, gateway *jinatest.Gateway, params jina.Params, opts ...grpc.DialOption) *rig {
	t.Helper()
	r := &rig{T: t, gateway: gateway}
	r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
		return docs, nil
	})
	opts = append(opts, grpc.WithStatsHandler(&encodings{r: r}))
	all, err := jina.DialOptions(params, grpcretry.WithObserver(grpcretry.Observer{
		Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if a.Failure != nil && a.Wait > 0 {
				r.waits = append(r.waits, a.Wait)
			}
		},
	}))
	require.NoError(t, err)
	r.conn, err = grpc.NewClient(r.gateway.Target(), append(append(r.gateway.DialOptions(), all...), opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.conn.Close() })
	r.client = jina.NewClient(r.conn)
	return r
}

// observed returns another client, with an observer of the test's own.
func (r *rig) observed(o grpcretry.Observer) *jina.Client {
	r.Helper()
	options, err := jina.DialOptions(jina.Params{MaxAttempts: 2}, grpcretry.WithObserver(o))
	require.NoError(r, err)
	conn, err := grpc.NewClient(r.gateway.Target(), append(r.gateway.DialOptions(), options...)...)
	require.NoError(r, err)
	r.Cleanup(func() { _ = conn.Close() })
	return jina.NewClient(conn)
}

// encodings notes how calls are encoded.
type encodings struct {
	stats.Handler

	r *rig
}

func (e *encodings) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (e *encodings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (e *encodings) HandleConn(context.Context, stats.ConnStats)                       {}

func (e *encodings) HandleRPC(_ context.Context, s stats.RPCStats) {
	if header, ok := s.(*stats.OutHeader); ok && header.FullMethod != "" {
		e.r.mu.Lock()
		defer e.r.mu.Unlock()
		e.r.encoding = header.Compression
	}
}

// texts are documents with the texts "1", "2" and so on.
func texts(n int) []jina.Document {
	docs := make([]jina.Document, n)
	for i := range docs {
		docs[i] = jina.Document(strconv.Itoa(i + 1))
	}
	return docs
}

// once gives documents that can be drawn but once.
func once(docs []jina.Document) jina.Input {
	ch := make(chan jina.Document, len(docs))
	for _, doc := range docs {
		ch <- doc
	}
	close(ch)
	return jina.Generator(func(context.Context) iter.Seq2[jina.Document, error] {
		return func(yield func(jina.Document, error) bool) {
			for doc := range ch {
				if !yield(doc, nil) {
					return
				}
			}
		}
	})
}

// outcome is all that became of a Post.
type outcome struct {
	responses []*jina.Response
	docs      []string // of the responses
	callbacks []string
	attempts  []string // jina-client-attempts of the trailers
	progress  []jina.Progress
	err       error
}

// post posts documents and gathers what comes of it.
func (r *rig) post(ctx context.Context, docs jina.Input, opts ...jina.Option) *outcome {
	r.Helper()
	return r.postInto(ctx, &outcome{}, docs, opts...)
}

// postInto gathers in an outcome that callbacks of the test's own write to, too.
func (r *rig) postInto(ctx context.Context, o *outcome, docs jina.Input, opts ...jina.Option) *outcome {
	r.Helper()
	note := func(name string) func(*jina.Response) error {
		return func(response *jina.Response) error {
			o.callbacks = append(o.callbacks, name+" "+o.read(r.T, response))
			return nil
		}
	}
	opts = append([]jina.Option{
		jina.WithRequestSize(1),
		jina.WithOnDone(note("done")), jina.WithOnAlways(note("always")),
		jina.WithProgress(func(p jina.Progress) { o.progress = append(o.progress, p) }),
		jina.WithTrailer(func(md metadata.MD) { o.attempts = append(o.attempts, md.Get("jina-client-attempts")...) }),
	}, opts...)
	for response, err := range r.client.Post(ctx, "/echo", docs, opts...) {
		require.NoError(r, o.err, "something is behind an error")
		if o.err = err; err != nil {
			require.Nil(r, response)
			continue
		}
		o.responses = append(o.responses, response)
		o.docs = append(o.docs, o.read(r.T, response))
	}
	return o
}

// read returns the documents of a response, in one text.
func (o *outcome) read(tb testing.TB, response *jina.Response) string {
	tb.Helper()
	text := ""
	for doc, err := range response.Documents() {
		require.NoError(tb, err)
		text += string(doc)
	}
	return text
}

// seen returns, for each attempt that reached the gateway, how many attempts came before
// and the documents of the requests that it read, like "0: 1 2 3".
func (r *rig) seen() []string {
	var all []string
	for _, a := range r.gateway.Attempts(callMethod, singleMethod) {
		text := fmt.Sprintf("%d:", max(a.PreviousAttempts, 0))
		for _, m := range a.Requests {
			for doc, err := range jina.DecodeDocuments(m.(*jinaRequest).GetData().GetDocs()) {
				require.NoError(r, err)
				text += " " + string(doc)
			}
		}
		all = append(all, text)
	}
	return all
}
