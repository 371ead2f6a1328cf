// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

const (
	// prefetch is how many requests are under way. It is small, so that there is
	// always something left to send when the gateway dies.
	prefetch = 4
	// wordsOfRequest is how many words one request searches for.
	wordsOfRequest = 2
)

// params say how often, and when, the Posts try again.
func params() jina.Params {
	return jina.Params{
		// A death costs two attempts: the one that it breaks, and the next, which finds
		// nobody. A request could meet both deaths of its Post, and one is to spare.
		MaxAttempts:    6,
		InitialBackoff: 10 * time.Millisecond,
		MaxBackoff:     50 * time.Millisecond,
		// By default, as in Jina's client, the attempts after that would follow at once,
		// one backoff apart, and all find nobody: gRPC is not even dialling then, for it
		// has a backoff of its own. So each waits for the connection instead, far longer
		// than a gateway needs to start: it takes no longer than that, and one attempt.
		ConnectWait: 30 * time.Second,
		// With each answer the stream has all its attempts again: its life is as long
		// as the folder is large.
		ResetAfter: grpcretry.ResetAfter{Responses: 1},
	}
}

// client posts documents to the gateway.
type client struct {
	*jina.Client

	conn    *grpc.ClientConn
	gateway *gateway
	out     io.Writer
}

// dial is what jina.Dial does, but for the observer.
func dial(g *gateway, out io.Writer) (*client, error) {
	options, err := jina.DialOptions(params(), grpcretry.WithObserver(g.observer()))
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(g.Target(), append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// gRPC dials again after a second by default, which is what the program would
		// spend most of its time with.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}))...)
	if err != nil {
		return nil, err
	}
	return &client{Client: jina.NewClient(conn), conn: conn, gateway: g, out: out}, nil
}

func (c *client) close() { _ = c.conn.Close() } // the only error says that it is closed

// calls are those of a Post, as its trailers tell of them, and as the gateway saw them.
type calls struct {
	seen

	ended    int
	attempts int // by jina-client-attempts
	silent   int // trailers that do not say
}

func (c *calls) add(trailer metadata.MD) {
	attempts, ok := grpcretry.AttemptsFromMD(trailer)
	if !ok {
		c.silent++
	}
	c.ended++
	c.attempts += attempts
}

// post is Post with what both Posts have in common.
func (c *client) post(
	ctx context.Context, doing, endpoint string, docs jina.Input, requests int, calls *calls, opts ...jina.Option,
) iter.Seq2[*jina.Response, error] {
	return func(yield func(*jina.Response, error) bool) {
		progress := newProgress(c.out, doing)
		defer progress.end()
		c.gateway.doom(requests)
		opts = append(opts, jina.WithPrefetch(prefetch), jina.WithTrailer(calls.add),
			jina.WithProgress(func(done jina.Progress) {
				c.gateway.answered(done.Requests)
				progress.show(done, c.gateway.killed())
			}))
		c.Post(ctx, endpoint, docs, opts...)(yield)
	}
}

// indexed is what became of indexing.
type indexed struct {
	calls    calls
	drawn    int            // documents that the files were asked for
	answered map[string]int // how often each document was answered, by id
	empty    []string       // the ids of which the indexer says that they have no text
}

// index indexes all files on one stream.
func (c *client) index(ctx context.Context, files *folder) (*indexed, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	const method = jinapb.JinaRPC_Call_FullMethodName
	x, before := &indexed{answered: map[string]int{}}, c.gateway.seen(method, seen{})
	for response, err := range c.post(ctx, "indexing", indexEndpoint, files.documents(), len(files.names), &x.calls,
		// An exception is one of a whole request, and so each file has its own.
		jina.WithRequestSize(1),
		jina.WithOnError(x.failed)) {
		if err != nil {
			return nil, err
		}
		// Those that failed come here too.
		ids, err := idsOf(response)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			x.answered[id]++
		}
	}
	x.drawn = files.drawn
	x.calls.seen = c.gateway.seen(method, before)
	return x, nil
}

// failed notes the files without a text. All other exceptions end the Post.
func (x *indexed) failed(response *jina.Response) error {
	err := response.Err()
	if exception, ok := errors.AsType[*jina.ExecutorError](err); !ok || exception.Name != noText {
		return err
	}
	ids, err := idsOf(response)
	x.empty = append(x.empty, ids...)
	return err
}

// idsOf returns the ids of a response's documents; those that failed have the documents
// of the request.
func idsOf(response *jina.Response) ([]string, error) {
	var ids []string
	for doc, err := range response.Documents() {
		if err != nil {
			return nil, err
		}
		id, _, err := doc.Text()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// found is what became of the search.
type found struct {
	calls   calls
	queries []string
	results map[string]map[string]int // by word
}

// search searches for words, by unary calls.
func (c *client) search(ctx context.Context, words []string) (*found, error) {
	const method = jinapb.JinaSingleDataRequestRPC_ProcessSingleData_FullMethodName
	f, before := &found{queries: words, results: map[string]map[string]int{}}, c.gateway.seen(method, seen{})
	docs := make([]jina.Document, len(words))
	for i, word := range words {
		var err error
		if docs[i], err = jina.Text("", word); err != nil {
			return nil, err
		}
	}
	for response, err := range c.post(ctx, "searching", searchEndpoint, jina.Documents(docs...), f.requests(), &f.calls,
		jina.WithRequestSize(wordsOfRequest),
		jina.WithStream(false)) {
		if err != nil {
			return nil, err
		}
		if err := f.add(response); err != nil {
			return nil, err
		}
	}
	f.calls.seen = c.gateway.seen(method, before)
	return f, nil
}

// requests returns how many requests the search takes.
func (f *found) requests() int { return (len(f.queries) + wordsOfRequest - 1) / wordsOfRequest }

// add takes the results of a response, which come in any order.
func (f *found) add(response *jina.Response) error {
	for doc, err := range response.Documents() {
		if err != nil {
			return err
		}
		word, matches, err := readResult(doc)
		if err != nil {
			return err
		}
		if _, twice := f.results[word]; twice {
			return fmt.Errorf("there are two results of %q", word)
		}
		f.results[word] = matches
	}
	return nil
}
