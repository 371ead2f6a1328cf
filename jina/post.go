// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry"
)

// Defaults of a Post, those of Jina's client.
const (
	defaultRequestSize = 100
	defaultPrefetch    = 1000
)

// headerSize is about how large a request is that says nothing but its id.
const headerSize = 64

// post is a Post with its parameters.
type post struct {
	endpoint string
	input    Input
	ids      identities
	window   *window
	overhead int // bytes of a request beside its documents

	params          *Params // nil for those of the connection
	requestSize     int
	stream          bool
	prefetch        int
	prefetchGiven   bool
	inOrder         bool
	continueOnError bool
	logger          *slog.Logger
	parameters      *structpb.Struct
	targetExecutor  string
	metadata        metadata.MD
	compression     string

	onDone, onError, onAlways callback
	onProgress                func(Progress)
	onTrailer                 func(metadata.MD)
	progress                  Progress
}

// Post sends documents to an endpoint of the executors, like "/index", in requests, and
// yields the response to each, callbacks or not. Nothing is sent until it is ranged over,
// and each time it is, it is another Post. A yielded error is the last, and its response
// nil: an [Error], an [ExecutorError] that no option is for, or a [CallbackError]. Of a
// request that failed, or was on its way when the Post failed, or when the caller stopped
// ranging, nobody knows whether it ran.
//
// How often a request is tried, and when, say the [Params]. Without streaming each request
// is retried by itself. A stream that breaks is replaced by another, to which the requests
// without an answer are sent again, be they from a slice or drawn from an iterator that
// gives each but once; each response is yielded once. Errors of executors are never
// retried. Of a stream 16 MiB of requests without an answer are kept, or one request if
// that is larger; more are sent when answers make room. (Of all streams of a connection
// at most 1 GiB are kept; a stream that finds no room is not sent again.) The context
// ends the Post.
//
// When the range loop ends, so has all that the Post began, and the context of all its
// calls.
func (c *Client) Post(ctx context.Context, endpoint string, docs Input, opts ...Option) iter.Seq2[*Response, error] {
	return func(yield func(*Response, error) bool) {
		p, err := newPost(endpoint, docs, opts)
		if err == nil {
			err = c.usable(ctx)
		}
		if err != nil {
			yield(nil, badInput(endpoint, err))
			return
		}
		p.run(ctx, c.conn, yield)
	}
}

// newPost returns a Post, or all that is wrong with its parameters.
func newPost(endpoint string, docs Input, opts []Option) (*post, error) {
	p := &post{
		endpoint:    endpoint,
		input:       docs,
		ids:         newIdentities(),
		requestSize: defaultRequestSize,
		stream:      true,
		prefetch:    defaultPrefetch,
		logger:      slog.Default(),
		parameters:  &structpb.Struct{},
		progress:    Progress{Total: docs.total},
	}
	var problems []error
	if endpoint == "" {
		problems = append(problems, errors.New("the endpoint is empty"))
	}
	if !utf8.ValidString(endpoint) {
		problems = append(problems, fmt.Errorf("the endpoint %q is not valid UTF-8", endpoint))
	}
	if docs.fault != "" {
		problems = append(problems, fmt.Errorf("the input is %s, which has nothing to draw from", docs.fault))
	}
	for i, opt := range opts {
		if opt == nil {
			problems = append(problems, fmt.Errorf("option %d is nil", i))
			continue
		}
		problems = append(problems, opt.apply(p))
	}
	if len(p.parameters.GetFields()) == 0 {
		p.parameters = noParameters()
	}
	bytes := 0
	if p.stream {
		bytes = maxUnanswered
	}
	p.window = newWindow(p.prefetch, bytes)
	p.overhead = proto.Size(p.parameters) + len(p.endpoint) + len(p.targetExecutor) + headerSize
	return p, errors.Join(problems...)
}

// answer is what became of a request, or of the whole Post.
type answer struct {
	request  *request // nil for the whole Post
	response *Response
	trailer  metadata.MD // of a call that is over
	err      error
	panicked any // with what a hook of the caller's has
}

// run yields the responses of the Post.
func (p *post) run(ctx context.Context, conn grpc.ClientConnInterface, yield func(*Response, error) bool) {
	answers := p.unary(ctx, conn)
	if p.stream {
		answers = p.streamed(ctx, conn)
	}
	if p.inOrder {
		answers = inTurn(answers)
	}
	for a := range answers {
		if a.panicked != nil {
			panic(a.panicked) //nolint:forbidigo // a hook's own, on the goroutine that it is for
		}
		if a.trailer != nil && p.onTrailer != nil {
			p.onTrailer(a.trailer)
		}
		err := a.err
		switch {
		case err == nil && a.request == nil:
			return
		case err == nil:
			err = p.done(ctx, a)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if !yield(a.response, nil) {
			return
		}
		p.window.giveBack(a.request.bytes)
	}
}

// done tells the callbacks of a response, and returns why the Post ends with it, if it
// does.
func (p *post) done(ctx context.Context, a answer) error {
	if err := p.tell(ctx, a.response); err != nil {
		return err
	}
	p.progress.Requests++
	p.progress.Documents += a.request.documents
	if p.onProgress != nil {
		p.onProgress(p.progress)
	}
	return nil
}

// inTurn yields answers in the order of their requests. What is of the whole Post is
// yielded at once.
func inTurn(answers iter.Seq[answer]) iter.Seq[answer] {
	return func(yield func(answer) bool) {
		next, early := 0, map[int]answer{}
		for a := range answers {
			if a.request == nil {
				if !yield(a) {
					return
				}
				continue
			}
			early[a.request.number] = a
			for a, here := early[next]; here; a, here = early[next] {
				delete(early, next)
				next++
				if !yield(a) {
					return
				}
			}
		}
	}
}

// outgoing returns the context of the Post's calls, with its metadata.
func (p *post) outgoing(ctx context.Context) context.Context {
	if len(p.metadata) == 0 {
		return ctx
	}
	given, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(ctx, metadata.Join(given, p.metadata))
}

// callOptions returns the options of the Post's calls, under a policy that is made of
// its own params, if it has any.
func (p *post) callOptions(policy func(Params) grpcretry.Policy) []grpc.CallOption {
	var options []grpc.CallOption
	if p.params != nil {
		options = append(options, grpcretry.WithCallPolicy(policy(*p.params)))
	}
	if p.compression != "" {
		options = append(options, grpc.UseCompressor(p.compression))
	}
	return options
}
